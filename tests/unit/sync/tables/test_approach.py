"""The way of a table up to a snapshot; what is applied meanwhile is the workers' business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import TableError
from kuvasz.state.tables import State
from kuvasz.sync.tables.approach import Approach
from tests.support.scene import Scene

S = 5000


class World(Scene):
    """`items` follows, and is to be compared; a reader that goes back has everything of the stream again at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copy(self.items)
        self.source_tables.gap_starts.follow(self.items, 1000)
        self.then: Callable[[], object] = lambda: None  #: when the reader has gone back
        self.reader: Any = SimpleNamespace(epoch=1, rewind=self._rewind)
        self.context.current.reader = self.reader
        self.is_parked = False
        self.activated: list[tuple[int, int | None]] = []
        self.approach = Approach(self.context, activate=self._activate, is_parked=lambda _: self.is_parked)
        self._activate(self.items, 1)
        self.activated.clear()

    def _activate(self, spec: SourceTableSpec, epoch: int, end: int | None = None) -> bool:
        self.activated.append((epoch, end))
        return self.states.activate(spec.identifier, self.source.name, epoch, end)

    def _rewind(self) -> None:
        self.reader.epoch += 1
        self.progress.restarted(self.source.name, self.reader.epoch)
        self.then()

    def run(self) -> tuple[bool, bool, State]:
        """Return whether it was begun, whether it came to its snapshot, and its state then."""

        async def both() -> tuple[bool, bool, State]:
            with self.approach.begun(self.items) as is_begun:
                assert self.approach.is_under_way(self.items) == is_begun
                has_come = is_begun and await self.approach.up_to(self.items, S)
                return is_begun, has_come, self.source_tables.state(self.items)

        result = asyncio.run(asyncio.wait_for(both(), 10))
        assert not self.approach.is_under_way(self.items)
        return result


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_stands_still_where_the_snapshot_is(world: World) -> None:
    name = world.source.name
    world.then = lambda: world.progress.received(name, S)
    assert world.run() == (True, True, State.COPYING)
    assert world.activated == [(2, S)]
    assert world.progress.held(name) == {"shop.items"}, "it is heard again from where it stands"
    assert world.settled == ["shop.items"] * 2, "before it goes on, and before it is compared"
    assert world.states.end("shop.items", name, 2) == S


def test_what_is_not_in_the_lake_yet_is_waited_for(world: World) -> None:
    name = world.source.name

    def go_back() -> None:
        world.progress.routed(name, 0, S - 10)
        world.progress.received(name, S)
        asyncio.get_running_loop().call_later(0.2, durable)

    def durable() -> None:
        assert world.source_tables.state(world.items) is State.CATCHING_UP
        world.progress.durable(name, 0, S - 10, world.reader.epoch)

    world.then = go_back
    assert world.run() == (True, True, State.COPYING)


def test_a_table_that_does_not_follow_is_left_alone(world: World) -> None:
    world.source_tables.set(world.items, State.NEW)
    assert world.run() == (False, False, State.NEW)


def test_a_table_that_lacks_what_is_parked_of_it_goes_on_having_that(world: World) -> None:
    world.is_parked = True
    assert world.run() == (False, False, State.CATCHING_UP)


def test_a_table_that_is_stopped_on_its_way_comes_to_no_snapshot(world: World) -> None:
    world.then = lambda: world.source_tables.set(world.items, State.ERROR, TableError("a value does not fit"))
    assert world.run() == (True, False, State.ERROR)


@pytest.mark.parametrize("is_reading", [True, False])
def test_nothing_is_given_to_a_table_that_is_paused_or_whose_source_is_not_read(
    world: World, *, is_reading: bool
) -> None:
    if is_reading:
        world.states.pause("shop.items", world.source.name)
        assert world.run() == (False, False, State.PAUSED)
        return
    world.context.current.reader = None
    assert world.run() == (True, False, State.COPYING)


def test_a_table_without_rows_is_to_be_copied_not_compared(world: World) -> None:
    assert world.approach.is_due(world.items)
    assert not world.approach.is_due(world.others)
    world.lake.forget("shop.items", world.source.name)
    assert not world.approach.is_due(world.items)
