"""A tenant whose functions and relations stand before PostgreSQL's own runs nothing as kuvasz."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.verify_bench import Bench

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: For each function, operator, type and relation of PostgreSQL's catalog one of its name that says whom it caught.
TRAPS = r"""
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
DO $do$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
            format_type(p.prorettype, NULL) AS returns
        FROM pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
            AND p.proargmodes IS NULL AND p.provariadic = 0
            AND NOT EXISTS (SELECT FROM pg_type t WHERE t.oid = ANY (p.proargtypes::oid[] || p.prorettype)
                AND t.typtype = 'p')
    LOOP
        EXECUTE format(
            'CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
            '$$BEGIN RAISE EXCEPTION ''caught by the function %s''; END$$',
            one.name, one.arguments, one.returns, one.name
        );
    END LOOP;
    FOR one IN SELECT relname AS name FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
    LOOP
        EXECUTE format('CREATE VIEW evil.%I AS SELECT ''caught'' AS caught', one.name);
        EXECUTE format('GRANT SELECT ON evil.%I TO PUBLIC', one.name);
    END LOOP;
    FOR one IN
        SELECT o.oid, o.oprname AS name, l.typname AS l, r.typname AS r, t.typname AS returns
        FROM pg_operator o JOIN pg_type r ON r.oid = o.oprright JOIN pg_type t ON t.oid = o.oprresult
        LEFT JOIN pg_type l ON l.oid = o.oprleft
        WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND r.typtype <> 'p' AND coalesce(l.typtype, 'b') <> 'p'
    LOOP
        EXECUTE format(
            'CREATE FUNCTION evil.%I(%s) RETURNS pg_catalog.%I LANGUAGE plpgsql AS '
            '$$BEGIN RAISE EXCEPTION ''caught by the operator %s''; END$$',
            'operator_' || one.oid, concat_ws(', ', 'pg_catalog.' || quote_ident(one.l),
            'pg_catalog.' || quote_ident(one.r)), one.returns, replace(one.name, '%', '%%')
        );
        EXECUTE format(
            'CREATE OPERATOR evil.%s (FUNCTION = evil.%I, %s)', one.name, 'operator_' || one.oid,
            concat_ws(', ', 'LEFTARG = pg_catalog.' || quote_ident(one.l),
            'RIGHTARG = pg_catalog.' || quote_ident(one.r))
        );
    END LOOP;
    CREATE FUNCTION evil.never() RETURNS bool LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'caught by a type'; END$$;
    FOR one IN SELECT typname AS name FROM pg_type
        WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0
    LOOP
        EXECUTE format('CREATE DOMAIN evil.%I AS pg_catalog.%I CHECK (evil.never())', one.name, one.name);
    END LOOP;
END
$do$
"""


@pytest.fixture(params=[pytest.param("postgres16", marks=pytest.mark.slow), "postgres18"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: EmbeddedPostgres = request.getfixturevalue(request.param)
    created = create_database(server)
    yield created
    drop_database(created)


def test_what_stands_before_the_catalog_is_never_asked(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c search_path=public")  # of this test's own sessions
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, kind regclass DEFAULT 'pg_class')")
    database.execute("CREATE TABLE days (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    database.execute("CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')")
    database.execute("CREATE TABLE loose (id int, note text); ALTER TABLE loose REPLICA IDENTITY FULL")
    for table, values in (("items", "1, 1"), ("days", "1, '2026-03-04'"), ("loose", "1, 'a'")):
        database.execute(f"INSERT INTO {table} VALUES ({values})")
    database.execute(TRAPS)
    database.execute(f'ALTER DATABASE "{database.name}" SET search_path = evil, public, pg_catalog')
    for caught in (
        "SELECT pg_relation_size(1::oid::pg_catalog.regclass)", "SELECT relname FROM pg_class", "SELECT 1 = 1",
        "SELECT 'a'::text",
    ):  # fmt: skip
        with database.connect(options="") as session, pytest.raises(psycopg.Error, match=r"caught by|does not exist"):
            session.execute(caught)

    tables = {"items": None, "days": None, "loose": None}
    config = lake_folder.config(group({"eu": database}, tables))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO public.items VALUES (2, 2)")
        database.execute("ALTER TABLE public.items ADD more int DEFAULT 7")
        database.execute("UPDATE public.items SET more = 8, n = 3 WHERE id OPERATOR(pg_catalog.=) 1")
        database.execute("CREATE TABLE public.days_2 PARTITION OF public.days FOR VALUES FROM ('2027-01-01') TO"
                         " ('2028-01-01')")  # fmt: skip
        database.execute("INSERT INTO public.days VALUES (2, '2027-03-04')")
        database.execute("DELETE FROM public.loose")
        pipeline.wait_applied(database)
    assert [report.differences for report in Bench(config, lake_folder).verify()] == [0, 0, 0]
    database.execute(f'ALTER DATABASE "{database.name}" RESET search_path')  # for the oracle
    pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
