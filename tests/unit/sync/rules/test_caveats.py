"""What a table may lack in the lake: rows of tables that inherit from it, and rows of one key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.model import ReplicaIdentity, TableName, TableType
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.rules import caveats
from tests.support.scene import Scene

CHILD = TableName(schema="public", name="child")
OTHERS = TableName(schema="public", name="others")  #: is in the map


def told(folder: Path, table: SourceTable, **config: Any) -> list[caveats.Caveat]:
    scene = Scene(folder)
    spec = dataclasses.replace(scene.items, config=TableConfig(**config))
    return caveats.of(spec, table, [scene.source])


def full(folder: Path, *unique: tuple[str, ...], key: tuple[str, ...] = ()) -> SourceTable:
    """Return a table with REPLICA IDENTITY FULL, some unique indexes, and perhaps a primary key."""
    table = Scene(folder).table(Scene(folder).items)
    columns = tuple(dataclasses.replace(one, is_key=one.name in key) for one in table.relation.columns)
    relation = dataclasses.replace(table.relation, columns=columns, identity=ReplicaIdentity.FULL)
    return dataclasses.replace(table, relation=relation, primary_key=key, unique=unique)


@pytest.mark.parametrize(("children", "left"), [((), ""), ((OTHERS,), ""), ((CHILD, OTHERS), "public.child")])
def test_rows_of_tables_that_inherit_are_left_out_unless_the_map_has_them(
    tmp_path: Path, children: tuple[TableName, ...], left: str
) -> None:
    scene = Scene(tmp_path)
    found = told(tmp_path, scene.table(scene.items, children=children))
    assert [one.found for one in found] == [
        f"the rows of {name}, which inherit from it, are not replicated" for name in left.split() if name
    ]


@pytest.mark.parametrize(
    ("unique", "is_told"),
    [((), True), ((("n",),), True), ((("id", "n"),), True), ((("id",),), False), ((("n",), ("id",)), False)],
)
def test_a_key_of_the_map_may_be_of_several_rows(
    tmp_path: Path, unique: tuple[tuple[str, ...], ...], *, is_told: bool
) -> None:
    found = told(tmp_path, full(tmp_path, *unique), key=("id",))
    assert [one.check for one in found] == (["unique_key"] if is_told else [])


def test_two_columns_are_told_apart_by_one_of_them(tmp_path: Path) -> None:
    first, second = (column.name for column in full(tmp_path).relation.columns[:2])
    assert not told(tmp_path, full(tmp_path, (first,)), key=(first, second))


@pytest.mark.parametrize("type_", [TableType.CLONE, TableType.HISTORY])
def test_what_helps_is_said(tmp_path: Path, type_: TableType) -> None:
    (caveat,) = told(tmp_path, full(tmp_path), key=("id",), type=type_)
    sentence = (
        "nothing at the source keeps rows of one key apart: a later row of a key replaces the earlier;"
        ' ALTER TABLE "public"."items" ALTER COLUMN "id" SET NOT NULL, ADD UNIQUE ("id")'
    )
    if type_ is TableType.CLONE:
        sentence += "; or take `key` out of the map, for a row to be matched as a whole"
    assert caveat.sentence() == sentence


@pytest.mark.parametrize("type_", [TableType.APPEND, TableType.CHANGELOG])
def test_a_table_that_keeps_every_row_needs_no_unique_key(tmp_path: Path, type_: TableType) -> None:
    assert not told(tmp_path, full(tmp_path), key=("id",), type=type_)


def test_a_key_of_the_source_is_unique(tmp_path: Path) -> None:
    assert not told(tmp_path, full(tmp_path, key=("id",)), key=("id",))
    assert not told(tmp_path, full(tmp_path))
    scene = Scene(tmp_path)
    assert not told(tmp_path, scene.table(scene.items, why_unsupported="it is a view", children=(CHILD,)))
