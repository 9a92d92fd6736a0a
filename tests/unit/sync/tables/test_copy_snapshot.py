from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SchemaError, SourceError, SourceLocked
from kuvasz.model import TableName
from kuvasz.source import snapshot
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.tables.copy_snapshot import CopySnapshot
from tests.support.scene import Scene

TAKEN: Any = SimpleNamespace(
    consistent_point=2000, snapshot_name="s", pinned=lambda conninfo: conninfo, close=lambda: None
)


class World(Scene):
    """A scene whose two tables are small; what is asked about them is noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.asked: list[list[str]] = []
        self.failures: list[Exception] = []
        self.locked: set[TableName] = set()
        self.there = {spec.table: self.table(spec) for spec in self.source.tables}
        for spec in self.source.tables:
            self.source_tables.tables[spec.key] = self.table(spec)
        self.under = CopySnapshot(self.context, "s", TAKEN, self.source.tables)
        monkeypatch.setattr(snapshot, "session", self._session)
        monkeypatch.setattr(snapshot.Names, "of_all", lambda _, found: {one.relation.oid: one.table for one in found})
        monkeypatch.setattr(snapshot.Names, "of", lambda _, table: table.table)
        monkeypatch.setattr(introspect, "load_relations", self._load)
        monkeypatch.setattr(sizes, "sized", self._sized)
        monkeypatch.setattr(sizes, "sized_unless_locked", self._sized_unless_locked)

    @contextlib.contextmanager
    def _session(self, *_: object) -> Iterator[None]:
        if self.failures:
            raise self.failures.pop()
        yield

    def _load(self, _: object, names: Sequence[TableName], __: object) -> Mapping[TableName, SourceTable]:
        self.asked.append([name.name for name in names])
        return {name: self.there[name] for name in names if name in self.there}

    def _sized(self, _: object, table: SourceTable) -> SourceTable:
        if table.table in self.locked:
            raise SourceLocked("somebody has locked it")
        return table

    def _sized_unless_locked(self, _: object, tables: Sequence[SourceTable]) -> list[SourceTable]:
        return [dataclasses.replace(one, pages=None) if one.table in self.locked else one for one in tables]

    def named(self, spec: SourceTableSpec) -> object:
        sight = self.under.look(spec)
        assert sight.table.table == spec.table
        assert sight.table.relation.seen is not None
        assert sight.table.relation.seen.lsn == TAKEN.consistent_point
        return sight.names

    def change(self, spec: SourceTableSpec, **changes: Any) -> None:
        self.there[spec.table] = dataclasses.replace(self.there[spec.table], **changes)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_small_tables_that_come_next_are_looked_at_together(world: World) -> None:
    assert [world.named(spec) for spec in world.source.tables] == [spec.table for spec in world.source.tables]
    assert world.asked == [["items", "others"]]
    assert world.named(world.items) == world.items.table, "again, and by itself"
    assert world.asked == [["items", "others"], ["items"]]


def test_large_ones_and_those_nobody_has_announced_are_looked_at_one_by_one(world: World) -> None:
    large = dataclasses.replace(world.table(world.items), pages=1 << 20)
    world.source_tables.tables[world.items.key] = large
    for under in (CopySnapshot(world.context, "s", TAKEN, [world.items]), CopySnapshot(world.context, "s", TAKEN)):
        world.under, world.asked = under, []
        world.named(world.items)
        assert world.asked == [["items"]]


def test_one_that_is_locked_gone_or_partitioned_by_now_keeps_no_other_from_being_seen(world: World) -> None:
    others = world.source.tables[1]
    world.locked.add(others.table)
    world.named(world.items)
    with pytest.raises(SourceLocked):
        world.under.look(others)
    del world.there[others.table]
    world.under = CopySnapshot(world.context, "s", TAKEN, world.source.tables)
    with pytest.raises(SchemaError, match="there is no such table"):
        world.under.look(others)
    world.named(world.items)


def test_a_partitioned_one_is_left_for_a_look_of_its_own(world: World) -> None:
    others = world.source.tables[1]
    world.change(others, kind=TableKind.PARTITIONED)
    world.named(world.items)
    assert others.key not in world.under._sights


def test_a_look_that_fails_is_of_whoever_asked_and_the_others_ask_again(world: World) -> None:
    world.failures = [SourceError("the server is gone")]
    with pytest.raises(SourceError):
        world.under.look(world.items)
    world.named(world.source.tables[1])
    assert world.asked == [["others"]]
