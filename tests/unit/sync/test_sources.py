from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import KuvaszError, LakeError, MapMismatch, SlotLost, SourceError, SourceRefused
from kuvasz.sync.context import shared
from kuvasz.sync.sources import Sources
from tests.support.scene import Scene


class World(Scene):
    """A scene whose one source ends as told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sources = Sources([self.source], self.shared)
        (self.sync,) = self.sources.all

    def end(self, error: BaseException) -> None:
        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                self.sources.begin(tasks)

        async def fail() -> None:
            raise error

        self.sync.run = fail  # type: ignore[method-assign]
        asyncio.run(run())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_source_is_found_by_the_names_of_its_members(world: World) -> None:
    assert world.sources.of("shop") is world.sources.of("shop/1234") is world.sync


@pytest.mark.parametrize("error", [SourceRefused("no"), ExceptionGroup("", [SourceRefused("no")])])
def test_what_ends_a_source_is_kept_and_ends_nothing_else(world: World, error: Exception) -> None:
    assert not world.sources.is_ended(world.sync)
    world.end(error)
    assert world.sources.is_ended(world.sync)
    assert world.sources.are_hopeless
    assert isinstance(world.sync.error, SourceRefused)
    assert [type(error) for error in world.sources.faults(is_job=False)] == [SourceRefused]
    assert world.sources.why_misfit is None


def test_a_map_that_does_not_fit_is_told(world: World) -> None:
    error = MapMismatch("no such column", database="shop", table="items", option="columns")
    world.end(error)
    assert world.sources.why_misfit is error


def test_a_bug_ends_everything_unless_the_lake_died(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_DEATH_S", 0.05)
    with pytest.raises(ExceptionGroup):
        world.end(ValueError("a bug"))
    why_dead = LakeError("the JVM has ended")
    monkeypatch.setattr(world.lake, "why_dead", lambda: why_dead)
    world.end(ValueError("what asking a dead JVM comes to"))


@pytest.mark.parametrize(
    ("error", "is_lost", "has_started", "is_hopeless"),
    [
        (None, False, False, False),
        (SourceError("it is gone"), False, False, False),
        (SourceRefused("wal_level is minimal"), False, False, True),
        (SourceRefused("wal_level is minimal"), False, True, False),
        (SlotLost("the slot is gone"), True, True, True),
    ],
)
def test_a_source_is_hopeless_that_waits_for_a_person(
    world: World, error: KuvaszError | None, is_lost: bool, has_started: bool, is_hopeless: bool
) -> None:
    sync: Any = world.sync
    sync.error, sync.is_lost, sync._lifetime.has_started = error, is_lost, has_started
    assert world.sources.are_hopeless is is_hopeless
    assert world.sources.faults(is_job=False) == ([error] if error is not None and is_hopeless else [])


def test_all_are_told_to_stop(world: World) -> None:
    world.sources.quiesce()
    assert world.sync._lifetime.is_ending
    world.sources.stop()
