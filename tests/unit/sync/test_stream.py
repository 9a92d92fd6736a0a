from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import TableError
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.route.row_limit import RowLimit
from kuvasz.source.catalog.look import Look
from kuvasz.state.tables import State, TableStates
from kuvasz.sync import stream
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.stream import Stream
from kuvasz.sync.watch.last_looks import LastLooks
from tests.support.scene import Scene


class World(Scene):
    """A scene with its stream."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parked: set[str] = set()
        self.parking_from: dict[str, int] = {}
        self.unknown: set[str] = set()
        parking: Any = SimpleNamespace(has=self.parked.__contains__, begin=self._begin_parking)
        slot: Any = SimpleNamespace(name="slot", applied_lsn=lambda: 0, copied=list, applied=list)
        messages: Any = SimpleNamespace(
            announce=lambda _: None, follow=lambda relation, *_: relation, truncated=lambda *_: None
        )
        rows: Any = SimpleNamespace(missed=lambda *_: None)
        preparation: Any = SimpleNamespace(is_unknown=lambda spec: spec.key in self.unknown)
        record = self.shared.state.record(self.source.name)
        limit = RowLimit(1000, lambda *_: False)
        self.looks = LastLooks(self.source_tables, lambda _: ())
        self.context.pasts.whenever_given_up(lambda _: self.looks.distrust())
        self.stream = Stream(self.context, parking, slot, record, messages, rows, limit, preparation)

    def _begin_parking(self, spec: SourceTableSpec, epoch: int) -> None:
        self.parking_from[spec.identifier] = epoch

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
            self._world.context.current.reader = None
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
    assert world.requests.rest() == ["shop.items"]
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
    monkeypatch.setattr(world.lake, "failure", lambda *_: error)
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


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_table_whose_copy_ended_with_its_connection_is_not_called_copied(world: World, is_paused: bool) -> None:
    """Whoever is asked for it again would leave it to a copy that nobody makes."""
    world.source_tables.set(world.items, State.COPYING)
    if is_paused:
        world.states.pause("shop.items", world.source.name)
    asyncio.run(world.stream.leave())
    assert world.source_tables.state(world.items) is (State.PAUSED if is_paused else State.NEW)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_table_is_let_go_when_the_reader_has_gone_back(world: World, is_replaced: bool) -> None:
    async def run() -> None:
        reader: Any = Reader(world)
        reader.is_replaced = is_replaced
        world.context.current.reader = reader
        await world.stream.prepare(world.items)
        await world.stream.rejoin([world.items], reader)

    world.copy(world.items)
    asyncio.run(run())
    assert world.source_tables.is_streaming(world.items)
    assert not world.states.is_active("shop.items", world.source.name, 3)
    assert world.held == ({"shop.items"} if is_replaced else frozenset())


def test_a_table_that_is_to_follow_holds_its_source_and_has_its_failure_behind_it(world: World) -> None:
    async def run() -> None:
        await world.stream.prepare(world.items)

    world.copy(world.items)
    world.lake._tables["shop.items"].era = WriteEra(accepted={}, error=TableError("it was broken"))
    asyncio.run(run())
    assert (world.settled, world.lake.failure("shop.items"), world.held) == (["shop.items"], None, {"shop.items"})


@pytest.mark.parametrize("way", ["begin", "rejoin", "leave"])
def test_a_table_that_is_stopped_as_it_is_let_follow_stays_so(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Another thread's stop falls between the look at the state and its change."""
    states, name, error = world.states, world.source.name, TableError("it was broken")

    def stop() -> None:
        world.source_tables.hold(world.items)
        states.set("shop.items", name, State.ERROR, error)

    async def run() -> None:
        reader: Any = Reader(world)
        world.context.current.reader = reader
        if way == "begin":
            world.stream.begin(world.items, is_streamed=True)
        elif way == "rejoin":
            await world.stream.rejoin([world.items], reader)
        else:
            await world.stream.leave()

    world.copy(world.items)
    if way == "leave":
        states.activate("shop.items", name, 1)
    for change in ("activate", "go_on"):
        _stop_before(monkeypatch, change, stop)
    asyncio.run(run())
    state = world.source_tables.look(world.items)
    assert (state.state, state.error, world.held) == (State.ERROR, error, {"shop.items"})


def test_what_interrupts_a_table_that_is_let_follow_holds_it_no_longer_than_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks at it anew finds one that follows, and leaves it alone: nobody would undo the hold."""

    def interrupt() -> None:
        world.source_tables.hold(world.items)
        world.source_tables.set(world.items, State.NEW)

    async def run() -> None:
        reader: Any = Reader(world)
        world.context.current.reader = reader
        await world.stream.rejoin([world.items], reader)

    world.copy(world.items)
    _stop_before(monkeypatch, "activate", interrupt)
    asyncio.run(run())
    assert (world.source_tables.is_streaming(world.items), world.held) == (True, frozenset())


def _stop_before(monkeypatch: pytest.MonkeyPatch, change: str, stop: Callable[[], None]) -> None:
    original = getattr(TableStates, change)

    def stopped(*arguments: Any, **options: Any) -> Any:
        stop()
        return original(*arguments, **options)

    monkeypatch.setattr(TableStates, change, stopped)


def test_epochs_are_never_used_twice(world: World) -> None:
    reader = world.stream.open(["one", "two"], "7")
    assert (reader.epoch, world.context.current.reader) == (0, reader)
    reader.epoch = 5
    world.stream.close(reader)
    assert world.context.current.reader is None
    assert world.stream.open(["one"], "7").epoch == 5


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_a_table_that_fails_as_it_is_let_go_holds_its_source(
    world: World, monkeypatch: pytest.MonkeyPatch, begins: bool, is_before: bool
) -> None:
    """A thread that stops the table may have held the source long ago, and change its state at any moment."""
    world.copy(world.items)
    name, release = world.source.name, world.states.release
    reader: Any = Reader(world)

    def fail() -> None:
        world.source_tables.set(world.items, State.ERROR, TableError("it is broken"))

    def released(*arguments: Any) -> bool:
        if is_before:
            fail()
        done = release(*arguments)
        if not is_before:
            fail()
        return done

    async def rejoin() -> None:
        world.context.lifetime.begin()
        world.context.current.reader = reader
        await world.stream.rejoin([world.items], reader)

    world.source_tables.hold(world.items)
    monkeypatch.setattr(world.states, "release", released)
    if begins:
        world.stream.begin(world.items, is_streamed=True)
    else:
        asyncio.run(rejoin())
    assert (world.states.get("shop.items", name).state, world.held) == (State.ERROR, {"shop.items"})


def test_a_source_that_ends_keeps_the_hold_of_a_table_that_was_to_rejoin(world: World) -> None:
    """The reader has not gone back: what came on this connection was left out for the table."""
    name, reader = world.source.name, Reader(world)
    reader.rewind = lambda: None  # type: ignore[method-assign]

    async def run() -> None:
        world.context.lifetime.begin()
        world.context.current.reader = reader  # type: ignore[assignment]
        world.progress.restarted(name, reader.epoch)
        world.progress.received(name, 100)
        world.copy(world.items)
        await world.stream.prepare(world.items)
        world.progress.received(name, 90000)
        rejoining = asyncio.ensure_future(world.stream.rejoin([world.items], reader))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        world.context.lifetime.end()
        await rejoining

    asyncio.run(run())
    assert (world.held, world.progress.confirmable(name)) == ({"shop.items"}, 100)


def test_what_was_seen_of_an_old_primary_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby took over, and went on otherwise behind LSN 100."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("kuvasz.sync.stream.Reader", lambda *_, **named: given.update(named) or SimpleNamespace())
    table, starts = world.table(world.items), world.source_tables.gap_starts
    world.looks.begin([(world.items, table)], 500)
    starts.prove(Evidence.FILE, world.items, 490)
    world.stream.open(["kuvasz_shop"], "7")
    given["start"].on_rewound(100)
    assert world.looks.get(table.relation.oid) == Look(lsn=0, table=table)
    assert starts.proved_lsn(Evidence.FILE, [world.items]) == 100


def test_a_thread_that_routes_is_waited_for_when_the_life_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(stream, "Reader", lambda *_, **options: made.append(options) or SimpleNamespace())
    world.stream.open([], "7001")
    assert made[0]["on_left"] == world.context.lifetime.leave
