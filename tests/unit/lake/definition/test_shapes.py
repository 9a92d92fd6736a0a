"""How a relation's columns meet a table's fields, which are found by numbers, and never by names of another time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kuvasz.errors import SchemaError
from kuvasz.lake.definition.shapes import Shapes
from kuvasz.lake.executors.expressions import Expressions
from kuvasz.model import Relation, TableType
from tests.support.lake_columns import HERE, TARGET, World, feed
from tests.support.source_table import BIGINT, TEXT, SourceTable

MASKING: dict[str, Any] = {"type": TableType.APPEND, "mask": {"name": "redact"}}


@pytest.fixture
def world() -> World:
    return World()


def test_a_shape_is_worked_out_once_until_the_schema_is_another(world: World) -> None:
    shapes, relation = world.columns.shapes, world.source.catalog()
    before = shapes.of(feed(), relation)
    assert shapes.of(feed(), relation) is before
    shapes.forget()
    assert shapes.of(feed(), relation) is not before
    assert shapes.of(feed(), relation) == before


def test_shapes_that_differ_in_nothing_but_whose_they_are_are_alike(world: World) -> None:
    shapes, relation = world.columns.shapes, world.source.catalog()
    eu, us = shapes.of(feed("eu"), relation), shapes.of(feed("us"), relation)
    assert eu != us
    assert eu.bindings is us.bindings, "of a thousand sources there is one"
    assert eu.schema is us.schema
    assert shapes.alike(eu) is shapes.alike(us) is eu
    other = shapes.of(feed("ap"), dataclasses.replace(relation, columns=relation.columns[:2]))
    assert shapes.alike(other) is other
    shapes.forget()
    assert shapes.alike(shapes.of(feed("us"), relation)) is not eu


def test_a_message_whose_columns_have_no_numbers_is_not_taken_by_its_names(world: World) -> None:
    with pytest.raises(SchemaError, match="which of its columns a message means was not found out"):
        world.columns.shapes.of(feed(), world.source.message())


def test_a_message_of_a_table_as_it_is_now_has_its_numbers(world: World) -> None:
    shape = world.columns.shapes.of_now(feed(), world.source.message())
    assert [(one.name, one.column) for one in shape.bindings] == [("id", 0), ("n", 1), ("name", 2)]
    world.source.alter(2, name="m")
    with pytest.raises(SchemaError, match=r"source eu, table public\.items: its columns were others a while ago"):
        world.columns.shapes.of_now(feed(), world.source.message())


def test_another_table_under_the_same_name_is_refused(world: World) -> None:
    other = SourceTable(("id", BIGINT))
    other.oid += 1
    with pytest.raises(SchemaError):
        world.columns.shapes.of(feed(), other.message())


def test_each_source_goes_by_what_the_map_says_for_it(world: World) -> None:
    """Groups that share a target may have other options there."""
    shapes, relation = world.columns.shapes, world.source.catalog()
    before = shapes.of(feed(), relation)
    nulls = dataclasses.replace(TARGET, out_of_range="null")
    shapes.go_by("us", nulls)
    assert (shapes.target_of("us"), shapes.target_of("eu")) == (nulls, TARGET)
    assert shapes.of(feed(), relation) == before
    shapes.go_by("eu", nulls)
    assert shapes.of(feed(), relation).out_of_range == "null"


def masked(world: World, relation: Relation) -> dict[str, str | None]:
    """Return field -> how it is hidden, of those that a message's rows fill."""
    return {one.name: one.mask for one in world.columns.shapes.of(feed(), relation).bindings if one.column >= 0}


@pytest.fixture
def hiding() -> World:
    """A table that keeps its rows, whose column `name` is masked."""
    made = World()
    made.columns.shapes = Shapes(made.definition, made.columns.known, Expressions(None))
    made.source.add("other", TEXT)
    made.positions.clear()
    made.evolve(**MASKING)
    made.positions["eu"] = HERE
    return made


def test_a_masked_column_is_hidden_in_rows_from_before_another_got_its_name(hiding: World) -> None:
    before = hiding.source.catalog()
    hiding.source.drop(3)
    hiding.source.alter(4, name="name")
    hiding.evolve(is_streaming=True, **MASKING)
    assert masked(hiding, before) == {"id": None, "n": None, "name__old": "redact", "name": "redact"}


def test_a_masked_column_is_hidden_in_rows_from_before_one_of_its_name_was_added(hiding: World) -> None:
    before = hiding.source.catalog()
    hiding.source.drop(3)
    hiding.source.add("name", TEXT)
    hiding.evolve(is_streaming=True, **MASKING)
    assert masked(hiding, before) == {"id": None, "n": None, "name__old": "redact", "other": None}
    assert masked(hiding, hiding.source.catalog()) == {"id": None, "n": None, "other": None, "name": "redact"}
