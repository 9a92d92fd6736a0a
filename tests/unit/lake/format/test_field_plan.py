"""Fields of a lake table on their way to other names, types and keys."""

from __future__ import annotations

import dataclasses

from kuvasz.lake.format.field_plan import FieldPlan, name_before
from kuvasz.lake.format.schema import Field, LakeSchema
from kuvasz.lake.format.schema_steps import AddField, RelaxFields, RenameField, WidenField
from kuvasz.model import LakeType, ValueType


def field(number: int, name: str) -> Field:
    return Field(field_id=number, name=name, type=ValueType(kind=LakeType.INT))


def plan(*fields: Field, key: tuple[str, ...] = ()) -> FieldPlan:
    return FieldPlan(LakeSchema(schema_id=0, fields=fields), key)


def test_nothing_changed_needs_no_step() -> None:
    assert plan(field(1, "a"), key=("a",)).steps() == ()


def test_names_that_go_around_never_meet() -> None:
    fields = plan(field(1, "a"), field(2, "b"))
    fields.rename(1, "b")
    fields.rename(2, "a")
    assert fields.steps() == (RenameField("a", "a__moving"), RenameField("b", "a"), RenameField("a__moving", "b"))


def test_a_field_is_set_aside_under_a_name_that_is_free() -> None:
    fields = plan(field(1, "a"), field(2, "a__old"))
    assert fields.set_aside(fields.now[1]) == "a__old2"
    assert fields.by_name("a") is None
    assert name_before("a__old2") == name_before("a__old") == "a"


def test_a_key_of_an_added_field_goes_by_the_columns_number() -> None:
    fields = plan(dataclasses.replace(field(1, "a"), required=True), field(2, "b"), key=("a",))
    fields.added[7] = field(0, "c")
    fields.key = [-7, 2]
    assert fields.key_names() == ("c", "b")
    assert fields.steps() == (RelaxFields(("a",)), AddField(field(0, "c")))


def test_a_promoted_field_keeps_its_id() -> None:
    fields = plan(field(1, "a"))
    long = ValueType(kind=LakeType.LONG)
    fields.widen(1, long)
    fields.rename(1, "b")
    assert fields.now[1] == dataclasses.replace(field(1, "b"), type=long)
    assert fields.steps() == (RenameField("a", "b"), WidenField("b", long))
