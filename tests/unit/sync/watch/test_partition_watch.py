"""What the stream tells of partitions, and what follows from a change of theirs; looks need a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import Deletes
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, SourceError, SourceLocked, SourceRefused, TableError, VersionLost
from kuvasz.model import Relation, TableName, TableType
from kuvasz.source import slots
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.partitions import Partition
from kuvasz.source.catalog.table import TableKind
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.rules.partition_memory import KnownPartitions
from kuvasz.sync.watch import partition_suspects, partition_watch, stale_stream
from kuvasz.sync.watch.partition_messages import PartitionMessages
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.partition_watch import PartitionWatch
from tests.support.scene import Scene


class World(Scene):
    """A scene in which `items` is partitioned and follows the stream."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.found: list[Partition] = []
        self.horizon = 100
        self.wal_lsn = 8000
        self.hear(8000)
        self.has_rows_from_before = self.has_rewritten_rows = self.has_earlier_rows = False
        self.are_seen, self.confirmed_lsn = True, 7000
        self.types, self.altered = "1:23:-1", frozenset[int]()
        self.followed: list[Relation] = []
        self.forgotten: list[SourceTableSpec] = []
        self.sent: list[str] = []
        self.requests.send = self.sent.append  # type: ignore[method-assign]
        self.notes, self.approvals = PartitionNotes(self.context), Approvals(b"")
        schemas: Any = SimpleNamespace(follow=lambda relation, *_: self.followed.append(relation) or relation)
        members: Any = SimpleNamespace(has_any=False)
        rewrites: Any = SimpleNamespace(begin=lambda *_: None, truncated=lambda *_: None)
        self.messages = PartitionMessages(self.source_tables, self.notes, schemas, rewrites, self.context.troubles)
        self.watch = PartitionWatch(
            self.context, members, self.messages, self.notes, self.approvals, forget=self.forgotten.append
        )
        self.root = self.table(self.items, kind=TableKind.PARTITIONED)
        self.copy(self.items)
        self.states.activate("shop.items", self.source.name, 1)
        self.source_tables.set(self.items, State.STREAMING)
        self.hang(10, 11)
        self.look()

    def hear(self, lsn: int) -> None:
        reader: Any = SimpleNamespace(received_lsn=lsn)
        self.context.current.reader = reader
        self.progress.received(self.source.name, lsn)

    def hang(self, *oids: int, **changed: int) -> None:
        self.found = [
            Partition(
                table=TableName(schema="public", name=f"p{oid}"), oid=oid, file=changed.get(f"file_{oid}", oid),
                file_xid=changed.get(f"xid_{oid}", 7), toast=changed.get(f"toast_{oid}", 0),
                links=f"{oid}:7", xid="7", command=0,
            )
            for oid in oids
        ]  # fmt: skip

    def look(self, *, is_following: bool = True) -> set[str]:
        connection: Any = self
        return self.watch.check(connection, [(self.items, self.root)], is_following=is_following)

    def become(self, kind: TableType) -> None:
        config = self.items.config.model_copy(update={"type": kind})
        self.items = dataclasses.replace(self.items, config=config)
        self.look()

    def describe(self, oid: int, commit_lsn: int = 5000) -> None:
        """Have the stream describe the root and then a partition."""
        leaf = dataclasses.replace(self.root.relation, oid=oid, table=TableName(schema="public", name=f"p{oid}"))
        for relation in (self.root.relation, leaf):
            assert self.messages.follow(relation, commit_lsn, 1) is relation

    @property
    def is_put_off(self) -> bool:
        return self.items.key in self.source_tables.put_off[Evidence.PARTITIONS]

    @property
    def known(self) -> KnownPartitions:
        known = self.notes.known(self.items)
        assert known is not None
        return known


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(partitions, "horizon", lambda scene: scene.horizon)
    for module, name in (
        (partition_suspects, "end_to_send"), (partition_watch, "wal_end"), (stale_stream, "end_to_send"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda scene: scene.wal_lsn)
    monkeypatch.setattr(partitions, "load", lambda scene, roots: dict.fromkeys(roots, scene.found))
    monkeypatch.setattr(partitions, "types", lambda scene, roots: dict.fromkeys(roots, scene.types))
    monkeypatch.setattr(partitions, "altered", lambda scene, *_: scene.altered)
    monkeypatch.setattr(partitions, "has_rewritten_rows", lambda scene, _: scene.has_rewritten_rows)
    monkeypatch.setattr(partitions, "has_earlier_rows", lambda scene, _: scene.has_earlier_rows)
    monkeypatch.setattr(partitions, "are_seen", lambda scene: scene.are_seen)
    monkeypatch.setattr(partitions, "is_confirmed", lambda scene, _, at_lsn: scene.confirmed_lsn >= at_lsn)
    monkeypatch.setattr(partitions, "has_rows_from_before", lambda scene, *_: scene.has_rows_from_before)
    return World(tmp_path)


def is_compared(world: World) -> bool:
    look = world.source_tables.look(world.items)
    return (look.is_resync_due and look.is_repair) or follows_until_then(world)


def follows_until_then(world: World) -> bool:
    return world.items.key in world.source_tables.gap_starts.following


def test_a_truncated_partition_has_its_table_compared(world: World) -> None:
    world.hang(10, 11, file_11=99)
    world.hear(7999)
    for _ in range(3):
        world.look()
        assert not is_compared(world), "the stream may yet bring a TRUNCATE of the table"
    world.hear(8000)
    world.look()
    assert is_compared(world)
    assert world.progress.held(world.source.name) == {"shop.items"}
    assert world.source_tables.state(world.items) is State.NEW
    assert world.sent == ["shop.items"]
    assert world.known.oids == {10, 11}, "until it is compared, the next start would find it as well"


def keep_no_more(world: World) -> None:
    world.notes.looked(world.items, world.known, dataclasses.replace(world.known, has_kept=True))


#: What has a table compared.
REASONS = {
    "truncated": lambda world: world.hang(10, 11, file_11=99),
    "gone": lambda world: world.hang(10),
    "kept no more": keep_no_more,
}


@pytest.mark.parametrize("what", REASONS.values(), ids=REASONS)
@pytest.mark.parametrize("kind", [TableType.HISTORY, TableType.CLONE])
def test_a_history_is_not_compared_before_the_stream_has_brought_what_it_has(
    world: World, kind: TableType, what: Callable[[World], None]
) -> None:
    world.become(kind)
    what(world)
    world.wal_lsn = 9000
    world.look(is_following=False)
    is_clone = kind is TableType.CLONE
    assert is_compared(world) is is_clone, "times of the comparison are as good for a clone"
    assert world.is_put_off is not is_clone, "a job does not end before"
    if not is_clone:
        world.look()
        assert not is_compared(world)
        assert world.is_put_off
        world.hear(9000)
        world.look()
        assert is_compared(world), "the first look behind all that the WAL had at the start"
        assert world.is_put_off, "until it is compared"


@pytest.mark.parametrize("kind", list(TableType))
def test_a_job_does_not_end_before_a_look_knows_what_became_of_a_partition_that_the_stream_told_of(
    world: World, kind: TableType
) -> None:
    """It was made, filled and dropped between two looks: its rows may be in the lake by now."""
    world.become(kind)
    world.look(is_following=False)
    assert not world.is_put_off
    world.describe(12)
    assert world.is_put_off
    world.look()
    assert world.is_put_off, "other sessions may see it a moment later"
    world.look()
    if kind is TableType.HISTORY:
        assert world.is_put_off, "the stream may yet bring more"
        world.look()
    assert is_compared(world) is kind.is_comparable
    assert world.is_put_off is kind.is_comparable, "until a look finds the partitions of the comparison"


def test_a_job_waits_for_a_look_behind_rows_that_came_under_the_name_of_a_partition(world: World) -> None:
    leaf = dataclasses.replace(world.root.relation, oid=11)
    world.messages.follow(leaf, 5000, 1)
    assert world.is_put_off
    world.look()
    assert is_compared(world)
    world.notes.copied(world.items, world.found, world.horizon, at=9000)
    world.source_tables.set(world.items, State.STREAMING)
    world.look()
    assert not world.is_put_off


def test_what_the_stream_tells_while_a_table_is_copied_is_waited_for_behind_the_copy(world: World) -> None:
    world.lake.forget("shop.items", world.source.name)
    world.look()
    assert not world.is_put_off
    world.describe(12)
    world.look()
    assert world.is_put_off


def test_a_history_waits_for_rows_of_a_partition_that_the_stream_may_bring(world: World) -> None:
    world.become(TableType.HISTORY)
    world.has_earlier_rows = True
    world.hang(10, 11, 12)
    world.look()
    assert not is_compared(world)
    world.look()
    assert is_compared(world)


def test_a_truncate_of_the_table_comes_in_the_stream(world: World) -> None:
    world.hang(10, 11, file_10=98, file_11=99, xid_10=741, xid_11=741)
    world.look()
    world.messages.truncated(world.root.relation, 5000, 741)
    world.look()
    world.look()
    assert not is_compared(world)
    world.hang(10, 11, file_10=98, file_11=100, xid_10=741, xid_11=742)
    world.look()
    world.look()
    assert is_compared(world), "then one partition alone"


def test_what_happened_while_nobody_followed_is_compared_before_the_stream_begins(world: World) -> None:
    world.source_tables.set(world.items, State.NEW)
    world.hang(10)
    world.look(is_following=False)
    assert is_compared(world)
    assert world.forgotten == [world.items]
    assert world.sent == []


def test_a_table_that_is_to_be_copied_needs_no_comparison(world: World) -> None:
    world.source_tables.resync(world.items, is_due=True)
    world.hang(10)
    world.look()
    assert world.source_tables.look(world.items).is_resync_due
    assert not is_compared(world)


@pytest.mark.parametrize("state", [State.PAUSED, State.ERROR, State.COPYING, State.NEW])
def test_a_table_that_does_not_follow_is_looked_at_later(world: World, state: State) -> None:
    world.source_tables.set(world.items, state)
    world.hang(10)
    world.look()
    assert not is_compared(world)
    assert world.known.oids == {10, 11}


@pytest.mark.parametrize("is_following", [True, False])
def test_a_stream_that_does_not_see_partitions_come_begins_anew_behind_them(
    world: World, *, is_following: bool
) -> None:
    world.are_seen, world.has_earlier_rows = False, True
    world.confirmed_lsn = 7000
    world.hang(10, 11, 12)
    world.look(is_following=is_following)
    world.wal_lsn = 9000
    world.look()
    assert not is_compared(world)
    assert not world.watch.is_stream_stale
    assert world.is_put_off, "a job does not end before"
    assert world.known.oids == {10, 11}
    world.confirmed_lsn = 8000
    world.look()
    assert is_compared(world)
    assert world.watch.is_stream_stale
    assert not world.is_put_off
    assert not world.watch.is_stream_stale, "once"


def test_a_stream_that_does_not_see_a_partition_go_begins_anew_behind_that(world: World) -> None:
    world.become(TableType.APPEND)
    world.are_seen = False
    world.confirmed_lsn = 7999
    world.hang(10)
    world.look()
    assert world.known.oids == {10, 11}
    world.confirmed_lsn = 8001
    world.look()
    assert world.known.oids == {10}
    assert world.watch.is_stream_stale
    world.look()
    assert not world.watch.is_stream_stale


def test_a_partition_that_cannot_be_read_has_a_stream_begin_anew_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> bool:
        raise SourceRefused("permission denied")

    monkeypatch.setattr(partitions, "has_earlier_rows", refused)
    world.are_seen = False
    world.hang(10, 11, 12)
    world.confirmed_lsn = 8000
    world.look()
    assert world.watch.is_stream_stale
    world.look()
    assert not world.watch.is_stream_stale
    world.context.pasts.give_up(0)
    world.look()
    assert world.watch.is_stream_stale, "of another past"


def test_a_rewritten_partition_is_remembered_with_its_file(world: World) -> None:
    world.has_rows_from_before = True
    world.hang(10, 11, file_11=99)
    world.look()
    assert not is_compared(world)
    assert [part.file for part in world.known.parts] == [10, 99]


def test_a_partition_that_came_and_went_between_two_looks_is_known_from_the_stream(world: World) -> None:
    world.describe(12)
    world.look()
    assert not is_compared(world), "the catalog may show it yet"
    world.look()
    assert is_compared(world)
    assert world.followed[0] is world.root.relation


def test_a_partition_that_the_catalog_shows_later_is_nothing_special(world: World) -> None:
    world.describe(12)
    world.look()
    world.hang(10, 11, 12)
    world.look()
    world.look()
    assert not is_compared(world)
    assert (world.known.oids, world.known.seen) == ({10, 11, 12}, ())


def test_what_the_lake_has_already_is_no_news(world: World) -> None:
    world.describe(12, commit_lsn=999)  # the table is there up to 1000
    assert world.known.seen == ()


def test_rows_of_a_partition_under_its_own_name_are_missed(world: World) -> None:
    leaf = dataclasses.replace(world.root.relation, oid=11, table=TableName(schema="public", name="p11"))
    world.messages.follow(leaf, 999, 1)
    world.look()
    assert not is_compared(world), "the lake has these"
    world.messages.follow(world.root.relation, 5000, 1)
    world.messages.follow(leaf, 5000, 1)
    world.look()
    assert not is_compared(world), "they came as the root's"
    world.messages.follow(leaf, 5000, 1)
    world.look()
    assert is_compared(world)


def test_another_table_that_is_described_behind_a_root_is_none_of_its_partitions(world: World) -> None:
    columns = world.root.relation.columns[:1]
    other = dataclasses.replace(world.root.relation, oid=77, columns=columns)
    world.messages.follow(world.root.relation, 5000, 1)
    world.messages.follow(other, 5000, 1)
    world.messages.follow(dataclasses.replace(world.root.relation, oid=78), 5000, 1)
    assert world.known.seen == ()


def test_a_changelog_goes_on_without_a_truncate_when_a_person_says_so(world: World) -> None:
    world.become(TableType.CHANGELOG)
    world.hang(10, 11, file_11=99)
    world.look(is_following=False)
    assert world.source_tables.state(world.items) is State.STREAMING, (
        "the stream may yet bring a TRUNCATE of the table"
    )
    for _ in range(2):
        world.look()
    error = world.source_tables.look(world.items).error
    assert isinstance(error, ChangesLost)
    world.approvals.give("shop.items", error)
    world.states.activate("shop.items", world.source.name, 1)
    world.source_tables.set(world.items, State.STREAMING)
    for _ in range(2):
        world.look()
    assert world.source_tables.state(world.items) is State.STREAMING
    assert [part.file for part in world.known.parts] == [10, 99]
    assert not world.approvals.is_gap_accepted(world.items)


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
def test_rows_of_a_partition_that_may_have_come_without_wal_are_a_gap(world: World, kind: TableType) -> None:
    """Which a person may agree to, and the table remembers."""
    world.become(kind)
    world.has_rewritten_rows = True
    world.hang(10, 11, file_11=99)
    world.look(is_following=False)
    assert not is_compared(world), "the stream may yet tell of a TRUNCATE"
    for _ in range(2):
        world.look()
    assert is_compared(world)
    assert world.source_tables.gap_starts.get(world.items) == 8000
    assert [part.file for part in world.known.parts] == [10, 11], "until the gap is noted"


@pytest.mark.parametrize("kind", list(TableType))
def test_a_truncate_of_the_table_may_hide_a_load_without_wal(world: World, kind: TableType) -> None:
    """By the same transaction."""
    world.become(kind)
    world.messages.truncated(world.root.relation, 5000, 741)
    for has_rewritten_rows in (False, True):
        world.has_rewritten_rows = has_rewritten_rows
        world.hang(10, 11, file_11=99 + has_rewritten_rows, xid_11=741)
        for _ in range(2):
            world.look()
        assert is_compared(world) == has_rewritten_rows


@pytest.mark.parametrize("kind", list(TableType))
def test_a_truncate_of_the_table_is_believed_if_a_partition_cannot_be_read_nor_compared(
    world: World, kind: TableType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise SourceRefused("it is not for us")

    monkeypatch.setattr(partitions, "has_rewritten_rows", refuse)
    world.become(kind)
    world.messages.truncated(world.root.relation, 5000, 741)
    world.hang(10, 11, file_11=99, xid_11=741)
    for _ in range(2):
        world.look()
    assert is_compared(world) == (kind in {TableType.CLONE, TableType.HISTORY})


@pytest.mark.parametrize("kind", [TableType.APPEND, TableType.CHANGELOG])
@pytest.mark.parametrize(("altered", "has_gap"), [({1}, False), ({2, 3}, True)])
def test_alter_type_gives_a_partition_a_file_and_other_changes_of_columns_do_not(
    world: World, kind: TableType, altered: set[int], *, has_gap: bool
) -> None:
    world.types = "1:23:-1 2:23:-1"
    world.become(kind)
    world.types, world.altered = "1:20:-1 2:23:-1 3:23:-1", frozenset(altered)
    world.has_rewritten_rows = True
    world.hang(10, 11, file_11=99)
    for _ in range(3):
        world.look()
    assert is_compared(world) == has_gap
    assert world.known.types == ("1:23:-1 2:23:-1" if has_gap else world.types)


def test_alter_type_may_come_right_behind_a_copy_before_any_look(world: World) -> None:
    world.become(TableType.CHANGELOG)
    world.notes.copied(world.items, world.found, world.horizon, 7000, types="1:23:-1")
    world.types, world.altered, world.has_rewritten_rows = "1:20:-1", frozenset({1}), True
    world.hang(10, 11, file_11=99)
    for _ in range(3):
        world.look()
    assert world.source_tables.state(world.items) is State.STREAMING


def test_alter_type_may_come_with_a_truncate_of_the_table(world: World) -> None:
    world.become(TableType.CHANGELOG)
    world.messages.truncated(world.root.relation, 5000, 741)
    world.types, world.altered, world.has_rewritten_rows = "1:20:-1", frozenset({1}), True
    world.hang(10, 11, file_11=99, xid_11=741)
    for _ in range(3):
        world.look()
    assert not is_compared(world)
    assert world.source_tables.state(world.items) is State.STREAMING


def test_a_partition_that_has_its_toast_table_was_always_logged(world: World) -> None:
    world.hang(10, 11, toast_11=77)
    world.become(TableType.APPEND)
    world.has_rewritten_rows = True
    for file, toast, has_gap in ((98, 77, False), (99, 78, True)):
        world.hang(10, 11, file_11=file, toast_11=toast)
        for _ in range(2):
            world.look()
        assert is_compared(world) == has_gap


def test_a_gap_begins_with_the_last_look_at_the_partitions(world: World) -> None:
    """What was applied since may be behind what is missing."""
    assert world.watch.proved_lsn is None, "it is not usable"
    world.source_tables.tables = {world.items.key: world.root}
    assert world.watch.proved_lsn == 0, "the first look compares with nothing"
    world.wal_lsn = 8500
    world.look()
    assert world.watch.proved_lsn == 8500
    world.hang(10, 11, file_10=90, xid_10=80)
    world.wal_lsn = 9000
    world.look()
    assert not is_compared(world), "the stream may yet tell"
    assert world.watch.proved_lsn == 8500
    world.hear(9000)
    world.look()
    assert is_compared(world)
    assert world.source_tables.gap_starts.get(world.items) == 8500


def test_a_look_before_a_copy_proves_nothing_of_its_rows(world: World) -> None:
    world.source_tables.tables = {world.items.key: world.root}
    world.look()
    assert world.watch.proved_lsn == 8000
    world.lake.forget("shop.items", world.source.name)
    world.look(is_following=False)
    assert world.watch.proved_lsn == 0


def test_a_partition_that_is_locked_or_may_not_be_read_proves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(error: type[SourceError]) -> None:
        def look(*_: object) -> bool:
            raise error("it is not for us")

        monkeypatch.setattr(partitions, "has_earlier_rows", look)

    world.source_tables.tables = {world.items.key: world.root}
    world.look()
    world.hang(10, 11, 12)
    for wal_lsn, error in ((8600, SourceLocked), (8700, SourceRefused)):
        world.wal_lsn = wal_lsn
        cannot(error)
        world.look()
        assert world.watch.proved_lsn == 8000
        assert not is_compared(world)
    cannot(SourceLocked)
    assert world.look(is_following=False) == {"shop.items"}
    look = world.source_tables.look(world.items)
    assert (look.state, str(look.error), look.retry_at is not None) == (State.ERROR, "it is not for us", True)
    world.source_tables.set(world.items, State.STREAMING)
    monkeypatch.setattr(partitions, "has_earlier_rows", lambda *_: True)
    world.look()
    assert is_compared(world)
    assert world.source_tables.gap_starts.get(world.items) == 8000


def test_what_was_seen_of_a_past_says_nothing_of_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A horizon and a place in the WAL that lie ahead of a server that was put back."""
    asked: list[int] = []
    monkeypatch.setattr(partitions, "has_rows_from_before", lambda *found: asked.append(found[-1]))
    world.horizon = 900
    world.look()
    world.hang(10, 11, file_11=99)
    world.wal_lsn = 90000
    world.look()
    assert asked == [900]
    world.context.pasts.give_up(0)
    world.wal_lsn = 8000
    world.look()
    assert not is_compared(world), "the stream may yet tell"
    world.look()
    assert is_compared(world)
    assert asked[1:] == [100, 100], "what is remembered in the lake goes with the rows that are there"


@pytest.mark.parametrize(("left_at", "is_known"), [(8000, True), (7999, False)])
def test_partitions_are_known_on_a_timeline_that_has_them(
    world: World, monkeypatch: pytest.MonkeyPatch, left_at: int, is_known: bool
) -> None:
    asked: list[int] = []

    def history(_: str, timeline: int) -> str:
        asked.append(timeline)
        return f"1\t0/{left_at:X}\tno recovery target specified"

    monkeypatch.setattr(slots, "timeline_history", history)
    monkeypatch.setattr(partitions, "has_earlier_rows", lambda *_: True)
    world.horizon = partitions.blank_horizon(1) + 100
    world.look()
    world.horizon = partitions.blank_horizon(2) + 100
    world.look()
    assert is_compared(world) is not is_known
    assert (world.known.timeline, asked) == (2, [2])
    world.horizon = partitions.blank_horizon(1) + 100  # it went back
    world.look()
    assert (world.known.timeline, asked, is_compared(world)) == (1, [2], True)


def test_a_table_that_is_to_be_copied_keeps_no_truncate_of_another_timeline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "timeline_history", lambda *_: "1\t0/1388\tno recovery target specified")
    world.horizon = partitions.blank_horizon(1) + 100
    world.look()
    world.messages.truncated(world.root.relation, 5000, 741)
    world.lake.forget("shop.items", world.source.name)
    world.horizon = partitions.blank_horizon(2) + 100
    world.look(is_following=False)
    assert world.known.truncated == ()


@pytest.mark.parametrize("is_soft", [False, True])
def test_a_table_that_shows_what_was_follows_until_it_is_compared(world: World, *, is_soft: bool) -> None:
    if is_soft:
        config = world.items.config.model_copy(update={"deletes": Deletes.SOFT})
        world.items = dataclasses.replace(world.items, config=config)
    else:
        world.become(TableType.HISTORY)
    world.hang(10, 11, file_11=99)
    for _ in range(3):
        world.look()
    assert follows_until_then(world)
    assert world.source_tables.gap_starts.get(world.items) is not None
    assert not world.source_tables.look(world.items).is_resync_due, "whoever kuvasz is next finds it as well"
    assert (world.source_tables.is_streaming(world.items), world.progress.held(world.source.name)) == (True, set())
    assert world.sent == ["shop.items"], "once"
    assert world.forgotten == []
    assert world.is_put_off, "a job does not end before"
    world.notes.copied(world.items, world.found, world.horizon, at=9000)
    world.source_tables.gap_starts.drop(world.items)
    world.look()
    assert not is_compared(world)
    assert not world.is_put_off


@pytest.mark.parametrize("is_of_that", [True, False])
def test_a_table_that_cannot_follow_for_want_of_what_it_is_compared_for_is_compared_from_where_it_is(
    world: World, *, is_of_that: bool
) -> None:
    """Rows came with an attached partition, and an update leaves out their large values."""
    world.become(TableType.HISTORY)
    world.has_earlier_rows = True
    world.hang(10, 11, 12)
    for _ in range(2):
        world.look()
    assert follows_until_then(world)
    gap_lsn = world.source_tables.gap_starts.get(world.items)
    error = VersionLost("an updated row") if is_of_that else TableError("a value does not fit")
    world.source_tables.set(world.items, State.ERROR, error)
    world.look()
    assert follows_until_then(world) is not is_of_that
    look = world.source_tables.look(world.items)
    assert (look.is_resync_due, look.is_repair) == (is_of_that, is_of_that)
    assert world.sent == ["shop.items"] * (1 + is_of_that)
    assert world.source_tables.gap_starts.get(world.items) == gap_lsn
