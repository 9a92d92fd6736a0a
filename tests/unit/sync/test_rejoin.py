from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError
from kuvasz.state.tables import State
from kuvasz.sync import rejoin
from kuvasz.sync.beside import Beside, ErrandClock
from kuvasz.sync.rejoin import Rejoin
from tests.support.scene import Scene

READER: Any = SimpleNamespace(stop=lambda: None)


class World(Scene):
    """A scene whose source answers as told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_usable, self.error, self.is_unknown, self.is_broken = True, None, False, False
        self.did: list[tuple[str, str]] = []
        for spec in self.source.tables:
            self.source_tables.tables[spec.key] = self.table(spec)
        self.parked: set[str] = set()
        self.prepared: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        stream: Any = SimpleNamespace(
            prepare=self._prepare, is_parked=lambda spec: spec.identifier in self.parked, rejoin=self._rejoin
        )
        reader: Any = SimpleNamespace(stop=lambda: self.did.append(("begin again", "")))
        self.context.current.reader = reader
        self.context.troubles.refuse = lambda spec, _: self._note("refuse", spec)  # type: ignore[method-assign]
        preparation: Any = SimpleNamespace(is_unknown=lambda _: self.is_unknown)
        replays: Any = SimpleNamespace(
            begin=lambda: None, attend=lambda *_: None, send=lambda spec: self._note("replay", spec)
        )
        setup: Any = SimpleNamespace(look=self._look)
        self.postponed: list[str] = []  #: tables that are not to be copied yet, as often as they stand here
        copies: Any = SimpleNamespace(beside=self._copy, postpone=self._postpone, compare=self._compare)
        self.under_way: set[str] = set()
        self.when_compared: Callable[[], object] = lambda: self.source_tables.gap_starts.drop(self.items)
        approach: Any = SimpleNamespace(
            is_due=lambda spec: spec.key in self.source_tables.gap_starts.following,
            is_under_way=lambda spec: spec.key in self.under_way,
        )
        parking: Any = SimpleNamespace(moving=asyncio.Lock())
        self.rejoining = Rejoin(self.context, preparation, setup, copies, parking, stream, replays, approach)

    def _note(self, what: str, spec: SourceTableSpec) -> None:
        self.did.append((what, spec.identifier))

    def _look(self, spec: SourceTableSpec) -> bool:
        self._note("look", spec)
        if self.error is not None:
            raise self.error
        return self.is_usable

    async def _postpone(self, spec: SourceTableSpec) -> bool:
        if spec.identifier not in self.postponed:
            return False
        self.postponed.remove(spec.identifier)
        return True

    async def _copy(self, spec: SourceTableSpec, _: str) -> None:
        self._note("copy", spec)
        if not self.is_broken:
            self.copy(spec)

    async def _compare(self, spec: SourceTableSpec, _: str) -> None:
        self._note("compare", spec)
        self.source_tables.set(spec, State.COPYING)
        self.when_compared()

    async def _prepare(self, spec: SourceTableSpec) -> None:
        self.prepared.append(spec.identifier)
        self.meanwhile()
        await asyncio.sleep(0.01)

    async def _rejoin(self, specs: list[SourceTableSpec], _: object) -> None:
        for spec in specs:
            self._note("rejoin", spec)
            if self.source_tables.state(spec) is State.COPYING:
                self.source_tables.set(spec, State.CATCHING_UP)

    async def _calm(self) -> None:
        """Wait until nothing has happened for ten turns of the loop; each is late where the threads get no core."""
        turns, seen = 0, 0
        while turns < 10:
            await asyncio.sleep(0.02)
            turns, seen = (turns + 1 if len(self.did) == seen else 0), len(self.did)

    def run(self, *keys: str, before: Callable[[], object] = lambda: None) -> list[tuple[str, str]]:
        """Have tables looked at anew, and return what was done about them."""

        async def both() -> None:
            self.lifetime.begin()
            before()
            for key in keys:
                self.requests.add(key)
            async with asyncio.TaskGroup() as tasks:
                beside = Beside(tasks, ErrandClock(), "kuvasz")
                self.rejoining.attend(READER, "7", beside)
                await self._calm()
                beside.end()

        asyncio.run(both())
        return self.did


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("state", [State.NEW, State.ERROR])
def test_a_table_with_rows_follows_from_its_position(world: World, state: State) -> None:
    world.copy(world.items)
    world.source_tables.set(world.items, state)
    assert world.run("shop.items") == [("look", "shop.items"), ("rejoin", "shop.items")]
    assert world.settled == ["shop.items"]
    assert world.progress.held(world.source.name) == {"shop.items"}, "until the reader has gone back"


def test_what_is_parked_of_a_table_comes_first_and_keeps_no_other_waiting(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec)
    world.parked.add("shop.items")
    done = world.run("shop.items", "shop.others")
    assert done[2:] == [("replay", "shop.items"), ("rejoin", "shop.others")]
    assert world.prepared == ["shop.items", "shop.others"]


def test_a_table_without_rows_is_copied_first(world: World) -> None:
    steps = ["look", "copy", "rejoin"]
    assert world.run("shop.items") == [(step, "shop.items") for step in steps]


def test_new_tables_of_a_connection_are_copied_and_those_of_the_last_one_forgotten(world: World) -> None:
    world.rejoining.begin([world.items])

    def before() -> None:
        world.rejoining.begin([world.others])

    assert world.run(before=before) == [("copy", "shop.others"), ("rejoin", "shop.others")]


def test_a_table_that_waits_for_its_hours_keeps_no_other_waiting_and_is_copied_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejoin, "_LOOK_S", 0.05)
    world.postponed = ["shop.items"] * 2
    world.rejoining.begin([world.items, world.others])
    done = world.run("shop.items")
    assert [what for what in done if what[0] == "copy"] == [("copy", "shop.others"), ("copy", "shop.items")]
    assert done.count(("rejoin", "shop.items")) == 1


def test_a_copy_that_failed_brings_nothing_back(world: World) -> None:
    world.is_broken = True
    assert world.run("shop.items") == [("look", "shop.items"), ("copy", "shop.items")]


@pytest.mark.parametrize("state", [State.COPYING, State.CATCHING_UP, State.STREAMING])
def test_a_table_that_is_busy_is_left_alone(world: World, state: State) -> None:
    world.source_tables.set(world.items, state)
    assert world.run("shop.items") == []


def test_a_paused_table_waits(world: World) -> None:
    world.states.pause("shop.items", world.source.name)
    assert world.run("shop.items") == []


def test_a_table_that_streams_is_taken_out_to_be_copied_again(world: World) -> None:
    world.source_tables.set(world.items, State.STREAMING)
    world.source_tables.resync(world.items, is_due=True)
    world.is_usable = False
    assert world.run("shop.items") == [("look", "shop.items")]
    assert world.source_tables.state(world.items) is State.NEW


def test_a_table_is_copied_again_if_that_is_asked_for_while_it_is_brought_back(world: World) -> None:
    world.rejoining.begin([world.items])
    asked = [True]

    async def copy(spec: SourceTableSpec, _: str) -> None:
        world._note("copy", spec)
        world.source_tables.set(spec, State.COPYING)
        world.copy(spec)

    def resync() -> None:
        if asked:
            asked.pop()
            world.source_tables.resync(world.items, is_due=True)
            world.requests.add("shop.items")

    world.rejoining._copies.beside = copy  # type: ignore[assignment,method-assign]
    world.meanwhile = resync
    done = world.run()
    assert ("look", "shop.items") in done[done.index(("copy", "shop.items")) :]


def test_a_table_paused_while_it_is_copied_stays_so(world: World) -> None:
    world.rejoining.begin([])

    def before() -> None:
        world.rejoining.begin([world.items])
        world.states.pause("shop.items", world.source.name)
        world.source_tables.set(world.items, State.COPYING)

    assert world.run(before=before) == [("copy", "shop.items")]
    assert world.source_tables.state(world.items) is State.PAUSED


def test_a_source_that_does_not_answer_refuses_the_table(world: World) -> None:
    world.error = SourceError("it is gone")
    assert world.run("shop.items") == [("look", "shop.items"), ("refuse", "shop.items")]


@pytest.mark.parametrize("is_copying", [False, True])
def test_a_new_connection_finds_out_whether_inserts_may_be_named_but_tears_no_copy(
    world: World, is_copying: bool
) -> None:
    world.copy(world.items)
    world.source_tables.tables["shop.items"] = world.table(world.items, can_update=False)
    if is_copying:
        world.source_tables.set(world.others, State.COPYING)
    begun = [] if is_copying else [("begin again", "")]
    assert world.run("shop.items") == [("look", "shop.items"), *begun]


def test_a_table_that_is_wanted_anew_while_it_is_copied_is_looked_at_again(world: World) -> None:
    world.is_usable = False

    def before() -> None:
        world.rejoining.begin([world.items])
        world.source_tables.resync(world.items, is_due=True)

    assert world.run(before=before) == [("copy", "shop.items"), ("look", "shop.items")]


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_table_whose_copy_counts_for_nothing_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, is_paused: bool
) -> None:
    """Its server was started anew meanwhile, or a person wants another copy."""
    copy, copied = world._copy, 0

    async def then_due(spec: SourceTableSpec, system_id: str) -> None:
        nonlocal copied
        copied += 1
        world.source_tables.set(spec, State.COPYING)
        await copy(spec, system_id)
        if copied == 1:
            if is_paused:
                world.states.pause(spec.identifier, world.source.name)
            world.source_tables.resync(spec, is_due=True)

    monkeypatch.setattr(world.rejoining._copies, "beside", then_due)
    done = world.run(before=lambda: world.rejoining.begin([world.items]))
    assert world.source_tables.state(world.items) is (State.PAUSED if is_paused else State.NEW)
    assert (("look", "shop.items") in done) is not is_paused


@pytest.fixture
def due(world: World) -> World:
    """`items` follows, and is to be compared."""
    world.copy(world.items)
    world.source_tables.set(world.items, State.STREAMING)
    world.source_tables.gap_starts.follow(world.items, 900)
    return world


def test_a_table_that_follows_is_compared_as_it_is_and_goes_on(due: World) -> None:
    assert due.run("shop.items", "shop.items") == [("compare", "shop.items"), ("rejoin", "shop.items")]
    assert due.settled == [], "it is not taken out of the stream before it is its turn"


def test_a_new_connection_has_those_compared_that_were_to_be(due: World) -> None:
    done = due.run(before=lambda: due.rejoining.begin([]))
    assert done == [("compare", "shop.items"), ("rejoin", "shop.items")]


def test_a_comparison_that_failed_is_tried_again_later_and_the_table_follows_until_then(
    due: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[str] = []
    monkeypatch.setattr(due.requests, "send_later", lambda spec: later.append(spec.identifier))
    due.when_compared = lambda: None
    assert due.run("shop.items") == [("compare", "shop.items"), ("rejoin", "shop.items")]
    assert later == ["shop.items"]


def test_a_table_that_is_being_compared_is_moved_by_nobody_else(due: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoin, "_LOOK_S", 0.05)
    due.source_tables.set(due.items, State.NEW)
    due.under_way.add("shop.items")
    steps = ["over", "look", "rejoin", "compare", "rejoin"]
    due.rejoining._stream.rejoin = _following(due)  # type: ignore[method-assign]
    done = due.run("shop.items", before=lambda: _later(due, due.under_way.clear))
    assert done == [(step, "shop.items") for step in steps]


def _later(world: World, change: Callable[[], None]) -> None:
    def then() -> None:
        world._note("over", world.items)
        change()

    asyncio.get_running_loop().call_later(0.1, then)


def _following(world: World) -> Any:
    async def rejoin(specs: list[SourceTableSpec], _: object) -> None:
        for spec in specs:
            world._note("rejoin", spec)
            world.source_tables.set(spec, State.CATCHING_UP)

    return rejoin


def test_what_is_parked_of_a_table_comes_before_its_comparison(due: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoin, "_LOOK_S", 0.05)
    due.parked.add("shop.items")
    done = due.run("shop.items", before=lambda: _later(due, due.parked.clear))
    assert done == [(step, "shop.items") for step in ("over", "compare", "rejoin")]


@pytest.mark.parametrize("is_paused", [True, False])
def test_what_is_wanted_of_a_table_while_it_is_compared_comes_behind_that(due: World, *, is_paused: bool) -> None:
    def meanwhile() -> None:
        due.source_tables.gap_starts.drop(due.items)
        if is_paused:
            due.states.pause("shop.items", due.source.name)
        else:
            due.source_tables.resync(due.items, is_due=True)
            due.is_usable = False

    due.when_compared = meanwhile
    done = due.run("shop.items")
    assert done == [("compare", "shop.items")] + [("look", "shop.items")] * (not is_paused)
    assert due.source_tables.state(due.items) is (State.PAUSED if is_paused else State.NEW)


def test_a_copy_of_all_that_a_person_wants_comes_before_a_comparison(due: World) -> None:
    due.source_tables.resync(due.items, is_due=True)
    due.is_usable = False
    assert due.run("shop.items") == [("look", "shop.items")]
