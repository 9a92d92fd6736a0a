from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, SourceLocked
from kuvasz.state.tables import State
from kuvasz.sync import first_copies
from kuvasz.sync.first_copies import FirstCopies
from tests.support.scene import Scene

SNAPSHOT: Any = object()


class World(Scene):
    """A scene whose copies are only noted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.locked: list[str] = []  #: tables, as often as somebody has them locked
        self.timed: list[str] = []  #: tables that are copied in some hours alone
        self.done: list[str] = []
        self.is_open = False

    @contextlib.contextmanager
    def under(self, snapshot: object, _: object) -> Iterator[object]:
        self.is_open = True
        yield snapshot
        self.is_open = False

    async def first(self, spec: SourceTableSpec, taken: object, system_id: str) -> None:
        assert (taken, system_id, self.is_open) == (SNAPSHOT, "7", True)
        if spec.identifier in self.locked:
            self.locked.remove(spec.identifier)
            self.source_tables.set(spec, State.COPYING)
            raise SourceLocked("somebody has locked it")
        self.done.append(spec.identifier)

    def run(self, *, is_all: bool) -> list[str]:
        """Copy both tables; return those that are left."""
        hours = SimpleNamespace(is_beside=lambda spec: spec.identifier in self.timed)
        copies: Any = SimpleNamespace(under=self.under, first=self.first, hours=hours)
        copying = FirstCopies(self.context, copies, is_all=is_all)
        return [spec.identifier for spec in asyncio.run(copying.run(self.source.tables, SNAPSHOT, "7"))]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(first_copies, "_LOCKED_S", 0.01)
    return World(tmp_path)


def test_tables_that_have_to_wait_are_left_for_later(world: World) -> None:
    world.locked, world.timed = ["shop.items"], ["shop.others"]
    assert sorted(world.run(is_all=False)) == ["shop.items", "shop.others"]
    assert world.done == []
    assert world.source_tables.state(world.items) is State.NEW


def test_where_all_are_of_one_snapshot_it_waits_for_them(world: World) -> None:
    world.locked, world.timed = ["shop.items"] * 3, ["shop.others"]
    assert world.run(is_all=True) == []
    assert world.done == ["shop.others", "shop.items"]


def test_whoever_waits_ends_with_kuvasz(world: World) -> None:
    world.locked = ["shop.items"] * 10**6
    world.lifetime.end()
    with pytest.raises(SourceError, match="stopped while copying"):
        world.run(is_all=True)


def test_without_tables_there_is_nothing_to_do(world: World) -> None:
    copying = FirstCopies(world.context, SimpleNamespace(under=world.under))  # type: ignore[arg-type]
    assert asyncio.run(copying.run([], SNAPSHOT, "7")) == []
