from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import CopyLimits
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SchemaError, SourceError, SourceLocked
from kuvasz.model import TableName
from kuvasz.source import snapshot
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.tables import copy_snapshot
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


class Ahead:
    """Rows of small tables, read in a session that two tables share."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.rows = {spec.table: b"1\n" for spec in world.source.tables}
        self.failing: set[TableName] = set()
        self.changed: set[int] = set()
        self.read: list[str] = []
        self.now, self.takes_s = 100.0, 0.1
        monkeypatch.setattr(copy_snapshot, "time", SimpleNamespace(monotonic=lambda: self.now))
        names = {table.relation.oid: SimpleNamespace(oid=table.relation.oid) for table in world.there.values()}
        monkeypatch.setattr(snapshot.Names, "of_all", lambda _, __: names)
        monkeypatch.setattr(snapshot.Names, "unchanged", self._unchanged)
        monkeypatch.setattr(snapshot, "under", world._session)
        monkeypatch.setattr(snapshot.CopyRange, "read", lambda wanted, _: self._read(wanted))
        sessions: Any = SimpleNamespace(other=world._session, rest=lambda: None)
        world.under = CopySnapshot(
            world.context, "s", TAKEN, world.source.tables, sessions, is_first=True, reads_ahead=True
        )

    def _read(self, wanted: snapshot.CopyRange) -> Iterator[bytes]:
        assert wanted.is_hurried, "it is given up as soon as its rows come slowly"
        self.read.append(wanted.table.name)
        self.now += self.takes_s
        if wanted.table in self.failing:
            raise SourceError("it cannot be read")
        yield self.rows[wanted.table]

    def _unchanged(self, _: object, names: Sequence[Any]) -> frozenset[int]:
        return frozenset(one.oid for one in names) - self.changed

    def found(self) -> dict[str, bytes | None]:
        """Look at both tables; returns the rows that are there of each."""
        found = {}
        for spec in self.world.source.tables:
            sight = self.world.under.look(spec)
            (wanted,) = self.world.under.ranges(spec, sight.table, sight.ahead)
            found[spec.table.name] = None if wanted.ahead is None else wanted.ahead.take()
        return found


@pytest.fixture
def ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> Ahead:
    return Ahead(world, monkeypatch)


def test_rows_of_small_tables_are_read_when_the_first_is_looked_at(ahead: Ahead) -> None:
    assert ahead.found() == {"items": b"1\n", "others": b"1\n"}
    assert ahead.read == ["items", "others"]


def test_what_cannot_be_read_ahead_or_is_much_is_read_when_it_is_wanted(ahead: Ahead) -> None:
    ahead.rows[ahead.world.items.table] = b"1" * (1 << 20)
    assert ahead.found() == {"items": None, "others": b"1\n"}


def test_what_fails_says_so_to_whoever_wants_it(ahead: Ahead) -> None:
    ahead.failing = {ahead.world.items.table}
    assert ahead.found() == {"items": None, "others": None}


def test_a_server_that_is_slow_keeps_nobodys_turn_to_copy_for_all_its_tables(ahead: Ahead) -> None:
    ahead.takes_s = 6.0
    assert ahead.found() == {"items": b"1\n", "others": None}
    assert ahead.read == ["items"]


def test_what_was_altered_while_it_was_read_is_read_again(ahead: Ahead) -> None:
    ahead.changed = {ahead.world.table(ahead.world.items).relation.oid}
    assert ahead.found() == {"items": None, "others": b"1\n"}


def test_nothing_is_read_ahead_where_copies_are_limited_or_rows_are_sparks_to_choose(
    ahead: Ahead, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = dataclasses.replace(world.context.shared, copy_limits=lambda _: CopyLimits(sessions=1))
    monkeypatch.setattr(world.under, "_context", dataclasses.replace(world.context, shared=shared))
    assert ahead.found() == {"items": None, "others": None}
    assert ahead.read == []


def test_rows_of_other_columns_than_are_wanted_by_now_count_for_nothing(ahead: Ahead, world: World) -> None:
    sight = world.under.look(world.items)
    assert sight.ahead is not None
    narrowed = dataclasses.replace(sight.table.relation, columns=sight.table.relation.columns[:1])
    (wanted,) = world.under.ranges(world.items, dataclasses.replace(sight.table, relation=narrowed), sight.ahead)
    assert (wanted.ahead, sight.ahead.is_taken) == (None, False)
