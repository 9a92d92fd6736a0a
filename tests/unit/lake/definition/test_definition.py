"""What a table is, by its type, its key and its columns."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.lake.definition.definition import Definition
from kuvasz.lake.format.layout import Layout
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.model import LakeType, TableType, ValueType
from kuvasz.ports import Target
from tests.support.lake_table import Iceberg


def column(number: int, name: str, kind: LakeType = LakeType.LONG) -> Field:
    return Field(field_id=number, name=name, type=ValueType(kind=kind))


def defined(kind: TableType, key: tuple[str, ...] = ("id",), **more: object) -> tuple[Definition, Iceberg]:
    target = Target(name="shop.items", type=kind, **more)
    iceberg = Iceberg(target, key)
    return Definition(iceberg, target, {}, b"secret"), iceberg


@pytest.mark.parametrize(
    ("kind", "key", "is_bag", "has_unique_keys", "is_growing"),
    [
        (TableType.CLONE, ("id",), False, True, False),
        (TableType.CLONE, (), True, False, False),
        (TableType.APPEND, ("id",), False, False, True),
        (TableType.CHANGELOG, (), False, False, True),
        (TableType.HISTORY, ("id",), False, False, False),
    ],
)
def test_the_type_and_the_key_say_how_rows_are_found(
    kind: TableType, key: tuple[str, ...], is_bag: bool, has_unique_keys: bool, is_growing: bool
) -> None:
    found, _ = defined(kind, key)
    assert (found.is_bag, found.has_unique_keys, found.is_growing) == (is_bag, has_unique_keys, is_growing)


def test_order_is_kept_where_rows_only_come_and_no_layout_mixes_them() -> None:
    found, _ = defined(TableType.APPEND)
    assert found.keeps_order
    found.layout = dataclasses.replace(Layout(), order=(("id", True, True),))
    assert not found.keeps_order
    assert not defined(TableType.CLONE)[0].keeps_order


def test_rows_without_a_key_are_told_apart_by_all_columns_but_the_sources_name() -> None:
    found, iceberg = defined(TableType.CLONE, (), has_sid=True)
    assert (found.identity, found.sid_id) == (("id",), 2)
    assert found.read_again() is False
    iceberg.now = LakeSchema(schema_id=1, fields=(*iceberg.now.fields, column(3, "more")))
    assert found.read_again() is True
    assert (found.identity, found.identities) == (("id", "more"), 1)


def test_a_key_may_change_with_the_columns() -> None:
    found, iceberg = defined(TableType.CLONE)
    iceberg.now = LakeSchema(schema_id=1, fields=(column(1, "id"), column(2, "more")))
    assert found.read_again(("more",)) is False
    assert (found.key, found.identity, found.schema.schema_id) == (("more",), ("more",), 1)


def test_a_column_named_sid_is_the_sources_own_where_there_is_one_source() -> None:
    found, iceberg = defined(TableType.CLONE)
    iceberg.now = LakeSchema(schema_id=1, fields=(column(1, "id"), column(2, "sid")))
    found.read_again()
    assert found.sid_id is None


def test_the_layout_is_changed_only_where_the_map_asks_for_another() -> None:
    found, iceberg = defined(TableType.CLONE)
    asked: list[Layout] = []
    iceberg.layout.replace = lambda _, layout: asked.append(layout)
    found.settle_layout({})
    assert asked == []
    found.target = dataclasses.replace(found.target, sort_by=("id",))
    found.settle_layout({})
    assert [bool(one.order) for one in asked] == [True]
