from __future__ import annotations

import psycopg
import pytest

from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.type_catalog import TypeCatalog
from kuvasz.source.catalog.type_facts import BUILT_IN

pytestmark = pytest.mark.postgres

LSN, INT, ARRAY_OF_LSN = 3220, 23, 3221


@pytest.fixture
def opened(monkeypatch):
    """Every connection that is made."""
    made: list[psycopg.Connection] = []
    connect = conninfo.connect

    def counting(url):
        made.append(connect(url))
        return made[-1]

    monkeypatch.setattr(conninfo, "connect", counting)
    return made


@pytest.fixture
def types(database):
    catalog = TypeCatalog(lambda: database.url)
    yield catalog
    catalog.close()


def made(database, name):
    database.execute(f"CREATE TYPE {name} AS ENUM ('sad')")
    [(oid,)] = database.execute(f"SELECT '{name}'::regtype::oid::bigint")
    return oid


def test_what_is_known_is_what_the_server_has(database):
    with conninfo.connect(database.url) as connection:
        assert introspect.ask_types(connection, list(BUILT_IN)) == dict(BUILT_IN)


def test_what_is_the_same_in_every_server_is_asked_for_once(types, opened):
    first = types([LSN, ARRAY_OF_LSN])
    types.close()
    assert types([LSN, ARRAY_OF_LSN]) == first
    assert first[ARRAY_OF_LSN].element == first[LSN]
    assert len(opened) == 1


def test_one_connection_serves_until_it_is_closed(types, opened, database):
    oid = made(database, "mood")
    assert types([INT])[INT].name == "int4"
    assert types([oid])[oid].name == "mood"
    assert len(opened) == 1
    types.close()
    assert opened[0].closed


def test_what_a_user_made_is_asked_for_each_time(types, database):
    oid = made(database, "mood")
    types([oid, LSN])
    types.close()
    database.execute("ALTER TYPE mood RENAME TO temper")
    found = types([oid, LSN])
    assert (found[oid].name, found[LSN].name) == ("temper", "pg_lsn")


def test_what_a_cluster_was_made_with_is_asked_for_each_time(types, opened, database):
    """Another cluster, which answers at the same url after a switch, may have given its OIDs otherwise."""
    [(oid,)] = database.execute("SELECT 'information_schema.sql_identifier'::regtype::oid::bigint")
    for _ in range(2):
        assert types([oid])[oid].name == "sql_identifier"
        types.close()
    assert len(opened) == 2


def test_an_oid_without_a_type_is_left_out(types):
    assert types([LSN, 4_000_000_000]).keys() == {LSN}
