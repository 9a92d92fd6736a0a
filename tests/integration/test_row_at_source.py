"""What sources have of a row that somebody asks for: the rows of the table of the map, and of no other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.config.sources import TargetFeed, resolve
from kuvasz.verbs.lake import row_at_source
from tests.support.lake import group
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

TABLES = """
CREATE TABLE items (id int PRIMARY KEY, n int);
CREATE TABLE secrets (PRIMARY KEY (id)) INHERITS (items);
INSERT INTO items VALUES (1, 1);
INSERT INTO secrets VALUES (2, 2);
CREATE TABLE events (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (1) TO (10);
INSERT INTO events VALUES (2, 2);
"""


def test_rows_of_tables_that_inherit_are_not_the_tables_own(database: Database, tmp_path: Path) -> None:
    """Such a table need not be in the map, and then nobody is to see it."""
    database.execute(TABLES)
    document = {
        "lake": {"warehouse": str(tmp_path), "namespace": "shop"},
        "databases": group({"eu": database}, {"items": None, "events": None}),
    }
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    (source,) = resolve(load(tmp_path / "map.yaml", {}).config)

    def shown(key: str) -> dict[str, list[str | None]]:
        feeds = [TargetFeed(source=source, spec=spec) for spec in source.tables]
        found = row_at_source.look(feeds, {"id": key}, "eu")
        assert [one.why_not for one in found] == [None, None]
        return {one.table: [row["n"] for row in one.rows] for one in found}

    assert shown("1") == {"public.items": ["1"], "public.events": []}
    assert shown("2") == {"public.items": [], "public.events": ["2"]}
