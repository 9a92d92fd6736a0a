from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.config.model import CopyLimits
from kuvasz.errors import KuvaszError, SourceError, TableError
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.context.source_threads import Turn
from kuvasz.sync.tables import copy_hours
from kuvasz.sync.tables.copy_hours import CopyHours
from tests.support.scene import Scene
from tests.support.waiting import wait_until

#: 2026-11-27, a Friday, noon.
NOON = 1_795_780_800.0


class World(Scene):
    """A scene whose items are large, at noon, when nothing large is to be copied."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.limits = CopyLimits(hours="22:00-06:00", rows_per_second=7, sessions=2)
        self.now = NOON
        self.taken_at = time.monotonic()
        shared = dataclasses.replace(self.shared, copy_limits=lambda _: self.limits)
        self.context = SourceContext.of(self.source, shared)
        self.lifetime, self.source_tables = self.context.lifetime, self.context.source_tables
        self.hours = CopyHours(self.context, lambda: self.now)
        self.source_tables.tables[self.items.key] = self.table(self.items, pages=10_000)
        self.source_tables.tables[self.others.key] = self.table(self.others)
        self.stopped = threading.Event()

    def check(self) -> None:
        if self.stopped.is_set():
            raise SourceError("stopped while copying")

    def copying(self, during: Callable[[], object]) -> bool:
        """Have two sessions of one copy wait, do something meanwhile, and return whether the copy went on."""
        errors: list[KuvaszError] = []

        async def run() -> None:
            self.lifetime.begin()
            async with Turn(self.shared.copies) as turn:
                await turn.keep()
                pace = self.hours.pace(self.items, self.taken_at, turn, self.check)

                def read() -> None:
                    try:
                        pace.wait()
                    except KuvaszError as error:
                        errors.append(error)

                sessions = [asyncio.create_task(asyncio.to_thread(read)) for _ in range(2)]
                await asyncio.to_thread(during)
                await asyncio.gather(*sessions)

        asyncio.run(run())
        return not errors

    @property
    def resumes_at(self) -> float:
        return self.source_tables.look(self.items).copy_resumes_at

    def wait_paused(self) -> None:
        wait_until(lambda: self.resumes_at, "it is paused")
        wait_until(lambda: not self.shared.copies.locked(), "its place is another's")


def test_a_copy_lets_others_go_first_when_it_has_had_its_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of terabytes would keep them waiting for days; a short one is not interrupted."""
    world.limits = CopyLimits()
    copies, said = world.shared.copies, []

    async def other() -> None:
        async with copies:
            said.append("another")

    async def run() -> None:
        world.lifetime.begin()
        while not copies.locked():
            await copies.acquire()
        copies.release()
        async with Turn(copies) as turn:
            await turn.keep()
            pace = world.hours.pace(world.items, world.taken_at, turn, world.check)
            waiting = asyncio.create_task(other())
            await asyncio.to_thread(pace.wait)
            said.append("it goes on")
            monkeypatch.setattr(copy_hours, "_SLICE_S", 0.0)
            await asyncio.to_thread(pace.wait)
            said.append("it goes on")
            await waiting

    asyncio.run(run())
    assert said == ["it goes on", "another", "it goes on"]


def test_a_copy_that_comes_slowly_keeps_no_others_waiting(world: World) -> None:
    shared = world.shared

    async def run() -> None:
        world.lifetime.begin()
        while not shared.copies.locked():
            await shared.copies.acquire()
        shared.copies.release()
        async with Turn(shared.copies) as turn:
            await turn.keep()
            pace = world.hours.pace(world.items, world.taken_at, turn, world.check)
            for is_slow in (True, True, False):
                await asyncio.to_thread(lambda is_slow=is_slow: pace.note_slow(is_slow=is_slow))
                assert (pace.is_slow, shared.copies.locked()) == (is_slow, not is_slow)

    asyncio.run(run())
    assert not shared.slow_copies.locked()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_large_table_keeps_to_the_hours_and_a_small_one_to_none(world: World) -> None:
    assert (world.hours.is_over(world.items), world.hours.is_over(world.others)) == (True, False)
    assert (world.hours.is_beside(world.items), world.hours.is_beside(world.others)) == (True, False)
    world.now += 11 * 3600
    assert (world.hours.is_over(world.items), world.hours.is_beside(world.items)) == (False, True)
    world.limits = CopyLimits()
    assert not world.hours.is_beside(world.items)


def test_one_of_unknown_size_is_large(world: World) -> None:
    del world.source_tables.tables[world.others.key]
    assert world.hours.is_over(world.others)


def test_the_limits_are_those_of_the_map_that_runs(world: World) -> None:
    pace = world.hours.pace(world.items, world.taken_at, None, world.check)
    assert pace.limits() == (7, 2)
    world.limits = CopyLimits()
    assert pace.limits() == (None, None)
    pace.wait()


def test_a_copy_pauses_while_its_hours_are_over_and_counts_as_begun_later(world: World) -> None:
    began = time.monotonic() - 100
    world.source_tables.note(world.items, copy_began=began)

    def during() -> None:
        world.wait_paused()
        assert world.resumes_at == NOON + 10 * 3600
        world.now += 10 * 3600

    assert world.copying(during)
    assert world.resumes_at == 0.0
    assert world.source_tables.look(world.items).copy_began > began


def test_other_hours_count_at_once(world: World) -> None:
    def during() -> None:
        world.wait_paused()
        world.limits = CopyLimits(hours="11:00-13:00")

    assert world.copying(during)


@pytest.mark.parametrize("waits_for", ["its hours", "its place among the copies"])
def test_a_copy_that_waits_can_be_given_up(world: World, waits_for: str) -> None:
    def during() -> None:
        world.wait_paused()
        if waits_for == "its place among the copies":
            taken = asyncio.run_coroutine_threadsafe(world.shared.copies.acquire(), loop[0])
            taken.result(10)
            world.now += 10 * 3600
            wait_until(lambda: not world.resumes_at, "its hours have begun")
        world.stopped.set()

    loop: list[asyncio.AbstractEventLoop] = []

    def begin() -> None:
        loop.append(world.lifetime._loop)  # type: ignore[arg-type]
        during()

    assert not world.copying(begin)
    assert world.shared.copies.locked() is (waits_for == "its place among the copies"), "nobody's place was lost"


def test_a_copy_whose_snapshot_is_too_old_is_given_up(world: World) -> None:
    world.limits = CopyLimits(max_snapshot_age="1h")  # type: ignore[arg-type]
    assert world.hours.is_beside(world.items)
    world.source_tables.note(world.items, copy_total=7, copy_done=3)
    world.taken_at -= 3599
    world.hours.pace(world.items, world.taken_at, None, world.check).wait()
    world.taken_at -= 10
    with pytest.raises(TableError, match=r"3 of 7 parts were read .* copy\.max_snapshot_age allows, 1h") as told:
        world.hours.pace(world.items, world.taken_at, None, world.check).wait()
    assert told.value.hint is not None
    assert "kuvasz retry --table shop.items" in told.value.hint
    world.hours.pace(world.others, world.taken_at, None, world.check).wait()  # a small one ends by itself


def test_one_that_gets_on_has_another_snapshot_taken(world: World) -> None:
    world.limits = CopyLimits(max_snapshot_age="1h")  # type: ignore[arg-type]
    finished: list[int] = []
    pace = world.hours.pace(world.items, world.taken_at - 3610, None, world.check, gets_on=lambda: bool(finished))
    with pytest.raises(TableError):
        pace.wait()
    finished.append(1)
    for _ in range(2):  # each of its sessions
        with pytest.raises(SourceError, match=r"parts were read when its snapshot was as old as .* allows, 1h"):
            pace.wait()


def test_so_is_one_that_waits_for_its_hours(world: World) -> None:
    def during() -> None:
        world.wait_paused()
        world.limits = CopyLimits(hours="22:00-06:00", max_snapshot_age="1m")  # type: ignore[arg-type]

    world.taken_at -= 100
    assert not world.copying(during)
    assert not world.shared.copies.locked()
