"""What a real database has, as `kuvasz discover` tells it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.errors import ConfigError, SourceError
from kuvasz.model import TableName, TableType
from kuvasz.source.catalog import inventory
from kuvasz.verbs.maps import discover
from kuvasz.verbs.maps.discover import SourceListing, TableListing
from tests.support.maps import loaded
from tests.support.odd_tables import create_odd_tables
from tests.support.postgres import Database, create_database, drop_database

pytestmark = pytest.mark.postgres

CLONES = {
    '"Bill.ing".customers', "Customers", "Order Items", "\"a.b \"\"c\"\" 'd'\"", "area",
    "back\\slash/${X}\nand a line", "codes", "customers", "events", "null", "whole",
}  # fmt: skip


@pytest.fixture(scope="module", params=[16, 18])
def odd(request: pytest.FixtureRequest) -> Iterator[Database]:
    database = create_database(request.getfixturevalue(f"postgres{request.param}"))
    create_odd_tables(database)
    yield database
    drop_database(database)


def by_name(found: list[SourceListing]) -> dict[str, TableListing]:
    (one,) = found
    return {table.table: table for table in one.tables}


def test_each_table_is_told_with_what_a_map_would_have_of_it(odd: Database) -> None:
    (one,) = found = discover.of_url(odd.url)
    assert (one.source, one.database, one.location) == (
        "",
        odd.name,
        f"postgres@127.0.0.1:{odd.server.port}/{odd.name}",
    )
    tables = by_name(found)
    assert {name for name, table in tables.items() if table.type is TableType.CLONE} == CLONES
    assert {name: table.why for name, table in tables.items() if table.type is not TableType.CLONE} == {
        "bare": "it has no columns",
        "kept": "it is a materialized view",
        "log": "it has no primary key: only its INSERTs are replicated",
        "remote": "it is a foreign table",
        "sessions": "it is unlogged or temporary, so its changes are not in the write-ahead log",
        "totals": "it is a view",
    }
    assert tables["log"].type is TableType.APPEND
    assert {table.is_mapped for table in tables.values()} == {None}
    assert tables["customers"].rows == 300
    assert tables["customers"].bytes > 0


def test_a_key_is_told_with_where_it_is_from(odd: Database) -> None:
    tables = by_name(discover.of_url(odd.url))
    assert {name: discover.key(tables[name]) for name in ("Order Items", "codes", "whole", "log", "totals")} == {
        "Order Items": "Order, Line No", "codes": "code (replica identity index)",
        "whole": "a row is matched as a whole", "log": "none", "totals": "none",
    }  # fmt: skip


def test_partitions_are_part_of_their_root(odd: Database) -> None:
    tables = by_name(discover.of_url(odd.url, ["events*"]))
    assert tables.keys() == {"events"}
    assert (tables["events"].kind, tables["events"].partitions) == ("partitioned", 2)


def test_patterns_say_which_tables_are_meant(odd: Database) -> None:
    def names(*patterns: str) -> set[str]:
        return set(by_name(discover.of_url(odd.url, patterns)))

    assert names("cust*") == {"customers"}
    assert names("*.customers") == {"customers", '"Bill.ing".customers'}
    assert names('"Bill.ing".*', "null") == {'"Bill.ing".customers', "null"}
    assert names("*.*") == names()
    with pytest.raises(ConfigError, match=r"^no table is meant by 'nothing\*'\n"):
        names("cust*", "nothing*")


def test_temporary_tables_and_those_of_extensions_are_left_out(odd: Database) -> None:
    with odd.connect(autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE mine (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE of_plpgsql (id int PRIMARY KEY)")
        connection.execute("ALTER EXTENSION plpgsql ADD TABLE of_plpgsql")
        found = inventory.take(odd.url)
        tables = by_name(discover.of_url(odd.url))
        connection.execute("ALTER EXTENSION plpgsql DROP TABLE of_plpgsql; DROP TABLE of_plpgsql, mine")
    assert found.extensions == {TableName(schema="public", name="of_plpgsql"): "plpgsql"}
    assert (tables["of_plpgsql"].type, tables["of_plpgsql"].why) == (None, "it is a part of the extension plpgsql")
    (mine,) = [table for table in tables.values() if table.name == "mine"]
    assert (mine.type, mine.why[:28]) == (None, "it is unlogged or temporary,")


def test_a_map_has_some_of_them_already(odd: Database, tmp_path: Path) -> None:
    text = f"""
        databases:
        - database: shop
          urls: [{{url: "{odd.url}", sid: eu}}, {{url: "postgresql://postgres@127.0.0.1:1/shop", sid: us}}]
          tables: {{customers: , events: {{partitions_regex: "e.*"}}}}
        """
    config = loaded(tmp_path, text).config
    here, gone = discover.of_map(config)
    assert {table.table for table in here.tables if table.is_mapped} == {"customers", "events"}
    assert (here.source, gone.source, gone.tables, gone.error_code) == ("shop_eu", "shop_us", (), 1)
    assert "127.0.0.1:1" in str(gone.error)
    assert discover.exit_code([here, gone]) == 1
    (same,) = discover.of_url(odd.url, config=config)
    assert same == here.__class__(**{name: getattr(here, name) for name in here.__slots__} | {"database": odd.name})
    (other,) = discover.of_url(odd.server.url(), config=config)
    assert (other.source, {table.is_mapped for table in other.tables} - {False}) == ("", set())


def test_a_server_that_does_not_answer_is_an_error(odd: Database) -> None:
    with pytest.raises(SourceError):
        discover.of_url("postgresql://postgres@127.0.0.1:1/shop")


def test_what_a_role_may_not_read_is_told(odd: Database) -> None:
    role = f"reader_{odd.name}"
    odd.execute(f"CREATE ROLE {role} LOGIN")
    try:
        (table,) = by_name(discover.of_url(odd.url.replace("postgres@", f"{role}@"), ["codes"])).values()
        assert [one.sentence() for one in table.decisions] == [
            "the role may not read codes; `kuvasz check` has the GRANT"
        ]
    finally:
        odd.execute(f"DROP ROLE {role}")
