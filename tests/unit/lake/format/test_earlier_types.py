"""Fields for rows of types that no look at the catalog has shown."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import SchemaError
from kuvasz.lake.definition.columns import Columns
from kuvasz.model import LakeType, Relation, TableType
from kuvasz.typemap import BUILTIN
from tests.support.lake_columns import HERE, TARGET, World, feed
from tests.support.source_table import BIGINT, INT, TEXT, SourceTable


def of_type(relation: Relation, name: str, kind: int) -> Relation:
    """Return a message from when a column had another type."""
    columns = (dataclasses.replace(c, pg_type=BUILTIN[kind]) if c.name == name else c for c in relation.columns)
    return dataclasses.replace(relation, columns=tuple(columns))


def where(columns: Columns, relation: Relation) -> dict[str, str]:
    """Return column -> field for a message's rows."""
    shape = columns.shapes.of(feed(), relation)
    return {relation.columns[one.column].name: one.name for one in shape.bindings if one.column >= 0}


@pytest.fixture
def world() -> World:
    return World()


def test_rows_of_an_earlier_type_get_a_field(world: World) -> None:
    now = world.source.catalog()
    before = of_type(now, "n", TEXT.oid)
    with pytest.raises(SchemaError, match="rows of a backlog have text for n, which is int in the lake"):
        where(world.columns, before)
    assert world.columns.make_room(feed(), before) == (
        "rows of a backlog are of a type that no field of their column holds: they go to n__old",
    )
    assert world.iceberg.now.fields[-1].type.kind is LakeType.STRING
    for columns in (world.columns, world.read()):
        assert where(columns, before) == {"id": "id", "n": "n__old", "name": "name"}
        assert where(columns, now) == {"id": "id", "n": "n", "name": "name"}
        assert columns.make_room(feed(), before) == ()
    world.evolve(is_streaming=True)
    assert where(world.columns, before)["n"] == "n__old", "it is not forgotten at the next look"


def test_every_type_of_a_column_has_its_field(world: World) -> None:
    now = world.source.catalog()
    last = "n__old2"  # what was text holds whatever comes later
    for kind, name in ((BUILTIN[2950], "n__old"), (TEXT, "n__old2"), (BIGINT, last)):
        before = of_type(now, "n", kind.oid)
        world.columns.make_room(feed(), before)
        assert where(world.columns, before)["n"] == name
    assert world.iceberg.now.fields[-1].name == last


def test_rows_of_a_dropped_column_whose_name_another_one_has(world: World) -> None:
    before = of_type(world.source.catalog(), "n", TEXT.oid)
    world.source.drop(2)
    world.source.add("n")
    world.evolve(is_streaming=True, type=TableType.APPEND)
    world.columns.make_room(feed(), before)
    assert [field.name for field in world.iceberg.now.fields][1:] == ["n__old", "name", "n", "n__old2"]
    assert where(world.columns, before)["n"] == "n__old2"


def test_of_a_key_there_is_one_field(world: World) -> None:
    before = of_type(world.source.catalog(), "id", TEXT.oid)
    assert world.columns.make_room(feed(), before) == ()


def test_a_source_that_nobody_knows_gets_nothing(world: World) -> None:
    assert world.columns.make_room(feed("us"), of_type(world.source.catalog(), "n", TEXT.oid)) == ()


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG, TableType.HISTORY])
def test_rows_from_before_a_column_became_text_keep_their_field(world: World, table_type: TableType) -> None:
    before = world.source.catalog()
    world.evolve(type=table_type)
    world.source.alter(2, pg_type=TEXT)
    world.source.rewrite()
    world.evolve(is_streaming=True, type=table_type)
    world.columns.make_room(feed(), before)
    assert where(world.columns, before)["n"] == "n__old"
    assert where(world.columns, world.source.catalog())["n"] == "n"


def test_rows_from_before_a_key_became_text_keep_the_key(world: World) -> None:
    before = world.source.catalog()
    world.evolve(type=TableType.APPEND)
    world.source.alter(1, pg_type=TEXT)
    world.source.rewrite()
    world.evolve(is_streaming=True, type=TableType.APPEND)
    assert where(world.columns, before)["id"] == "id"


def test_rows_of_a_column_that_fills_a_wider_field_stay_in_that(world: World) -> None:
    """It left one of its own type, for another source has that name, but has had that type all the time."""
    us = SourceTable(("id", INT), ("n", INT), ("m", BIGINT))
    world.columns.evolve(TARGET, feed("us"), us.catalog(), is_streaming=False)
    world.positions["us"] = HERE
    world.source.alter(2, name="m")
    world.evolve(is_streaming=True, type=TableType.APPEND, on_schema_change="evolve")
    assert where(world.columns, world.source.catalog())["m"] == "m"


def test_rows_of_a_type_that_no_look_has_shown_before_a_column_became_text(world: World) -> None:
    """It came as a number, and became a text, between two looks."""
    world.source.add("size", TEXT)
    now = world.source.catalog()
    before = of_type(now, "size", INT.oid)
    world.evolve(is_streaming=True, type=TableType.APPEND)
    assert where(world.columns, before)["size"] == "size", "until there is room"
    assert world.columns.make_room(feed(), before)[0].endswith("they go to size__old")
    assert where(world.columns, before)["size"] == "size__old"
    assert where(world.columns, now)["size"] == "size"
