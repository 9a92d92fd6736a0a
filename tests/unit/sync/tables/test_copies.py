from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, LakeError, OutcomeUnknown, SourceError, TableError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.lake.memory.table import MemoryTable
from kuvasz.model import SourcePosition, TableType
from kuvasz.source import snapshot
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.catalog.table import SourceTable
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.rules.targets import feed_of, target_of
from kuvasz.sync.tables import copies, copy_snapshot
from kuvasz.sync.tables.approach import Approach
from kuvasz.sync.tables.copies import Copies
from kuvasz.sync.tables.copy_hours import CopyHours
from kuvasz.sync.tables.copy_snapshot import CopySnapshot
from kuvasz.sync.watch.partition_notes import PartitionNotes
from tests.support.scene import Scene


class Snapshot:
    """Of a slot, or so it says."""

    consistent_point = 2000
    taken_us = 5
    started_us = 1
    snapshot_name = "s"

    def pinned(self, conninfo: str) -> str:
        return conninfo

    def close(self) -> None:
        pass

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        pass


TAKEN: Any = Snapshot()


class World(Scene):
    """A scene whose source has a table without rows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.approvals = Approvals(b"")
        self.looked: list[str] = []
        self.when_looked: Callable[[], object] = lambda: None
        self.failures: list[Exception] = []
        self.altered: list[Exception] = []
        self.published = "1:700, table 2:700"
        self.while_waiting: list[Callable[[], None]] = []  #: for the turn, with a snapshot
        self.snapshots = 0
        self.slot: Any = SimpleNamespace(name="s", snapshot=self._snapshot, history=0, is_of_now=lambda _: True)
        watch: Any = SimpleNamespace(begin=lambda *_: None)
        notes = PartitionNotes(self.context)
        self.came_to: list[int] = []  #: LSNs that a table was brought up to
        self.when_there: Callable[[], object] = lambda: None
        self.approach = Approach(self.context, activate=self._no_activation, is_parked=lambda _: False)
        monkeypatch.setattr(self.approach, "up_to", self._up_to)
        self.copies = Copies(
            self.context, self.slot, watch, self.approvals, notes, self.approach, look=self._look,
            published=lambda _: self.published,
        )  # fmt: skip
        self.hours_over = False
        monkeypatch.setattr(self.copies.hours, "is_over", lambda _: self.hours_over)
        opens = SimpleNamespace(opens_at=lambda _: 7.0)
        monkeypatch.setattr(CopyHours, "limits", opens)
        self.seen: SourceTable = self.table(self.items)
        self.source_tables.tables["shop.items"] = self.seen
        self.lake.prepare(target_of(self.items), feed_of(self.source, self.items), self.seen.relation)
        monkeypatch.setattr(snapshot, "session", self._session)
        names = SimpleNamespace(check=self._check)
        monkeypatch.setattr(snapshot, "Names", SimpleNamespace(of=lambda *_: names))
        monkeypatch.setattr(introspect, "load_relations", lambda *_: {self.seen.table: self.seen})
        monkeypatch.setattr(sizes, "sized", lambda _, table: table)
        monkeypatch.setattr(copy_snapshot, "copy_ranges", lambda *_, **__: [])
        monkeypatch.setattr(copies, "FIRST_S", 0.01)

    @property
    def taken(self) -> CopySnapshot:
        return CopySnapshot(self.context, "s", TAKEN)

    @contextlib.contextmanager
    def _session(self, *_: object) -> Iterator[None]:
        yield

    def _snapshot(self, _: object) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        self.snapshots += 1
        if self.while_waiting:
            self.while_waiting.pop()()
        return TAKEN

    def _check(self, _: object) -> None:
        if self.altered:
            raise self.altered.pop()

    def _look(self, spec: Any) -> bool:
        self.looked.append(spec.identifier)
        self.when_looked()
        return True

    def _no_activation(self, spec: SourceTableSpec, epoch: int, end: int) -> bool:
        raise AssertionError

    async def _up_to(self, _: SourceTableSpec, lsn: int) -> bool:
        self.came_to.append(lsn)
        self.when_there()
        return self.source_tables.state(self.items) is State.COPYING

    def follow(self) -> None:
        """Have the table follow, and be compared."""
        self.copy(self.items, lsn=1000)
        self.states.activate("shop.items", self.source.name, 1)
        self.source_tables.gap_starts.follow(self.items, 900)

    def compare(self) -> None:
        asyncio.run(self.copies.compare(self.items, "7"))

    def beside(self) -> None:
        asyncio.run(self.copies.beside(self.items, "7"))

    @property
    def held(self) -> frozenset[str]:
        return self.progress.held(self.source.name)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_copied_table_stands_where_its_snapshot_was_taken_and_holds_the_source(world: World) -> None:
    world.beside()
    position = world.source_tables.position(world.items)
    assert position is not None
    assert (position.lsn, position.system_id, position.taken_us) == (2000, "7", 5)
    assert world.held == {"shop.items"}, "until it follows"
    assert world.source_tables.look(world.items).copies == 1


def test_a_source_that_does_not_answer_is_asked_again(world: World) -> None:
    world.failures = [SourceError("no connection"), SourceError("no connection")]
    shown: list[Any] = []
    world.when_looked = lambda: shown.append(world.source_tables.look(world.items))
    world.beside()
    assert world.source_tables.position(world.items) is not None
    assert world.looked == ["shop.items"] * 2
    assert [(str(look.error), look.retry_at is not None) for look in shown] == [("no connection", True)] * 2
    assert world.source_tables.look(world.items).error is None


@pytest.mark.parametrize("state", [State.PAUSED, State.ERROR])
def test_a_table_that_is_stopped_is_not_copied(world: World, state: State) -> None:
    world.source_tables.set(world.items, state)
    world.source_tables.hold(world.items)
    world.beside()
    assert (world.source_tables.position(world.items), world.held) == (None, frozenset())


def test_what_was_read_while_names_were_given_to_something_else_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    visible: list[str] = []
    make_visible = MemoryTable.make_visible

    def noted(table: MemoryTable, *arguments: Any) -> Any:
        visible.append(table.target.name)
        return make_visible(table, *arguments)

    monkeypatch.setattr(MemoryTable, "make_visible", noted)
    world.altered = [SourceError("public.items was altered meanwhile")]
    world.beside()
    assert world.looked == ["shop.items"], "it was tried again"
    assert visible == ["shop.items"], "once"
    world.lake.forget("shop.items", world.source.name, to_repair=True)
    world.altered = [SourceError("public.items was altered meanwhile")]
    world.beside()
    assert visible == ["shop.items"] * 2, "and a repair as well"


def test_a_table_counts_as_published_as_it_was_before_the_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, copy = world.published, MemoryLake.copy

    def look(*arguments: Any, **options: Any) -> Any:
        world.published = "1:700, table 3:900"  # it was taken out and put in again, and somebody looked
        return copy(*arguments, **options)

    def looked(*_: object) -> Any:
        world.published = "1:700, table 3:800"
        return {world.seen.table: world.seen}

    monkeypatch.setattr(introspect, "load_relations", looked)
    monkeypatch.setattr(MemoryLake, "copy", look)
    world.beside()
    assert world.lake.notes.published("shop.items", world.source.name) == before
    assert world.snapshots == 1


def test_a_table_that_was_published_anew_while_it_waited_its_turn_gets_a_new_snapshot(world: World) -> None:
    def look() -> None:
        world.published = "1:700, table 3:900"

    world.while_waiting.append(look)
    world.beside()
    assert world.snapshots == 2
    assert world.lake.notes.published("shop.items", world.source.name) == world.published


@pytest.mark.parametrize("state", [State.PAUSED, State.ERROR])
def test_a_table_that_is_stopped_while_it_waits_its_turn_is_not_copied(world: World, state: State) -> None:
    world.while_waiting.append(lambda: world.source_tables.set(world.items, state))
    world.beside()
    assert world.source_tables.position(world.items) is None
    assert (world.source_tables.state(world.items), world.snapshots, world.held) == (state, 1, frozenset())


def _landed(_: object, __: str) -> dict[str, SourcePosition]:
    return {"shop": SourcePosition(lsn=1500)}


def _silent(_: object, __: str) -> dict[str, SourcePosition]:
    raise LakeError("the catalog does not answer")


@pytest.mark.parametrize("stored", [_landed, _silent])
def test_a_source_is_held_while_a_copy_of_it_may_be_in_the_lake(
    world: World, monkeypatch: pytest.MonkeyPatch, stored: Callable[[object, str], dict[str, SourcePosition]]
) -> None:
    answers = [OutcomeUnknown("nobody knows whether it is there"), TableError("a value does not fit")]

    def fail(*_: object, **__: object) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(MemoryLake, "copy", fail)
    monkeypatch.setattr(MemoryLake, "stored", stored)
    world.beside()
    assert (world.source_tables.state(world.items), answers) == (State.ERROR, [])
    assert world.source.name == "shop"
    assert world.held == {"shop.items"}, "the stream goes on from there"


def test_a_server_that_nobody_compared_yet_is_not_copied_from(world: World) -> None:
    answers = iter([False])
    world.slot.is_of_now = lambda _: next(answers, True)
    world.beside()
    assert world.looked == ["shop.items"], "it was tried again"
    position = world.source_tables.position(world.items)
    assert position is not None
    assert position.started_us == TAKEN.started_us


def test_a_copy_whose_server_was_started_anew_meanwhile_is_to_be_copied_again(world: World) -> None:
    answers = iter([True, False])
    world.slot.is_of_now = lambda _: next(answers, True)
    world.beside()
    assert world.source_tables.look(world.items).is_resync_due, "over a restart, too"


def test_what_is_wrong_with_the_table_puts_it_into_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TableError("a value does not fit")

    monkeypatch.setattr(MemoryLake, "copy", fail)
    world.beside()
    assert world.source_tables.state(world.items) is State.ERROR
    assert not world.held


def test_a_lake_that_fails_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LakeError("no room")

    monkeypatch.setattr(MemoryLake, "copy", fail)
    with pytest.raises(SourceError, match="no room"):
        asyncio.run(world.copies.first(world.items, world.taken, "7"))
    assert world.source_tables.state(world.items) is State.COPYING


def test_the_lake_follows_what_changed_since_the_last_look(world: World) -> None:
    columns = world.seen.relation.columns
    more = dataclasses.replace(columns[1], name="more")
    world.seen = dataclasses.replace(
        world.seen, relation=dataclasses.replace(world.seen.relation, columns=(*columns, more))
    )
    world.beside()
    assert "more" in world.lake.rows("shop.items").column_names


def test_nothing_begins_when_the_source_ends(world: World) -> None:
    world.lifetime.end()
    with pytest.raises(SourceError, match="stopped while copying"):
        asyncio.run(world.copies.first(world.items, world.taken, "7"))
    assert world.source_tables.state(world.items) is State.NEW


def test_a_lake_that_closes_under_a_copy_is_no_table_s_fault(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: object, **__: object) -> None:
        world.lifetime.end()
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(MemoryLake, "copy", copy)
    with pytest.raises(SourceError, match="stopped while copying"):
        asyncio.run(world.copies.first(world.items, world.taken, "7"))
    assert world.source_tables.look(world.items).error is None


def test_a_copy_that_is_given_up_ends_before_anything_else_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def copy(*arguments: Any, **_: object) -> None:
        progress = arguments[-1]
        begun.set()
        try:
            while True:
                progress(0, 0)
        finally:
            ended.set()

    async def run() -> None:
        copying = asyncio.create_task(world.copies.first(world.items, world.taken, "7"))
        await asyncio.to_thread(begun.wait, 10)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert ended.is_set()

    monkeypatch.setattr(MemoryLake, "copy", copy)
    asyncio.run(run())


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.APPEND])
def test_a_gap_is_compared_or_accepted_by_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: TableType
) -> None:
    repaired: list[str] = []
    repair = MemoryLake.repair

    def note(lake: MemoryLake, feed: Any, *arguments: Any, **options: Any) -> Any:
        repaired.append(feed.target)
        return repair(lake, feed, *arguments, **options)

    monkeypatch.setattr(MemoryLake, "repair", note)
    world.beside()
    world.lake.forget("shop.items", world.source.name, to_repair=True)
    spec = dataclasses.replace(world.items, config=world.items.config.model_copy(update={"type": kind}))
    asyncio.run(world.copies.beside(spec, "7"))
    if kind is TableType.APPEND:
        error = world.source_tables.look(spec).error
        assert isinstance(error, ChangesLost)
        assert repaired == []
        world.approvals.give(spec.key, error)
        world.source_tables.set(spec, State.NEW)
        asyncio.run(world.copies.beside(spec, "7"))
        assert not world.approvals.is_gap_accepted(spec), "the next gap is another one"
    assert repaired == ["shop.items"]
    assert world.source_tables.position(spec) is not None
    assert world.source_tables.look(spec).copies == 1


def test_rows_that_expressions_make_are_compared_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    world.beside()
    monkeypatch.setattr(MemoryLake, "copy", lambda *_: copied.append("copied"))
    world.lake.forget("shop.items", world.source.name, to_repair=True)
    spec = dataclasses.replace(world.items, config=world.items.config.model_copy(update={"filter": "n > 1"}))
    asyncio.run(world.copies.beside(spec, "7"))
    assert copied == []
    assert world.lake.notes.gap("shop.items", world.source.name) is None


def test_a_table_that_waits_for_its_hours_keeps_nothing_at_its_source(world: World) -> None:
    world.hours_over = True
    world.source_tables.hold(world.items)
    assert asyncio.run(world.copies.postpone(world.items))
    assert world.held == frozenset()
    assert world.source_tables.look(world.items).copy_resumes_at > 0
    world.hours_over = False
    assert not asyncio.run(world.copies.postpone(world.items))
    assert world.source_tables.look(world.items).copy_resumes_at == 0


@pytest.mark.parametrize("stored", [_landed, _silent])
def test_its_source_is_held_where_the_lake_may_have_a_copy(
    world: World, monkeypatch: pytest.MonkeyPatch, stored: Callable[[object, str], dict[str, SourcePosition]]
) -> None:
    monkeypatch.setattr(MemoryLake, "stored", stored)
    world.hours_over = True
    world.source_tables.hold(world.items)
    assert asyncio.run(world.copies.postpone(world.items))
    assert world.held == {"shop.items"}


@pytest.mark.parametrize("state", [State.PAUSED, State.ERROR])
def test_a_table_that_is_stopped_waits_for_no_hours(world: World, state: State) -> None:
    world.hours_over = True
    world.source_tables.set(world.items, state)
    assert not asyncio.run(world.copies.postpone(world.items))


def test_a_copy_that_fails_when_its_hours_are_over_takes_no_snapshot_before_the_next(world: World) -> None:
    world.failures = [SourceError("its snapshot is too old")]
    world.hours_over = True
    assert asyncio.run(world.copies.beside(world.items, "7"))
    assert (world.snapshots, world.source_tables.position(world.items)) == (0, None)
    assert asyncio.run(world.copies.postpone(world.items))
    world.hours_over = False
    assert not asyncio.run(world.copies.beside(world.items, "7"))
    assert world.source_tables.position(world.items) is not None


def test_a_copy_whose_snapshot_is_too_old_leaves_its_table_in_error_and_nothing_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_old(*_: object, **__: object) -> None:
        raise TableError("its snapshot is too old")

    monkeypatch.setattr(world.copies.hours, "check_age", too_old)
    monkeypatch.setattr(copy_snapshot, "copy_ranges", lambda *_, **__: [SimpleNamespace()])
    world.beside()
    assert (world.source_tables.state(world.items), world.held) == (State.ERROR, frozenset())
    assert world.source_tables.position(world.items) is None


def test_a_table_that_follows_is_compared_where_its_snapshot_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    repairs: list[tuple[int, int | None]] = []
    repair = MemoryLake.repair

    def noted(lake: MemoryLake, *arguments: Any, **options: Any) -> Any:
        position = world.source_tables.position(world.items)
        assert position is not None, "until then, it is right up to there"
        repairs.append((position.lsn, options["gap_lsn"]))
        return repair(lake, *arguments, **options)

    monkeypatch.setattr(MemoryLake, "repair", noted)
    world.follow()
    world.compare()
    assert (world.came_to, repairs) == ([2000], [(1000, 900)])
    position = world.source_tables.position(world.items)
    assert position is not None
    assert position.lsn == 2000
    assert not world.approach.is_due(world.items)
    assert world.source_tables.state(world.items) is State.COPYING, "until it follows again"
    assert world.held == {"shop.items"}


def test_a_comparison_that_fails_leaves_the_table_where_it_is(world: World) -> None:
    world.follow()
    world.altered = [SourceError("public.items was altered meanwhile")]
    world.compare()
    world.failures = [SourceError("no connection")]
    world.states.activate("shop.items", world.source.name, 2)
    world.compare()
    position = world.source_tables.position(world.items)
    assert position is not None
    assert position.lsn == 1000
    assert world.approach.is_due(world.items)
    assert not world.approach.is_under_way(world.items)


@pytest.mark.parametrize("state", [State.NEW, State.PAUSED, State.ERROR])
def test_a_table_that_does_not_follow_is_not_compared_from_there(world: World, state: State) -> None:
    world.follow()
    world.source_tables.set(world.items, state)
    world.compare()
    assert (world.source_tables.state(world.items), world.snapshots) == (state, 0)


def test_a_table_that_is_stopped_on_its_way_to_the_snapshot_is_not_compared(world: World) -> None:
    world.follow()
    world.when_there = lambda: world.source_tables.set(world.items, State.ERROR, TableError("a value does not fit"))
    world.compare()
    assert world.approach.is_due(world.items)
    assert world.source_tables.state(world.items) is State.ERROR


def test_a_table_that_follows_waits_for_its_hours_and_is_not_let_go(world: World) -> None:
    world.follow()
    world.hours_over = True
    assert asyncio.run(world.copies.postpone(world.items))
    assert world.source_tables.is_streaming(world.items)


@pytest.mark.parametrize("is_repair", [True, False])
def test_what_landed_of_a_table_that_cannot_be_compared_is_not_replaced_where_it_is_no_copy(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_repair: bool
) -> None:
    """An append table that came over a gap has rows that its source lost: a copy would have no other."""
    monkeypatch.setattr(MemoryLake, "recorded", _landed)
    world.slot.is_of_now = lambda _: False
    config = world.items.config.model_copy(update={"type": TableType.APPEND})
    world.items = dataclasses.replace(world.items, config=config)
    world.source_tables.resync(world.items, is_due=False, is_repair=is_repair)
    world.beside()
    look = world.source_tables.look(world.items)
    assert (look.is_resync_due, look.is_repair) == (True, is_repair)
