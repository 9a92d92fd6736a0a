"""What happened to a source table since the lake agreed with it."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import LakeError, SchemaError
from kuvasz.lake import source_columns
from kuvasz.model import Column, Relation, ReplicaIdentity, TableName
from kuvasz.typemap import BUILTIN
from tests.contract.changes import target

_INT = BUILTIN[23]


def relation(*columns: Column, oid: int = 100) -> Relation:
    table = TableName(schema="public", name="items")
    return Relation(oid=oid, table=table, identity=ReplicaIdentity.DEFAULT, columns=columns)


def column(name: str, attnum: int, **facts: bool) -> Column:
    return Column(name=name, pg_type=_INT, attnum=attnum, **facts)


BEFORE = relation(column("id", 1, is_key=True), column("n", 2))
KNOWN = source_columns.of(target(), BEFORE)


def check(now: Relation) -> None:
    source_columns.check(KNOWN, now, "source eu, table public.items", target())


def test_what_is_remembered_comes_back() -> None:
    properties = {source_columns.PREFIX + "eu": KNOWN.render(), "other": "1"}
    assert source_columns.parse(properties, "shop.items") == {"eu": KNOWN}


@pytest.mark.parametrize("value", ["", "1", "{}", '{"oid": 1, "columns": 2}', '{"oid": "x", "columns": {}}'])
def test_a_damaged_property_is_told(value: str) -> None:
    with pytest.raises(LakeError, match="does not describe columns"):
        source_columns.parse({source_columns.PREFIX + "eu": value}, "shop.items")


def test_nothing_happened() -> None:
    check(BEFORE)


def test_a_dropped_column_and_a_new_one_without_values_are_followed() -> None:
    check(relation(column("id", 1), column("later", 3)))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ((column("id", 1), column("amount", 2)), "column n was renamed to amount"),
        ((column("id", 1), column("n", 3)), "column n was dropped and added again"),
        (
            (column("id", 1), column("n", 2), column("c", 3, has_default=True)),
            "column c was added with a default, which rows in the lake do not have",
        ),
        (
            (column("id", 1), column("n", 2), column("c", 3, is_nullable=False)),
            "column c was added with a default, which rows in the lake do not have",
        ),
    ],
)
def test_what_old_rows_do_not_show_is_refused(columns: tuple[Column, ...], told: str) -> None:
    with pytest.raises(SchemaError) as refused:
        check(relation(*columns))
    assert str(refused.value) == (
        f"source eu, table public.items: {told}\n"
        "hint: drop the table shop.items from the lake and start again: it is copied anew"
    )


def test_another_table_of_that_name_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"not the table that was copied \(OID 100, now 101\)"):
        check(dataclasses.replace(BEFORE, oid=101))


def test_a_column_that_was_left_out_is_not_taken_as_new() -> None:
    now = relation(column("id", 1, is_key=True), column("n", 2), column("later", 3))
    place = "source eu, table public.items"
    known = source_columns.of(dataclasses.replace(target(), exclude=frozenset({"n"})), BEFORE)
    properties = {source_columns.PREFIX + "eu": known.render()}
    assert source_columns.parse(properties, "shop.items") == {"eu": known}
    source_columns.check(known, now, place, dataclasses.replace(target(), exclude=frozenset({"n"})))
    with pytest.raises(SchemaError, match="column n was left out until now"):
        source_columns.check(known, now, place, target())
    listed = dataclasses.replace(target(), columns=frozenset({"id", "n"}))
    known = source_columns.of(listed, BEFORE)
    source_columns.check(known, now, place, listed)
    # `later` may have come, and been filled, while only `id` and `n` were taken.
    with pytest.raises(SchemaError, match="column later was left out until now"):
        source_columns.check(known, now, place, target())
