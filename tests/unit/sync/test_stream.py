from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import TableError
from kuvasz.state.source_record import SourceRecordFile
from kuvasz.state.tables import State
from kuvasz.sync.stream import Stream
from tests.unit.sync.scene import Scene


class World(Scene):
    """A scene with its stream."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parked: set[str] = set()
        self.parking_from: dict[str, int] = {}
        self.unknown: set[str] = set()
        parking: Any = SimpleNamespace(has=self.parked.__contains__, begin=self.parking_from.__setitem__)
        slot: Any = SimpleNamespace(name="slot", applied_lsn=lambda: 0, applied=list)
        self.stream = Stream(
            self.context, parking, slot, SourceRecordFile(folder, self.source.name),
            follow=lambda relation, *_: relation, on_truncate=lambda *_: None,
            is_unknown=lambda spec: spec.key in self.unknown,
        )  # fmt: skip

    @property
    def held(self) -> frozenset[str]:
        return self.progress.held(self.source.name)


class Reader:
    """Goes back when told to, if it is still there."""

    def __init__(self, world: World) -> None:
        self.epoch = 3
        self._world = world
        self.is_replaced = False

    def rewind(self) -> None:
        if self.is_replaced:
            self._world.stream.reader = None
        else:
            self.epoch += 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_copied_table_follows_from_the_next_connection_on(world: World) -> None:
    world.copy(world.items)
    world.stream.begin(world.items, is_streamed=True)
    assert world.states.is_active("shop.items", world.source.name, 1)
    assert not world.states.is_active("shop.items", world.source.name, 0)
    assert not world.held


@pytest.mark.parametrize("state", [State.PAUSED, State.ERROR])
def test_a_table_that_is_stopped_holds_its_source(world: World, state: State) -> None:
    world.copy(world.items)
    world.source_tables.set(world.items, state)
    world.stream.begin(world.items, is_streamed=True)
    assert (world.source_tables.state(world.items), world.held) == (state, {"shop.items"})


def test_only_a_table_that_needs_nothing_of_the_stream_lets_go(world: World) -> None:
    world.source_tables.set(world.items, State.ERROR)
    world.stream.begin(world.items, is_streamed=True)
    assert not world.held, "it has no rows, and a copy brings all of them"
    world.unknown.add("shop.items")
    world.stream.begin(world.items, is_streamed=True)
    assert world.held == {"shop.items"}
    world.stream.begin(world.others, is_streamed=True)
    assert world.held == {"shop.items", "shop.others"}, "it is still to be copied"
    world.stream.begin(world.others, is_streamed=False)
    assert world.held == {"shop.items"}, "it is not published yet"


def test_what_is_parked_comes_first(world: World) -> None:
    world.copy(world.items)
    world.parked.add("shop.items")
    world.stream.begin(world.items, is_streamed=True)
    assert world.parking_from == {"shop.items": 1}
    assert asyncio.run(world.requests.next()) == ["shop.items"]
    assert not world.source_tables.is_streaming(world.items)
    assert world.held == {"shop.items"}


def test_the_changes_of_members_wait_at_the_source(world: World) -> None:
    member = dataclasses.replace(world.items, member="7")
    world.states.add(member.identifier, world.source_tables.name(member), "public.items_7")
    world.copy(member)
    world.parked.add("shop.items")
    world.stream.begin(member, is_streamed=True)
    assert world.source_tables.is_streaming(member)


def test_a_table_that_failed_by_another_source_does_not_follow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.copy(world.items)
    error = TableError("it was broken")
    monkeypatch.setattr(world.lake, "failure", lambda _: error)
    world.stream.begin(world.items, is_streamed=True)
    state = world.source_tables.look(world.items)
    assert (state.state, state.error, state.retry_at is not None) == (State.ERROR, error, True)
    assert world.held == {"shop.items"}


def test_leaving_a_connection_cuts_it_off(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec)
        world.stream.begin(spec, is_streamed=True)
    world.parked.add("shop.others")
    asyncio.run(world.stream.leave())
    assert world.settled == ["shop.items", "shop.others"]
    assert not world.states.is_active("shop.items", world.source.name, 1)
    assert world.states.is_active("shop.items", world.source.name, 2)
    assert world.source_tables.state(world.others) is State.NEW, "what is parked is to be replayed first"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_table_is_let_go_when_the_reader_has_gone_back(world: World, is_replaced: bool) -> None:
    async def run() -> None:
        reader: Any = Reader(world)
        reader.is_replaced = is_replaced
        world.stream.reader = reader
        await world.stream.rejoin([world.items], reader)

    world.copy(world.items)
    asyncio.run(run())
    assert world.source_tables.is_streaming(world.items)
    assert not world.states.is_active("shop.items", world.source.name, 3)
    assert world.held == ({"shop.items"} if is_replaced else frozenset())


def test_a_table_with_parked_changes_is_replayed_and_the_reader_goes_on(world: World) -> None:
    async def run() -> int:
        reader: Any = Reader(world)
        world.stream.reader = reader
        await world.stream.rejoin([world.items], reader)
        return reader.epoch

    world.copy(world.items)
    world.parked.add("shop.items")
    replayed: list[str] = []
    world.stream.replay = lambda spec: replayed.append(spec.identifier)
    assert asyncio.run(run()) == 3
    assert replayed == ["shop.items"]
    assert world.held == {"shop.items"}


def test_epochs_are_never_used_twice(world: World) -> None:
    reader = world.stream.open(["one", "two"], "7")
    assert (reader.epoch, world.stream.reader) == (0, reader)
    reader.epoch = 5
    world.stream.close(reader)
    assert world.stream.reader is None
    assert world.stream.open(["one"], "7").epoch == 5
