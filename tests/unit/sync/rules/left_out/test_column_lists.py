from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, TableType
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules.left_out import column_lists

NAME = TableName(schema="public", name="people")
TABLE = SourceTable(
    relation=Relation(
        oid=1, table=NAME, identity=ReplicaIdentity.DEFAULT,
        columns=tuple(
            Column(name=name, pg_type=PgType(oid=25, name="text"), attnum=number, is_key=name == "id")
            for number, name in enumerate(("secret", "id", "a", "Bc"), 1)
        ),
    ),
    kind=TableKind.TABLE, page_bytes=8192, row_estimate=None, primary_key=("id",), identity_index=(), generated=(),
    leaves=(), is_owned=True,
)  # fmt: skip
INSERTS = dataclasses.replace(TABLE, can_update=False)
FULL = dataclasses.replace(TABLE, relation=dataclasses.replace(TABLE.relation, identity=ReplicaIdentity.FULL))


def spec(**said: Any) -> SourceTableSpec:
    config = TableConfig(**{"exclude": ("secret",), "column_list": True, **said})
    return SourceTableSpec(table=NAME, config=config, namespace="shop", target="people", has_sid=False)


@pytest.mark.parametrize(
    ("said", "table", "wanted"),
    [
        ({}, TABLE, ("id", "a", "Bc")),
        ({"columns": ("id", "a"), "exclude": None}, TABLE, ("id", "a")),
        ({"columns": ("id", "a"), "exclude": None, "filter": "bC > 1"}, TABLE, ("id", "a", "Bc")),
        ({"columns": ("id",), "exclude": None, "type": TableType.APPEND}, TABLE, ("id",)),
        ({"type": TableType.APPEND}, TABLE, None),
        ({}, INSERTS, None),
        ({}, FULL, ()),
        ({"column_list": False}, TABLE, None),
        ({"column_list": False}, FULL, None),
    ],
)
def test_which_list_a_table_gets(said: dict, table: SourceTable, wanted: tuple | None) -> None:
    assert column_lists.published(spec(**said), table, 150000).column_list == wanted
    assert column_lists.published(spec(**said), table, 140000).column_list is None


def test_a_list_that_the_map_asks_for_and_cannot_have_has_a_reason() -> None:
    assert column_lists.why_not(spec(), TABLE) == ""
    assert column_lists.why_not(spec(column_list=False), FULL) == ""
    assert "UPDATEs fail" in column_lists.why_not(spec(), FULL)
    assert "only its INSERTs" in column_lists.why_not(spec(), INSERTS)
    assert "which a history does not get" in column_lists.why_not(spec(type=TableType.HISTORY), TABLE)


def listed(table: SourceTable, *numbers: int) -> SourceTable:
    return dataclasses.replace(table, relation=dataclasses.replace(table.relation, sent=numbers, list_version=7))


def test_a_list_is_stale_if_it_lacks_a_column_or_stands_in_the_way_of_updates() -> None:
    assert not column_lists.is_stale(spec(), TABLE)
    assert not column_lists.is_stale(spec(), listed(TABLE, 2, 3, 4))
    assert not column_lists.is_stale(spec(), listed(TABLE, 1, 2, 3, 4))
    assert column_lists.is_stale(spec(), listed(TABLE, 2, 3))
    assert column_lists.is_stale(spec(), listed(FULL, 2, 3, 4))
    # Nobody would alter it: what follows would follow for ever.
    assert not column_lists.is_stale(spec(column_list=False), listed(TABLE, 2, 3))
    assert not column_lists.is_stale(spec(), listed(dataclasses.replace(TABLE, is_owned=False), 2, 3))
    assert not column_lists.is_stale(spec(type=TableType.APPEND), listed(TABLE, 2, 3))


def test_a_list_without_the_key_has_updates_fail() -> None:
    assert not column_lists.breaks_updates(spec(), TABLE)
    assert not column_lists.breaks_updates(spec(), listed(TABLE, 2))
    assert column_lists.breaks_updates(spec(), listed(TABLE, 3, 4))
    assert column_lists.breaks_updates(spec(), listed(FULL, 2, 3))
    assert not column_lists.breaks_updates(spec(column_list=False), listed(FULL, 2, 3))
    assert not column_lists.breaks_updates(spec(), listed(INSERTS, 3))


def test_all_tables_of_a_source_are_given_what_the_map_says_of_them() -> None:
    source = Source(
        name="shop_eu", database="shop", sid="eu", url=None, tables=(spec(),), on_slot_lost=None  # type: ignore[arg-type]
    )  # fmt: skip
    of = column_lists.of_source(source)
    assert of(TABLE, 150000).column_list == ("id", "a", "Bc")
    other = dataclasses.replace(
        TABLE, relation=dataclasses.replace(TABLE.relation, table=TableName(schema="public", name="other"))
    )
    assert of(other, 150000) is other
