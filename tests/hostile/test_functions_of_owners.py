"""Functions that whoever owns a table has in its indexes and statistics write nothing, and leave nothing.

PostgreSQL works out constants of such expressions as it plans a query, by the rights of who asks: kuvasz's role may
be a member of those that own the tables of others in the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import TableName
from kuvasz.source import conninfo, row_lookup, snapshot
from kuvasz.source.catalog import partitions, relation_files
from kuvasz.source.catalog.relation_files import RelationFile
from tests.support.postgres import Database, create_database, drop_database

pytestmark = pytest.mark.postgres

ITEMS = TableName(schema="public", name="items")

#: What a tenant has done by whoever reads his table: another tenant's row is changed, and what the session says next
#: leads to him. Whatever is refused he does without.
MINE = """
CREATE FUNCTION mine(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
    IF current_user = 'a_reader' THEN
        BEGIN UPDATE another.theirs SET n = 0; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN SET TRANSACTION READ WRITE; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN UPDATE another.theirs SET n = 0; EXCEPTION WHEN OTHERS THEN NULL; END;
        PERFORM set_config('search_path', 'evil, pg_catalog', false);
        PERFORM set_config('default_transaction_read_only', 'off', false);
    END IF; RETURN $1; END$$
"""
_TABLE = "CREATE TABLE items (id int PRIMARY KEY, n int)"

#: Where he has it.
PLACES = {
    "an index": f"{_TABLE}; CREATE INDEX ON items ((mine(1) + n))",
    "a predicate": f"{_TABLE}; CREATE INDEX ON items (n) WHERE n > mine(1)",
    "statistics": f"{_TABLE}; CREATE STATISTICS of_items ON (mine(1) + n), n FROM items",
}


@pytest.fixture(params=["postgres16", "postgres18"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    server: EmbeddedPostgres = request.getfixturevalue(request.param)
    created = create_database(server)
    try:
        for statement in (
            "CREATE ROLE a_tenant LOGIN", "CREATE ROLE another LOGIN", "CREATE ROLE a_reader LOGIN REPLICATION",
            "GRANT another, a_tenant TO a_reader", "GRANT ALL ON SCHEMA public TO a_tenant",
            "CREATE SCHEMA evil AUTHORIZATION a_tenant", "CREATE SCHEMA another AUTHORIZATION another",
            "SET ROLE another; CREATE TABLE another.theirs AS SELECT 1 AS n",
        ):  # fmt: skip
            created.execute(statement)
        yield created
    finally:
        drop_database(created)
        with psycopg.connect(server.url(), autocommit=True) as session:
            session.execute("DROP ROLE IF EXISTS a_tenant, another, a_reader")


def made(database: Database, statements: str) -> str:
    """Have the tenant make his table; the url of who reads it."""
    with psycopg.connect(database.url.replace("postgres@", "a_tenant@"), autocommit=True) as tenant:
        for statement in (MINE, *statements.split("; "), "INSERT INTO items VALUES (1, 1), (2, 2)"):
            tenant.execute(statement)
        tenant.execute("ANALYZE items")
    return database.url.replace("postgres@", "a_reader@")


def copied(url: str, session: psycopg.Connection, **how: object) -> None:
    sessions = snapshot.Sessions(1)
    sessions._give_back(session, is_good=True)
    with psycopg.connect(url) as holder:
        ((name,),) = holder.execute("SELECT pg_export_snapshot()").fetchall()
        wanted = snapshot.CopyRange(
            conninfo=conninfo.conninfo(url), snapshot_name=name, table=ITEMS, columns=("id", "n"), sessions=sessions,
            **how,
        )  # fmt: skip
        assert b"".join(bytes(piece) for piece in wanted.read()).startswith(b"1\t1\n")
    assert sessions._taken() is session


def whole(url: str, session: psycopg.Connection) -> None:
    copied(url, session)


def by_key(url: str, session: psycopg.Connection) -> None:
    copied(url, session, wanted=(("id",), "('1'::pg_catalog.int4)"))


def shown(_: str, session: psycopg.Connection) -> None:
    assert row_lookup.rows(session, ITEMS, ["id", "n"], {"id": "1"}) == [{"id": "1", "n": "1"}]


def looked_into(_: str, session: psycopg.Connection) -> None:
    partitions.has_rows_from_before(session, ITEMS, partitions.horizon(session))


def looked_at_its_file(_: str, session: psycopg.Connection) -> None:
    now = RelationFile(file=1, file_xid=1, horizon=1)
    assert not relation_files.begins_with_an_insert(session, ITEMS, 1, now)


@pytest.mark.parametrize("way", [whole, by_key, shown, looked_into, looked_at_its_file])
@pytest.mark.parametrize("place", PLACES)
def test_they_write_nothing_and_leave_nothing(
    database: Database, place: str, way: Callable[[str, psycopg.Connection], None]
) -> None:
    url = made(database, PLACES[place])
    with conninfo.connect(url) as session:
        way(url, session)
        ((path, user),) = session.execute("SELECT current_setting('search_path'), current_user").fetchall()
    assert (path, user) == ("pg_catalog", "a_reader")
    assert database.execute("SELECT n FROM another.theirs") == [(1,)]
