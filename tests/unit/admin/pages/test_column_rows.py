"""Columns of a source beside those of the lake."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz import typemap
from kuvasz.admin.pages.column_rows import ColumnRow, TableColumns
from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.evolve.known import KnownColumn, SourceColumns
from kuvasz.model import Column, Relation, ReplicaIdentity, TableName
from kuvasz.ports import LakeColumn
from kuvasz.source.catalog.table import SourceTable, TableKind

INT, TEXT, NUMERIC = typemap.BUILTIN[23], typemap.BUILTIN[25], typemap.BUILTIN[1700]

COLUMNS = (
    Column(name="id", pg_type=INT, attnum=1, is_key=True),
    Column(name="price", pg_type=NUMERIC, typmod=786438, attnum=2), Column(name="email", pg_type=TEXT, attnum=3),
)  # fmt: skip
LAKE = (
    LakeColumn(field_id=1, name="sid", type="string"), LakeColumn(field_id=2, name="id", type="int"),
    LakeColumn(field_id=3, name="price", type="decimal(12, 2)"), LakeColumn(field_id=4, name="email", type="string"),
)  # fmt: skip
TABLE = SourceTable(
    relation=Relation(oid=1, table=TableName(schema="public", name="items"), identity=ReplicaIdentity.DEFAULT,
                      columns=COLUMNS),
    kind=TableKind.TABLE, page_bytes=0, row_estimate=None, primary_key=("id",), identity_index=(), generated=(),
    leaves=(),
)  # fmt: skip


def rows(lake: tuple[LakeColumn, ...] = LAKE, known: SourceColumns | None = None, **options: Any) -> list[ColumnRow]:
    spec = SourceTableSpec(
        table=TABLE.table, config=TableConfig(**options), namespace="shop", target="items", has_sid=True
    )
    return TableColumns(spec=spec, table=TABLE, lake=lake, known=known).rows()


def notes(found: list[ColumnRow]) -> dict[str, tuple[str, ...]]:
    return {row.at_source or row.in_lake: row.notes for row in found}


def test_each_column_stands_beside_its_own() -> None:
    found = rows()
    assert [(row.at_source, row.type_there, row.in_lake, row.type_here) for row in found] == [
        ("id", "int4", "id", "int"), ("price", "numeric(12,2)", "price", "decimal(12, 2)"),
        ("email", "text", "email", "string"), ("", "", "sid", "string"),
    ]  # fmt: skip
    assert notes(found) == {
        "id": ("key",), "price": (), "email": (), "sid": ("kuvasz's own: which source a row is of", "key"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "column", "told"),
    [
        ({"mask": {"price": "hmac"}}, "price", ("masked: hmac",)),
        ({"exclude": ("email",)}, "email", ("left out by exclude",)),
        ({"columns": ("id", "price")}, "email", ("not among columns",)),
        ({"exclude": ("email",), "column_list": True}, "email", ("left out by exclude: it stays at the source",)),
        ({"types": {"price": "string"}}, "price", ("string by types",)),
    ],
)  # fmt: skip
def test_what_the_map_says_of_a_column_is_noted(options: dict[str, Any], column: str, told: tuple[str, ...]) -> None:
    assert notes(rows(LAKE[:3], **options))[column] == told


def test_what_the_lake_has_from_before_is_told() -> None:
    assert rows(exclude=("email",))[-1].notes == ("from before: this source fills it no more",)


def test_what_is_computed_is_the_lakes_alone() -> None:
    lake = (LakeColumn(field_id=1, name="id", type="int"), LakeColumn(field_id=2, name="gross", type="double"))
    found = rows(lake, set={"id": "id", "gross": "price * 1.2"}, key=("id",), mask={"gross": "redact"})
    assert [(row.at_source, row.in_lake) for row in found] == [
        ("id", ""), ("price", ""), ("email", ""), ("", "id"), ("", "gross"),
    ]  # fmt: skip
    assert found[3].notes == ("computed: id", "key")
    assert found[4].notes == ("computed: price * 1.2", "masked: redact")


def test_a_column_that_another_source_renamed_is_found_by_its_number() -> None:
    lake = (*LAKE[:3], LakeColumn(field_id=4, name="mail", type="string"))
    numbers = {1: 2, 2: 3, 3: 4}
    columns = {
        one.attnum: KnownColumn(
            number=one.attnum,
            names=(one.name,),
            type_oid=one.pg_type.oid,
            typmod=one.typmod,
            field=numbers[one.attnum],
        )
        for one in COLUMNS
    }
    found = rows(lake, SourceColumns(oid=1, columns=columns))
    assert (found[2].at_source, found[2].in_lake, found[2].notes) == (
        "email",
        "mail",
        ("the lake has it by another name",),
    )


def test_a_column_of_other_sources_and_one_that_is_not_there_yet_are_told_apart() -> None:
    lake = (*LAKE[:3], LakeColumn(field_id=9, name="colour", type="string"))
    assert notes(rows(lake))["email"] == ("not in the lake yet",)
    assert notes(rows(lake))["colour"] == ("this source has no such column",)


def test_before_the_source_was_looked_at_the_lake_is_shown() -> None:
    spec = SourceTableSpec(
        table=TABLE.table, config=TableConfig(), namespace="shop", target="items", has_sid=False
    )  # fmt: skip
    found = TableColumns(spec=spec, table=None, lake=LAKE[1:], known=None).rows()
    assert [(row.in_lake, row.notes) for row in found] == [("id", ()), ("price", ()), ("email", ())]


def test_a_generated_column_is_named() -> None:
    table = dataclasses.replace(TABLE, generated=("total",))
    spec = SourceTableSpec(table=TABLE.table, config=TableConfig(), namespace="s", target="items", has_sid=True)
    found = TableColumns(spec=spec, table=table, lake=LAKE, known=None).rows()
    assert ColumnRow(at_source="total", notes=("generated: it is not replicated",)) in found
