"""What a look at all tables at once makes of each, between real neighbours; the catalog says what a test wants."""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import CopyNeeded, KuvaszError, LakeError, RowsUnlogged, SchemaError, SourceError
from kuvasz.model import Column, Seen, TableName
from kuvasz.source.catalog.look import Look
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.tables import State
from kuvasz.sync.watch import patrol
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.patrol import Patrol
from tests.support.changes import TEXT
from tests.support.scene import Scene

SEEN_AT = 500


class Watch:
    """Has the lake follow, or fails as told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.error: Exception | None = None
        self.followed: list[tuple[str, SourceTable, Look | None]] = []
        self.moved: TableName | None = None

    def see(
        self, _: object, spec: SourceTableSpec, oid: int, xid: int
    ) -> tuple[SourceTableSpec, Look, dict[str, Any]]:
        assert xid == 0
        if self.moved is None:
            return spec, Look(lsn=SEEN_AT, table=self._world.found.get(spec.table)), {}
        spec = dataclasses.replace(spec, table=self.moved)
        return spec, Look(lsn=SEEN_AT, table=self._world.table_at(spec, oid)), {}

    def catch_up(self, spec: SourceTableSpec, table: SourceTable, known: Look | None) -> None:
        if self.error is not None:
            raise self.error
        self.followed.append((spec.identifier, table, known))


class World(Scene):
    """Two tables that stream and were looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.looks = LastLooks(self.source_tables, lambda _: ())
        self.watch = Watch(self)
        self.rewrites: list[object] = []
        self.found = {spec.table: self.table(spec) for spec in self.source.tables}
        for spec in self.source.tables:
            self.source_tables.tables[spec.key] = self.found[spec.table]
            self.looks.put(spec, Look(lsn=SEEN_AT, table=self.found[spec.table]))
            self.stream(spec)
        watch: Any = self.watch
        self.wal_lsn, self.is_proved = 900, True
        rewrites: Any = types.SimpleNamespace(look=self._look_at_files)
        self.patrol = Patrol(self.context, self.looks, watch, rewrites)
        monkeypatch.setattr(patrol, "tables", self._tables)
        monkeypatch.setattr(patrol, "wal_end", lambda _: self.wal_lsn)

    def _look_at_files(self, connection: object, end: int) -> bool:
        assert end == self.wal_lsn
        self.rewrites.append(connection)
        return self.is_proved

    def _tables(
        self, connection: object, names: list[TableName], publications: object
    ) -> dict[TableName, SourceTable]:
        assert connection is self
        return {name: self.found[name] for name in names if name in self.found}

    def stream(self, spec: SourceTableSpec) -> None:
        self.copy(spec)
        self.states.activate(spec.identifier, self.source.name, 1)
        self.source_tables.set(spec, State.STREAMING)

    def table_at(self, spec: SourceTableSpec, oid: int) -> SourceTable:
        relation = dataclasses.replace(self.table(self.items).relation, table=spec.table, oid=oid)
        return dataclasses.replace(self.table(self.items), relation=relation)

    def change(self, spec: SourceTableSpec, **facts: Any) -> SourceTable:
        """Have the catalog say something else of a table."""
        self.found[spec.table] = dataclasses.replace(self.found[spec.table], **facts)
        return self.found[spec.table]

    def widen(self, spec: SourceTableSpec) -> SourceTable:
        relation = self.found[spec.table].relation
        more = (*relation.columns, Column(name="extra", pg_type=TEXT))
        return self.change(spec, relation=dataclasses.replace(relation, columns=more))

    def look(self, *unfit: SourceTableSpec) -> list[str]:
        return self.patrol.look(self, lambda spec: spec in unfit)

    def error(self, spec: SourceTableSpec) -> KuvaszError | None:
        return self.source_tables.look(spec).error


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_look_says_how_far_no_row_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.look()
    assert world.patrol.proved_lsn == 900
    world.is_proved = False
    world.look()
    assert world.patrol.proved_lsn == 0
    world.is_proved = True
    world.look()

    def silent(_: object) -> int:
        raise SourceError("the connection was lost")

    monkeypatch.setattr(patrol, "wal_end", silent)
    with pytest.raises(SourceError):
        world.look()
    assert world.patrol.proved_lsn == 0


@pytest.mark.parametrize(
    ("seen", "seen_lsn"),
    [
        (Seen(lsn=890, until=910), 900), (Seen(lsn=890, until=910, running=frozenset({7})), 0), (None, 0),
    ],
)  # fmt: skip
def test_a_look_says_whether_it_has_seen_all_commits(world: World, seen: Seen | None, seen_lsn: int) -> None:
    for spec in world.source.tables:
        world.change(spec, relation=dataclasses.replace(world.found[spec.table].relation, seen=seen))
    world.look()
    assert world.patrol.seen_lsn == seen_lsn
    world.found.clear()
    world.look()
    assert world.patrol.seen_lsn == 0, "nobody knows"


def test_where_nothing_changed_nothing_is_done(world: World) -> None:
    assert world.look() == []
    assert world.watch.followed == []
    assert world.rewrites == [world]


def test_many_tables_are_looked_at_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    rests: list[float] = []

    def some(connection: object, names: list[TableName], publications: object) -> dict[TableName, SourceTable]:
        asked.append(len(names))
        return world._tables(connection, names, publications)

    monkeypatch.setattr(patrol, "_AT_ONCE", 1)
    monkeypatch.setattr(patrol, "tables", some)
    monkeypatch.setattr(patrol.time, "sleep", rests.append)
    world.widen(world.items)
    world.widen(world.others)
    assert world.look() == []
    assert (asked, len(rests)) == ([1, 1], 1)
    assert len(world.watch.followed) == 2
    world.lifetime.end()
    world.look()
    assert (asked, len(rests)) == ([1, 1, 1, 1], 1), "nobody waits for that who ends"


def test_a_table_that_streams_follows_what_no_row_has_told(world: World) -> None:
    before = world.looks.get(world.found[world.items.table].relation.oid)
    now = world.widen(world.items)
    assert world.look() == []
    assert world.watch.followed == [("shop.items", now, before)]


def test_what_is_no_part_of_a_copy_is_no_change(world: World) -> None:
    world.change(world.items, pages=77, row_estimate=9)
    world.look()
    assert world.watch.followed == []


@pytest.mark.parametrize("error", [SchemaError("it cannot be"), CopyNeeded("it must be copied")])
def test_a_change_that_cannot_be_followed_stops_its_table_alone(world: World, error: Exception) -> None:
    world.watch.error = error
    world.widen(world.items)
    oid = world.found[world.items.table].relation.oid
    assert world.look() == []
    assert not world.source_tables.is_streaming(world.items)
    assert world.source_tables.is_streaming(world.others)
    assert world.looks.get(oid) is None, "the next message is followed by a look"
    is_copied = isinstance(error, CopyNeeded)
    assert world.source_tables.look(world.items).is_resync_due == is_copied


def test_a_lake_that_fails_is_asked_again_by_the_next_look(world: World) -> None:
    world.watch.error = LakeError("the catalog does not answer")
    world.widen(world.items)
    world.widen(world.others)
    assert world.look() == []
    assert world.source_tables.is_streaming(world.items)
    world.watch.error = None
    world.look()
    assert [name for name, *_ in world.watch.followed] == ["shop.items", "shop.others"]


def test_what_nobody_thought_of_stops_its_table_alone(world: World) -> None:
    world.watch.error = ZeroDivisionError("a slip")
    world.widen(world.items)
    assert world.look() == []
    assert "ZeroDivisionError: a slip" in str(world.error(world.items))
    assert world.source_tables.is_streaming(world.others)


def test_a_source_that_does_not_answer_is_no_tables_fault(world: World) -> None:
    world.watch.error = SourceError("the connection was lost")
    world.widen(world.items)
    with pytest.raises(SourceError):
        world.look()
    assert world.source_tables.is_streaming(world.items)


def test_a_table_that_was_dropped_is_in_error(world: World) -> None:
    del world.found[world.items.table]
    assert world.look() == []
    assert world.source_tables.state(world.items) is State.ERROR
    assert "there is no such table" in str(world.error(world.items))


def test_a_table_that_was_renamed_is_found_by_its_new_name(world: World) -> None:
    del world.found[world.items.table]
    world.watch.moved = TableName(schema="public", name="goods")
    world.look()
    assert world.source_tables.is_streaming(world.items)
    assert world.error(world.items) is None


def test_a_table_that_lost_what_identifies_its_rows_is_refused(world: World) -> None:
    """Its UPDATEs fail at the source for as long as it is published."""
    mend = "ALTER TABLE items ADD PRIMARY KEY (id)"
    world.change(world.items, can_update=False, why_no_key="it has no key", mend=mend)
    world.look()
    error = world.error(world.items)
    assert error is not None
    assert error.message == "source shop, table public.items: it has lost what identifies its rows: it has no key"
    assert error.hint == mend


def test_a_table_that_lost_it_before_its_copy_is_refused(world: World) -> None:
    """The copy saw it without, and the publications are those that fitted it before."""
    bare = world.change(world.items, can_update=False, why_no_key="it has no key")
    world.looks.put(world.items, Look(lsn=SEEN_AT, table=bare))
    world.look()
    assert world.error(world.items) is not None


@pytest.mark.parametrize(("state", "is_bare"), [(State.PAUSED, True), (State.ERROR, False)])
def test_a_paused_table_that_lost_it_is_named(world: World, state: State, *, is_bare: bool) -> None:
    world.source_tables.set(world.items, state)
    world.look()
    assert world.patrol.bare == frozenset()
    world.change(world.items, can_update=False, why_no_key="it has no key")
    world.look()
    assert world.patrol.bare == ({world.items.key} if is_bare else frozenset())
    world.source_tables.tables.pop(world.items.key)
    world.look()
    assert world.patrol.bare == frozenset(), "it is published no more"


def test_a_table_that_never_had_that_goes_on(world: World) -> None:
    bare = world.change(world.items, can_update=False, why_no_key="it has no key")
    world.source_tables.tables[world.items.key] = bare
    world.looks.put(world.items, Look(lsn=SEEN_AT, table=bare))
    world.look()
    assert world.error(world.items) is None


def test_a_table_in_error_is_tried_again_once_for_each_change_of_it(world: World) -> None:
    world.source_tables.set(world.items, State.ERROR, SchemaError("a column it cannot have"))
    assert world.look() == []
    world.widen(world.items)
    assert world.look() == ["shop.items"]
    assert world.look() == []
    assert str(world.error(world.items)) == "a column it cannot have"


def test_a_paused_table_is_not(world: World) -> None:
    world.source_tables.set(world.items, State.PAUSED)
    world.widen(world.items)
    assert world.look() == []


def test_a_table_that_was_found_unfit_is_looked_at_anew_when_it_fits(world: World) -> None:
    world.source_tables.set(world.items, State.ERROR, SchemaError("it has no key"))
    found = world.found.pop(world.items.table)
    assert world.look(world.items) == []
    world.found[world.items.table] = found
    assert world.look(world.items) == ["shop.items"]


@pytest.mark.parametrize("state", [State.STREAMING, State.ERROR])
def test_what_was_not_logged_is_missed_whatever_the_table_does(world: World, state: State) -> None:
    if state is State.ERROR:
        world.source_tables.set(world.items, state, SchemaError("something else"))
    world.change(world.items, is_logged=False, why_unsupported="it is unlogged")
    world.look()
    look = world.source_tables.look(world.items)
    assert (look.state, look.is_resync_due, look.is_repair) == (State.ERROR, True, True)
    if state is State.STREAMING:
        assert isinstance(look.error, RowsUnlogged)


def test_a_member_that_is_gone_is_left_to_who_looks_for_members(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = dataclasses.replace(world.items, member="4711")
    source = dataclasses.replace(world.source, tables=(member, world.others))
    monkeypatch.setattr(world.source_tables, "source", source)
    del world.found[world.items.table]
    assert world.look() == []
    assert world.source_tables.is_streaming(world.items)
