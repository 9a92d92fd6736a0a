"""One source that begins, fails, waits and begins again; its parts do as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz import backoff
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import (
    ConfigError,
    KuvaszError,
    LakeError,
    SlotLost,
    SourceError,
    SourceLocked,
    SourceReplaced,
    TableError,
)
from kuvasz.state.tables import State
from kuvasz.sync import source_sync
from kuvasz.sync.beside import Beside
from kuvasz.sync.context import shared
from kuvasz.sync.source_setup import Start
from kuvasz.sync.source_sync import SourceSync
from tests.support.scene import Scene


class Reader:
    """Reads until it is stopped, or ends as told."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._stopped = asyncio.Event()
        self.is_quiesced = False

    async def arrange(self) -> None: ...

    async def run(self) -> None:
        self._parts.done.append("read")
        self._parts.is_reading.set()
        if self._parts.endings:
            ending = self._parts.endings.pop(0)
            if ending is not None:
                raise ending
            return
        await self._stopped.wait()

    def quiesce(self) -> None:
        self.is_quiesced = True

    def stop(self) -> None:
        self._stopped.set()


class Parts:
    """Those of a source: each notes what is done."""

    def __init__(self, world: World) -> None:
        self.world, self.done = world, world.done
        self.endings: list[BaseException | None] = []
        self.starts: list[BaseException] = []
        self.snapshot: Any = None
        self.locked: list[str] = []
        self.timed: list[str] = []  #: tables that are copied in some hours alone
        self.is_reading = asyncio.Event()
        self.begun: dict[str, bool] = {}
        self.new: list[list[str]] = []
        self.record = SimpleNamespace(close=lambda: self.done.append("record closed"))
        self.logs = SimpleNamespace(is_replaying=False)
        self.resets = SimpleNamespace(is_replaced=False, forget_all=lambda: self.done.append("forgotten"))
        self.slot = SimpleNamespace(name="kuvasz_shop", drop=lambda: self.done.append("slot dropped"))
        self.setup = SimpleNamespace(target_lsn=77, start=self._start)
        self.upgrades: list[bool | KuvaszError] = []  #: what comes of an attempt to take another cluster over
        self.upgrade = SimpleNamespace(take_over=self._take_over)
        hours = SimpleNamespace(is_beside=lambda spec: spec.identifier in self.timed)
        server = SimpleNamespace(snapshot=lambda made, _: made)
        self.copies = SimpleNamespace(first=self._copy, under=lambda taken, _: taken, hours=hours, server=server)
        self.stream = SimpleNamespace(leave=self._leave, begin=self._begin, open=self._open, close=self._close)
        self.rejoin = SimpleNamespace(begin=self._rejoin, attend=lambda *given: self._wait(given[-1]))
        self.replays = SimpleNamespace()
        self.parking = SimpleNamespace(watch=lambda *given: self._wait(given[-1]))
        self.last_looks = 0
        self.watches = SimpleNamespace(begin=lambda *given: self._wait(given[-1]), end=self._look_last)

    def _start(self) -> Start:
        self.done.append("start")
        if self.starts:
            raise self.starts.pop(0)
        tables = tuple((spec, self.world.table(spec)) for spec in self.world.streamed)
        return Start(tables=tables, snapshot=self.snapshot, publications=("p",), is_waiting=False, system_id="7")

    def _take_over(self) -> bool:
        self.done.append("taken over")
        found = self.upgrades.pop(0) if self.upgrades else False
        if isinstance(found, KuvaszError):
            raise found
        return found

    async def _copy(self, spec: SourceTableSpec, *_: object) -> None:
        if spec.identifier in self.locked:
            raise SourceLocked("somebody has locked it")
        self.done.append(f"copied {spec.identifier}")
        self.world.copy(spec)

    async def _leave(self) -> None:
        self.done.append("left")

    def _begin(self, spec: SourceTableSpec, *, is_streamed: bool) -> None:
        self.begun[spec.identifier] = is_streamed

    def _open(self, *_: object) -> Reader:
        reader = Reader(self)
        current: Any = reader
        self.world.sync._context.current.reader = current
        return reader

    def _close(self, _: object) -> None:
        self.world.sync._context.current.reader = None
        self.done.append("closed")

    def _rejoin(self, new: list[SourceTableSpec]) -> None:
        self.new.append([spec.identifier for spec in new])

    def _look_last(self) -> None:
        assert self.world.sync._lifetime.is_ending
        self.last_looks += 1

    def _wait(self, beside: Beside) -> None:
        async def wait() -> None:
            await asyncio.Event().wait()

        assert beside.start("wait", wait)


class World(Scene):
    """A scene whose one source is kept replicated."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.done: list[str] = []
        self.streamed = list(self.source.tables)
        self.sync = SourceSync(self.source, self.shared)
        self.parts = Parts(self)
        parts: Any = self.parts
        self.sync._parts = parts

    def live(self, until: Callable[[], bool] | None = None) -> BaseException | None:
        """Live until something is so, then stop as a process does; return what it ended by."""
        return asyncio.run(self._live(until or self.parts.is_reading.is_set))

    async def _live(self, until: Callable[[], bool]) -> BaseException | None:
        task = asyncio.ensure_future(self.sync.run())
        async with asyncio.timeout(30):
            while not until() and not task.done():  # noqa: ASYNC110 (a condition, not an event)
                await asyncio.sleep(0.001)
            self.sync.quiesce()
            self.sync.stop()
            await asyncio.wait([task])
        return task.exception()

    def reads(self) -> int:
        return self.done.count("read")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing."""
    monkeypatch.setattr(shared, "_DEATH_S", 0.01)
    monkeypatch.setattr(source_sync, "_WAIT_S", 0.001)
    monkeypatch.setattr(source_sync, "FIRST_S", 0.001)
    waits = SimpleNamespace(next_s=lambda _=0.5: 0.001, reset=lambda: None)
    monkeypatch.setattr(source_sync, "Backoff", lambda **_: waits)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_source_is_looked_at_and_streams_until_it_is_stopped(world: World) -> None:
    world.copy(world.items)
    world.streamed = [world.items]
    assert world.live() is None
    assert world.done == ["left", "start", "read", "closed", "record closed"]
    assert world.parts.last_looks == 1, "however often it was told to end"
    assert world.parts.begun == {"shop.items": True, "shop.others": False}
    assert world.sync.has_started


def test_tables_without_rows_are_copied_beside_the_stream_unless_they_are_paused(world: World) -> None:
    world.copy(world.items)
    world.live()
    assert world.parts.new == [["shop.others"]]


def test_a_paused_table_is_not_copied(world: World) -> None:
    world.states.pause("shop.items", "shop")
    world.live()
    assert world.parts.new == [["shop.others"]]


def test_a_new_slot_s_snapshot_is_copied_before_anything_streams(world: World) -> None:
    world.parts.snapshot = contextlib.nullcontext()
    world.live()
    assert world.done[2:5] == ["copied shop.items", "copied shop.others", "read"]
    assert world.parts.new == [[]], "no table is left for a copy of its own"


@pytest.mark.parametrize("why", ["locked", "timed"])
def test_a_table_that_waits_is_copied_beside_the_stream_and_the_others_with_the_slot_s_snapshot(
    world: World, why: str
) -> None:
    world.parts.snapshot = contextlib.nullcontext()
    setattr(world.parts, why, ["shop.items"])
    world.live()
    assert world.done[2:4] == ["copied shop.others", "read"]
    assert world.parts.new == [["shop.items"]]
    assert world.source_tables.state(world.items) is State.NEW


def test_what_fails_is_tried_again_and_shown_meanwhile(world: World) -> None:
    world.parts.starts = [SourceError("no route"), LakeError("no catalog")]
    seen: list[tuple[str, bool]] = []

    def has_read() -> bool:
        if world.sync.error is not None and world.sync.retry_at is not None:
            seen.append((world.sync.error.message, world.sync.reader is None))
        return world.reads() > 0

    assert world.live(has_read) is None
    assert dict.fromkeys(seen) == dict.fromkeys([("no route", True), ("no catalog", True)])
    assert world.sync.error is None
    assert world.sync.retry_at is None


def test_what_is_given_up_for_a_stop_has_not_failed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def start() -> Start:
        begun.set()
        assert stopped.wait(10)
        raise SourceError("stopped while copying")

    world.parts.setup.start = start
    stop = world.sync.stop
    world.sync.stop = lambda: (stop(), stopped.set())  # type: ignore[method-assign]
    assert world.live(begun.is_set) is None
    assert [record.__dict__.get("event") for record in caplog.records] == []


def test_a_stream_that_ends_is_begun_anew(world: World) -> None:
    world.parts.endings = [None, SourceError("the server went")]
    world.live(lambda: world.reads() == 3)
    assert world.done.count("start") == 3
    assert world.done.count("closed") == 3


@pytest.mark.parametrize("lasted", [True, False])
def test_after_it_went_well_for_long_the_waits_begin_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, *, lasted: bool
) -> None:
    resets: list[bool] = []
    waits = SimpleNamespace(next_s=lambda _: 0.001, reset=lambda: resets.append(True))
    monkeypatch.setattr(source_sync, "Backoff", lambda **_: waits)
    monkeypatch.setattr(source_sync, "LAST_S", -1.0 if lasted else 60.0)
    world.parts.endings = [SourceError("the server went")]
    world.live(lambda: world.reads() == 2)
    assert bool(resets) is lasted


def test_a_map_that_does_not_fit_ends_it(world: World) -> None:
    error = ConfigError("no such column")
    world.parts.starts = [error]
    assert world.live(lambda: False) is error
    assert world.done[-1] == "record closed"


def test_of_several_failures_the_most_telling_counts(world: World) -> None:
    error = ConfigError("no such column")
    world.parts.endings = [BaseExceptionGroup("", [SourceError("the server went"), error])]
    assert world.live(lambda: False) is error


def test_a_mistake_of_ours_is_this_sources_alone(world: World) -> None:
    world.parts.endings = [ExceptionGroup("", [SourceError("beside it"), ZeroDivisionError("a slip")])]
    errors: set[str] = set()

    def has_read_again() -> bool:
        if world.sync.error is not None:
            errors.add(str(world.sync.error))
        return world.reads() > 1

    assert world.live(has_read_again) is None
    hint = "this is a mistake in kuvasz: report it with the log; it is tried again"
    assert errors == {f"source shop: ZeroDivisionError: a slip\nhint: {hint}"}


def test_when_the_lake_died_the_process_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.lake, "why_dead", lambda: LakeError("spark's jvm ended"))
    error = ZeroDivisionError("of a jvm that is gone")
    world.parts.endings = [error]
    assert isinstance(world.live(lambda: False), BaseExceptionGroup)


def test_a_lost_stream_waits_for_a_person(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec)
    world.parts.starts = [SlotLost("the slot is gone")]
    world.live(lambda: world.sync.is_lost)
    assert world.done.count("start") == 1
    assert "forgotten" not in world.done
    assert isinstance(world.sync.error, SlotLost)


def test_a_person_who_wants_all_copied_has_it_begin_again(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec)
    world.parts.starts = [SlotLost("the slot is gone")]

    def asked() -> bool:
        if world.sync.is_lost:
            world.source_tables.resync(world.items, is_due=True)
            if world.done.count("start") == 1:
                assert "forgotten" not in world.done, "one table does not speak for the other"
            world.source_tables.resync(world.others, is_due=True)
        return world.reads() > 0

    assert world.live(asked) is None
    assert world.done[2:6] == ["left", "forgotten", "slot dropped", "start"]
    assert (world.sync.is_lost, world.sync.error) == (False, None)


def test_to_mend_what_differs_is_not_to_copy_all(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec)
        world.source_tables.resync(spec, is_due=True, is_repair=True)
    world.parts.starts = [SlotLost("the slot is gone")]
    world.live(lambda: world.sync.is_lost)
    assert "forgotten" not in world.done


@pytest.mark.parametrize("on_slot_lost", ["resync", "repair"])
def test_the_map_may_say_that_it_begins_again_by_itself(tmp_path: Path, on_slot_lost: str) -> None:
    world = World(tmp_path, on_slot_lost=on_slot_lost)
    world.parts.starts = [SourceReplaced("another cluster answers")]
    world.live(lambda: world.reads() > 0)
    assert world.done[2:7] == ["taken over", "left", "forgotten", "slot dropped", "start"]
    assert world.parts.resets.is_replaced
    assert world.parts.setup.target_lsn is None, "an end of another past is never reached"
    assert world.done.count("forgotten") == 1


def test_a_stream_that_is_lost_in_each_copy_leaves_its_server_alone_for_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with less WAL that the server keeps for slots than is written while tables are copied."""
    monkeypatch.setattr(source_sync, "Backoff", backoff.Backoff)
    world = World(tmp_path, on_slot_lost="resync")
    world.parts.endings = [SlotLost("its WAL was removed", hint="start over") for _ in range(4)]
    slept, shown = [], []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        shown.append((world.sync.error and world.sync.error.hint, world.sync.retry_at))
        await asyncio.sleep(0)

    monkeypatch.setattr(world.sync._lifetime, "sleep", sleep)
    world.live(lambda: world.reads() == 5)
    assert world.done.count("forgotten") == 4
    assert [seconds for seconds in slept if seconds != source_sync.FIRST_S] == [0.5, 1.0, 2.0]
    waits = [(hint, at) for hint, at in shown if at is not None]
    assert len(waits) == 3
    assert all("max_slot_wal_keep_size" in hint for hint, _ in waits if hint is not None)
    told = [vars(one) for one in caplog.records if vars(one).get("event") == "slot_lost" and "wait_s" in vars(one)]
    assert [one["wait_s"] for one in told] == [0.5, 1.0, 2.0]
    assert (world.sync.error, world.sync.retry_at) == (None, None)


def test_who_is_left_alone_is_not_hopeless_though_it_never_got_over_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where two servers answer by turns: a process all of whose sources are hopeless ends."""
    world = World(tmp_path, on_slot_lost="resync")
    world.parts.starts = [SourceReplaced("another cluster answers") for _ in range(3)]
    shown = []

    async def sleep(_: float) -> None:
        shown.append((world.sync.error, world.sync.retry_at is not None))
        await asyncio.sleep(0)

    monkeypatch.setattr(world.sync._lifetime, "sleep", sleep)
    world.live(lambda: world.reads() > 0)
    assert (None, True) in shown
    assert {error for error, _ in shown} == {None}


def test_as_long_as_it_was_copied_for_nothing_its_server_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(source_sync.time, "monotonic", lambda: now[0])
    losses = source_sync._SlotBackoff()
    now[0] = 900.0
    assert losses.wait_s(100.0, None, is_anew=False) == 0.0, "it streamed for days"
    assert losses.wait_s(100.0, 899.0, is_anew=True) == 800.0
    assert losses.wait_s(100.0, 860.0, is_anew=True) == 0.0, "it streamed again meanwhile"
    now[0] = 90_000.0
    assert losses.wait_s(100.0, None, is_anew=True) == 3600.0


def test_what_pg_upgrade_has_made_is_gone_on_with(tmp_path: Path) -> None:
    world = World(tmp_path, on_slot_lost="repair")
    world.parts.starts = [SourceReplaced("another cluster answers"), SourceReplaced("another cluster answers")]
    world.parts.upgrades = [SourceError("no route"), True]
    world.live(lambda: world.reads() > 0)
    assert "forgotten" not in world.done
    assert world.done.count("taken over") == 2
    assert world.sync.error is None


def test_a_cluster_that_is_not_gone_on_with_is_looked_at_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_sync, "_LOOK_AGAIN_S", 0.0)
    world.parts.starts = [SourceReplaced("another cluster answers")]
    world.parts.upgrades = [False, SourceError("no route"), True]
    world.live(lambda: world.reads() > 0)
    assert world.done.count("taken over") == 3
    assert "forgotten" not in world.done
    assert (world.sync.is_lost, world.sync.error) == (False, None)


def test_only_another_cluster_is_one_that_pg_upgrade_may_have_made(tmp_path: Path) -> None:
    world = World(tmp_path, on_slot_lost="repair")
    world.parts.starts = [SlotLost("the slot is gone")]
    world.live(lambda: world.reads() > 0)
    assert "taken over" not in world.done


def test_a_start_over_that_fails_is_begun_again_from_its_beginning(tmp_path: Path) -> None:
    world = World(tmp_path, on_slot_lost="resync")
    world.parts.starts = [SlotLost("the slot is gone")]
    drops: list[KuvaszError] = [SourceError("no route")]

    def drop() -> None:
        world.done.append("slot dropped")
        if drops:
            raise drops.pop()

    world.parts.slot.drop = drop
    world.live(lambda: world.reads() > 0)
    assert world.done.count("forgotten") == world.done.count("slot dropped") == 2


def test_it_streams_when_every_table_is_past_its_copy(world: World) -> None:
    seen: list[bool] = []

    def look() -> bool:
        if world.sync.reader is None:
            assert not world.sync.is_streaming
            return False
        seen.append(world.sync.is_streaming)
        world.source_tables.set(world.items, State.ERROR, TableError("broken"))
        seen.append(world.sync.is_streaming)
        world.source_tables.set(world.others, State.CATCHING_UP)
        seen.append(world.sync.is_streaming)
        world.parts.logs.is_replaying = True
        seen.append(world.sync.is_streaming)
        return True

    world.live(look)
    assert seen == [False, False, True, False]
