"""Functions that whoever owns a table has in its indexes and statistics write nothing, and leave nothing.

PostgreSQL works out constants of such expressions as it plans a query, by the rights of who asks: kuvasz's role may
be a member of those that own the tables of others in the same database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo
from tests.support.owner_functions import PLACES, WAYS
from tests.support.postgres import Database, create_database, drop_database

pytestmark = pytest.mark.postgres

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


@pytest.fixture(params=[pytest.param("postgres16", marks=pytest.mark.slow), "postgres18"])
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


@pytest.mark.parametrize("way", WAYS)
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
