from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kuvasz.errors import TableError
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.state.tables import State
from tests.support.scene import Scene

T, OTHER = "shop.items", "us"


class World(Scene):
    """A table that failed, which another source feeds, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copy(self.items)
        self.states.add(T, OTHER, "public.items")
        self.states.activate(T, OTHER, 1)
        self.seen: list[tuple[State, frozenset[str]]] = []  #: of the other source, as what is under way ends
        self.errors: list[TableError] = []  #: by which it fails anew meanwhile

    def fail(self, error: TableError) -> None:
        self.lake._tables[T].era = WriteEra(accepted={}, error=error)

    async def _settle(self, target: str) -> None:
        self.seen.append((self.states.get(target, OTHER).state, self.progress.held(OTHER)))
        if self.errors:
            self.fail(self.errors.pop())

    def resume(self) -> None:
        asyncio.run(self.context.resume(T, "eu"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nobody_follows_a_target_whose_failure_is_undone(world: World) -> None:
    world.fail(TableError("it was broken"))
    world.resume()
    assert world.seen == [(State.ERROR, frozenset({T}))], "what it brought meanwhile would be written behind a gap"
    assert world.lake.failure(T) is None


def test_no_failure_is_undone_that_came_meanwhile(world: World) -> None:
    world.errors = [TableError("again")]
    world.fail(TableError("it was broken"))
    world.resume()
    assert len(world.seen) == 2
    assert world.lake.failure(T) is None


def test_who_follows_a_target_that_has_not_failed_goes_on(world: World) -> None:
    world.resume()
    assert world.seen == []
    assert world.states.is_streaming(T, OTHER)
