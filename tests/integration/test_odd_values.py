"""Values at the edge of what PostgreSQL holds, copied and streamed: none is rounded, defaulted or lost."""

from __future__ import annotations

import pytest

from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import create_database, drop_database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES = """
CREATE TYPE pair AS (n numeric, t text);
CREATE TYPE nested AS (p pair, list pair[]);
CREATE DOMAIN amount AS numeric(10,2);
CREATE DOMAIN price AS amount CHECK (value >= 0);
CREATE DOMAIN names AS text[];
CREATE TABLE odd (
    id int PRIMARY KEY, huge numeric, doc json, composed nested, cost price, costs price[], tags names, span interval,
    many text[], bits bit varying, blank char(8), ts timestamp, f real, g double precision
);
CREATE VIEW seen AS SELECT id, huge, doc, composed, cost, costs::numeric(10,2)[] AS costs, tags, span, many, bits,
    blank, ts, f, g FROM odd; -- the oracle knows no arrays of domains
"""

ROWS = r"""
INSERT INTO odd VALUES
({0}, (repeat('9', 131072) || '.' || repeat('1', 16383))::numeric, '{{"a": "\ud800", "a": 1e400}}',
 ROW(ROW('NaN', 'a "b" \c'), ARRAY[ROW(1.50, NULL)::pair, NULL])::nested, 12.30, '{{1.00,NULL,0}}',
 ARRAY['x', NULL, '', 'NULL'], '-1 year -2 mons +3 days -04:05:06.000001', ARRAY[repeat('é', 70000), ''], B'',
 'a ', '4713-01-01 00:00:00 BC', '-0', '5e-324');
INSERT INTO odd (id, huge, doc, costs, many, span, f, g) VALUES
({0} + 1, '-Infinity', ' [1 , 2] ', '{{}}', '{{}}', '178000000 years', 'NaN', '-Infinity');
INSERT INTO odd (id) VALUES ({0} + 2);
"""


@pytest.mark.parametrize(
    ("server", "style"),
    [
        ("postgres15", "sql_standard"),
        ("postgres16", "postgres_verbose"),
        ("postgres18", "postgres"),
        ("postgres18", "iso_8601"),
    ],
)
def test_odd_values_travel_whole(
    request: pytest.FixtureRequest, lake_folder: LakeFolder, server: str, style: str
) -> None:
    database = create_database(request.getfixturevalue(server))
    request.addfinalizer(lambda: drop_database(database))
    database.execute(TYPES)
    database.execute(f"ALTER DATABASE {database.name} SET intervalstyle = '{style}'")
    database.execute(ROWS.format(1))
    database.execute("UPDATE odd SET ts = NULL")  # the years before Christ have a policy, and tests of their own
    tables = {"odd": {"out_of_range": "error"}}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute(ROWS.format(11))
            session.execute("UPDATE odd SET ts = NULL")
            session.execute("UPDATE odd SET id = id + 100 WHERE id = 1")
        pipeline.wait_applied(database)
        pipeline.assert_equal("odd", source_rows(database.url, "seen", sid="eu"))
