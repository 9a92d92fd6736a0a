"""Casts and checks that somebody has made run nothing as kuvasz, and make no other row of one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.model import TableName
from kuvasz.source import conninfo, row_lookup, snapshot
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.rules.left_out.copy_condition import copy_condition
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

ITEMS = TableName(schema="public", name="items")

#: A type whose texts somebody makes, and one whose values somebody checks: whom they are called by is told.
TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE FUNCTION told(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    $$BEGIN IF current_setting('application_name') <> 'owner' THEN RAISE EXCEPTION 'run as %', current_user; END IF;
    RETURN 'something else'; END$$;
CREATE CAST (mood AS text) WITH FUNCTION told(mood);
CREATE FUNCTION is_code(text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    $$BEGIN IF current_setting('application_name') <> 'owner' THEN RAISE EXCEPTION 'run as %', current_user; END IF;
    RETURN true; END$$;
CREATE DOMAIN code AS text CHECK (is_code(VALUE));
CREATE DOMAIN shop_code AS code;
CREATE TABLE items (id shop_code PRIMARY KEY, mood mood, n int);
"""


@pytest.fixture
def items(database: Database) -> Iterator[SourceTable]:
    with psycopg.connect(database.url, autocommit=True, application_name="owner") as owner:
        owner.execute(TYPES)
        owner.execute("INSERT INTO items VALUES ('a', 'sad', 1), ('b', 'glad', 2), ('c', NULL, 3)")
    with conninfo.connect(database.url) as session:
        table = introspect.load_relation(session, ITEMS)
        assert table is not None
        yield table


def read(database: Database, columns: tuple[str, ...], **how: object) -> list[bytes]:
    with database.connect(autocommit=False) as holder:
        ((name,),) = holder.execute("SELECT pg_export_snapshot()").fetchall()
        wanted = snapshot.CopyRange(
            conninfo=conninfo.conninfo(database.url), snapshot_name=name, table=ITEMS, columns=columns, **how
        )
        return sorted(b"".join(bytes(piece) for piece in wanted.read()).splitlines())


def test_rows_within_a_filter_of_an_enum_are_those_of_its_labels(database: Database, items: SourceTable) -> None:
    config = TableConfig(filter="mood = 'sad'")
    spec = SourceTableSpec(table=ITEMS, config=config, namespace="shop", target="items", has_sid=False)
    condition = copy_condition(spec, items.relation)
    assert condition
    assert read(database, ("id", "mood"), where=condition) == [b"a\tsad"]


def test_rows_are_looked_up_by_keys_of_a_domain_without_its_checks(database: Database, items: SourceTable) -> None:
    (key,) = (column for column in items.relation.columns if column.name == "id")
    values = snapshot.wanted_values([key.pg_type], [("a",), ("c",)])
    assert read(database, ("id", "n"), wanted=(("id",), values)) == [b"a\t1", b"c\t3"]


def test_a_row_that_somebody_asks_for_is_shown_as_it_is_printed(database: Database, items: SourceTable) -> None:
    with conninfo.connect(database.url) as session:
        for key, mood in (("b", "glad"), ("c", None)):
            (found,) = row_lookup.rows(session, ITEMS, ["id", "mood", "n"], {"id": key})
            assert found == {"id": key, "mood": mood, "n": {"b": "2", "c": "3"}[key]}


def test_what_makes_values_of_a_range_canonical_is_no_function_of_an_owners(database: Database) -> None:
    """It is called for each value that is looked up, and has to be in C, which asks for a superuser."""
    database.execute("CREATE TYPE span")
    for language, body in (("plpgsql", "BEGIN RETURN $1; END"), ("sql", "SELECT $1")):
        with pytest.raises(psycopg.Error, match=r"span|shell"):
            database.execute(f"CREATE FUNCTION same(span) RETURNS span LANGUAGE {language} AS $${body}$$")
