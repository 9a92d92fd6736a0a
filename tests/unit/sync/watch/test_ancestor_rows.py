"""Changes that came as an ancestor's: whose table misses them, and whose does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.state.tables import State
from kuvasz.sync.watch.ancestor_rows import AncestorRows
from kuvasz.sync.watch.last_looks import LastLooks
from tests.support.changes import ITEMS
from tests.support.scene import Scene

POSITION = 1000


class World(Scene):
    """`items` streams, and the lake has it up to `POSITION`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copy(self.items, POSITION)
        self.source_tables.set(self.items, State.STREAMING)
        looks = LastLooks(self.source_tables, lambda _: ())
        self.rows = AncestorRows(looks, self.context.troubles)

    @property
    def is_due(self) -> bool:
        return self.source_tables.look(self.items).is_resync_due


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_that_misses_them_is_taken_out_of_the_stream(world: World) -> None:
    world.rows.missed(ITEMS, POSITION)
    assert world.is_due
    assert world.source_tables.state(world.items) is State.NEW


def test_a_paused_table_misses_them_when_it_is_taken_up(world: World) -> None:
    world.source_tables.set(world.items, State.PAUSED)
    world.rows.missed(ITEMS, POSITION)
    assert world.is_due
    assert world.source_tables.state(world.items) is State.PAUSED


def test_what_the_lake_has_is_not_missed(world: World) -> None:
    world.rows.missed(ITEMS, POSITION - 1)
    world.rows.missed(dataclasses.replace(ITEMS, oid=99, table=dataclasses.replace(ITEMS.table, name="x")), 5000)
    assert not world.is_due
    assert world.source_tables.state(world.items) is State.STREAMING


def test_a_table_that_was_not_copied_misses_nothing(world: World) -> None:
    world.lake.forget("shop.items", world.source.name)
    world.rows.missed(ITEMS, 5000)
    assert not world.is_due
