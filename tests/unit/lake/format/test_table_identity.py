"""What tables were made as."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import SchemaError
from kuvasz.lake.format import table_identity
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.model import LakeType, TableType, ValueType
from kuvasz.ports import Target

PLAIN = Target(name="shop.items")


def schema(*names: str) -> LakeSchema:
    kind = ValueType(kind=LakeType.STRING)
    fields = tuple(Field(field_id=number, name=name, type=kind) for number, name in enumerate(names, 1))
    return LakeSchema(schema_id=0, fields=fields)


@pytest.mark.parametrize("has_members", [False, True])
@pytest.mark.parametrize("has_sid", [False, True])
@pytest.mark.parametrize("table_type", TableType)
def test_there_and_back(table_type: TableType, *, has_sid: bool, has_members: bool) -> None:
    target = dataclasses.replace(PLAIN, type=table_type, has_sid=has_sid, has_members=has_members)
    properties = table_identity.render(target, ("a", "b"))
    made = table_identity.parse(properties, target, schema(*(("sid", "a") if has_sid else ("a",))))
    assert made.key == ("a", "b")
    assert len(made.seed) == 16
    assert made.seed.hex() == properties["kuvasz.seed"] != table_identity.render(target, ())["kuvasz.seed"]


def test_a_table_that_keeps_deleted_rows_goes_on_doing_so() -> None:
    soft = dataclasses.replace(PLAIN, is_soft=True)
    properties = table_identity.render(soft, ("a",))
    assert table_identity.is_soft(properties)
    assert not table_identity.is_soft(table_identity.render(PLAIN, ("a",)))
    assert table_identity.parse(properties, soft, schema("a")).key == ("a",)
    with pytest.raises(SchemaError, match="keeps deleted rows, and the map says `deletes: hard`"):
        table_identity.parse(properties, PLAIN, schema("a"))


def test_the_key_follows_its_source() -> None:
    properties = table_identity.render(PLAIN, ("a",)) | table_identity.render_key(("b", "c"))
    assert table_identity.parse(properties, PLAIN, schema("b", "c")).key == ("b", "c")


def test_a_table_from_before_types_is_a_clone() -> None:
    properties = table_identity.render(PLAIN, ("a",))
    del properties[table_identity.TYPE_PROPERTY]
    assert table_identity.parse(properties, PLAIN, schema("a")).key == ("a",)


@pytest.mark.parametrize("lacking", [table_identity.SEED_PROPERTY, table_identity.KEY_PROPERTY])
def test_tables_of_others_are_left_alone(lacking: str) -> None:
    properties = table_identity.render(PLAIN, ("a",))
    del properties[lacking]
    with pytest.raises(SchemaError, match="exists in the lake and was not made by kuvasz"):
        table_identity.parse(properties, PLAIN, schema("a"))


@pytest.mark.parametrize(
    ("changed", "columns", "told"),
    [
        ({"type": TableType.APPEND}, ("a",), "was made as clone, and the map says append"),
        ({"has_sid": True}, ("a",), "was made without a column sid"),
        ({}, ("sid", "a"), "was made with a column sid"),
        ({"has_members": True}, ("a",), "was made without `partitions_regex`"),
    ],
)
def test_the_map_goes_on_saying_what_it_said(changed: dict, columns: tuple[str, ...], told: str) -> None:
    properties = table_identity.render(PLAIN, ("a",))
    with pytest.raises(SchemaError, match=f"table shop.items {told}"):
        table_identity.parse(properties, dataclasses.replace(PLAIN, **changed), schema(*columns))


@pytest.mark.parametrize(
    ("kind", "more", "is_empty", "expected"),
    [
        (TableType.CLONE, {}, False, True),
        (TableType.CLONE, table_identity.SOFT, False, False),
        (TableType.HISTORY, {}, False, False),
        (TableType.HISTORY, {}, True, True),
        (TableType.HISTORY, table_identity.render_type(TableType.HISTORY, 7), False, True),
        (TableType.HISTORY, {table_identity.REMADE_PROPERTY: "7", "kuvasz.filled.eu": "true"}, False, False),
    ],
)  # fmt: skip
def test_what_every_source_can_give_again_may_become_another(
    kind: TableType, more: dict[str, str], *, is_empty: bool, expected: bool
) -> None:
    properties = {**table_identity.render(dataclasses.replace(PLAIN, type=kind), ("a",)), **more}
    assert table_identity.can_become_another(properties, is_empty=is_empty) is expected
    assert not table_identity.can_become_another({}, is_empty=is_empty), "it is somebody else's"
    assert table_identity.is_former(properties, "eu") is (table_identity.REMADE_PROPERTY in more and expected)
    is_remade = table_identity.last_of_another_type(properties) is not None
    assert is_remade is (table_identity.REMADE_PROPERTY in more)


def test_a_table_may_be_another_by_its_type_or_by_a_key_of_the_map() -> None:
    properties = table_identity.render(PLAIN, ("a", "b"))
    for changed, expected in (
        ({}, False), ({"key": ("b", "a")}, False), ({"key": ("a",)}, True), ({"type": TableType.APPEND}, True),
    ):  # fmt: skip
        assert table_identity.may_be_another(properties, dataclasses.replace(PLAIN, **changed)) is expected


def test_a_tables_own_column_may_be_named_sid() -> None:
    assert table_identity.parse(table_identity.render(PLAIN, ("sid",)), PLAIN, schema("sid")).key == ("sid",)
