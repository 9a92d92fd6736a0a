"""What is known of the columns of all sources of a table."""

from __future__ import annotations

import pytest

from tests.support.lake_columns import World


@pytest.fixture
def world() -> World:
    return World()


def test_names_that_columns_had_lead_to_their_fields(world: World) -> None:
    assert world.columns.known.former_names() == {}
    world.source.alter(2, name="size")
    world.evolve(is_streaming=True)
    world.source.alter(2, name="width")
    world.evolve(is_streaming=True)
    assert world.columns.known.former_names() == {"n": "width", "size": "width"}


def test_others_fill_their_fields_under_names_of_their_own(world: World) -> None:
    known = world.columns.known
    number = known["eu"].fields[world.source.number("n")]
    assert known.others("us").names["n"] == {number}
    assert number in known.others("us").fields
    assert not known.others("eu").fields
    assert known.others("us").have_elsewhere("name", number), "name is another field there"
    assert not known.others("us").have_elsewhere("n", number)


def test_others_have_values_where_a_column_was(world: World) -> None:
    number = world.columns.known["eu"].fields[world.source.number("n")]
    assert number not in world.columns.known.others("us").kept
    world.source.drop(2)
    world.evolve(is_streaming=True)
    others = world.columns.known.others("us")
    assert (number in others.kept, number in others.fields) == (True, False)
    assert others.have_elsewhere("name", number)
