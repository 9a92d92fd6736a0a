from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import ClusterRole
from kuvasz.errors import Retry, SlotLost, SourceError, SourceRefused, SourceReplaced
from kuvasz.model import SourcePosition, TableType
from kuvasz.source import publication, slots
from kuvasz.source.catalog import introspect
from kuvasz.staging.staged_past import StagedPast
from kuvasz.state.ports import SourceRecord
from kuvasz.state.staged.memory import MemoryGroupIndex, MemoryIndex
from kuvasz.state.staged.orders import KnownPast, StreamOrder
from kuvasz.sync.context.gap_starts import Evidence, GapStarts
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.rules.targets import feed_of, target_of
from tests.support.scene import Scene
from tests.support.staged_world import Process

OURS = 7


class World(Scene):
    """A scene with its slot, and the server's answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.standing = self.shared.state.record(self.source.name)
        self.parked: dict[str, int] = {}
        self.dropped: list[str] = []
        self.slot = Slot(self.context, self.standing, parked_lsn=lambda target: self.parked.get(target, 0))
        self.found: slots.SlotState | None = self.state()
        self.is_published = True
        self.timeline, self.wal_end, self.history = 1, 9000, ""
        monkeypatch.setattr(slots, "describe", lambda *_: self.found)
        monkeypatch.setattr(slots, "drop", lambda _, name: self.dropped.append(name))
        monkeypatch.setattr(slots, "user", lambda *_: "pid 99")
        monkeypatch.setattr(slots, "timeline_history", lambda *_: self.history)
        monkeypatch.setattr(introspect, "wal_end", lambda _: self.wal_end)
        monkeypatch.setattr(publication, "exists", lambda *_: self.is_published)

    def state(self, **facts: Any) -> slots.SlotState:
        values: dict[str, Any] = {
            "name": self.slot.name, "plugin": "pgoutput", "database": "shop", "is_temporary": False,
            "active_pid": None, "confirmed_flush_lsn": 1500, "restart_lsn": 1000, "wal_status": "reserved",
            "safe_wal_bytes": None, "retained_bytes": 0,
        }  # fmt: skip
        return slots.SlotState(**(values | facts))

    def check(self, *, is_once: bool = False) -> bool:
        facts: Any = SimpleNamespace(
            system_identifier=OURS,
            timeline=self.timeline,
            version=180000,
            is_in_recovery=False,
            started_us=66,
            database="shop",
        )
        return self.slot.check(None, facts, is_once=is_once)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_the_source_goes_on_in_its_slot(world: World) -> None:
    world.copy(world.items, 1200)
    assert world.check()
    assert world.standing.standing == SourceRecord(system_id="7", timeline=1, confirmed_lsn=1500)


def test_a_table_that_is_paused_needs_no_slot_where_all_is_copied_once(world: World) -> None:
    world.copy(world.items, 1200)
    world.states.pause("shop.items", world.source.name)
    world.found = None
    with pytest.raises(SlotLost):
        world.check()
    assert not world.check(is_once=True)


def test_how_far_no_row_is_missing_outlives_the_process_but_not_the_slot(world: World) -> None:
    world.copy(world.items, 1200)
    assert world.check()
    assert world.source_tables.gap_starts.looked_lsn == 0
    world.slot.looked(1100)
    assert world.check()
    assert world.source_tables.gap_starts.looked_lsn == 0, "this process looks at each table itself"
    assert world.standing.standing.looked_lsn == 1100
    starts = world.source_tables.gap_starts = GapStarts()  # the next process
    world.context.pasts.whenever_given_up(starts.fall_back)
    world.source_tables.resync(world.others, is_due=True, is_repair=True)
    assert world.check()
    assert (starts.looked_lsn, starts.get(world.items), starts.get(world.others)) == (1100, None, 1100)
    world.source_tables.resync(world.items, is_due=True)
    assert world.check()
    assert (starts.looked_lsn, world.standing.standing.looked_lsn) == (0, 0), "nothing of that stream counts any more"


def test_a_source_that_begins_anew_where_another_process_reads_it_begins_where_that_one_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Process(MemoryIndex(), {}, ClusterRole.APPLY).log
    log.begin_anew(world.source.name, 1500)
    log.give(world.source.name, StreamOrder(slot="s", publications=(), system_id="", timeline=1), KnownPast())
    world.slot._staged = StagedPast(log, world.source.name, world.shared.progress)

    def end(*_: object) -> None:
        assert log.index.orders() == {}
        world.found = world.state(confirmed_flush_lsn=1700)

    monkeypatch.setattr(slots, "end_reader", end)
    world.found = world.state(active_pid=99)
    assert world.check()
    assert world.standing.standing.confirmed_lsn == 1700, "else it had been moved by someone else"
    assert log.source(world.source.name).known.lsn == 1700


def test_a_source_of_which_nobody_knows_what_was_staged_is_lost(world: World) -> None:
    """The coordinator is another one, or calls the cluster otherwise: the slot was told of what the lake lacks."""
    log = Process(MemoryIndex(), {}, ClusterRole.APPLY).log
    world.copy(world.items, 1200)
    world.slot._staged = StagedPast(log, world.source.name, world.shared.progress)
    with pytest.raises(SlotLost, match=r"nothing is known of it in .*: changes before 0/5DC may have been") as told:
        world.check()
    assert "the coordinator, and the `cluster.name`, that it had" in (told.value.hint or "")
    assert log.source(world.source.name).position is None
    world.standing.update(SourceRecord(system_id="7", timeline=1))
    assert world.check(), "it was known before there was a log"
    assert log.source(world.source.name).known.lsn == 1500
    # The record outlives what the log's index knew of the source, and agrees with the slot.
    assert world.standing.standing == SourceRecord(system_id="7", timeline=1, confirmed_lsn=1500, is_staged=True)
    log = Process(MemoryIndex(), {}, ClusterRole.APPLY).log
    world.slot._staged = StagedPast(log, world.source.name, world.shared.progress)
    with pytest.raises(SlotLost, match="nothing is known of it in"):
        world.check()
    # A kuvasz without the log has let it go only when the lake had all of it.
    world.slot._staged = StagedPast(None, world.source.name, world.shared.progress)
    assert world.check()
    world.slot._staged = StagedPast(log, world.source.name, world.shared.progress)
    assert world.check()


def test_a_group_that_looks_late_at_a_server_that_took_over_goes_on_with_what_was_staged_of_it(world: World) -> None:
    """What is staged of the new one is no part of what the group's lake has of the one before."""
    name, index = world.source.name, MemoryIndex()
    index.begin_anew(name, 1200)
    blue = index.of_group("blue")
    blue.open()
    blue.begin_anew(name, 0)
    log = Process(blue, {}, ClusterRole.APPLY, "blue").log  # type: ignore[arg-type]
    world.copy(world.items, 1200)
    world.standing.update(SourceRecord(system_id="7", timeline=1, confirmed_lsn=1200, is_staged=True))
    # The first one has gone on with the other server, of which much is staged by now.
    index.set_back(name, 0x1000)
    at = index.positions()[name]
    index.append("a", [], {name: (at, dataclasses.replace(at, lsn=0x2000, ended=0x2000, number=1))})
    world.timeline, world.history, world.wal_end = 2, "1\t0/1000\tpromoted", 0x3000
    world.found = world.state(confirmed_flush_lsn=0x2000)
    world.slot._staged = StagedPast(log, name, world.shared.progress)
    assert world.check()
    assert (world.standing.standing.timeline, world.standing.standing.proved_lsn) == (2, 1200)
    assert log.source(name).applied == 1200, "it is told all that it lacks"
    # One that had more of the server before than that left behind is lost.
    world.standing.update(SourceRecord(system_id="7", timeline=1, confirmed_lsn=1200, is_staged=True))
    world.history = "1\t0/400\tpromoted"
    with pytest.raises(SlotLost, match="left timeline 1 at 0/400, and the lake has its changes up to 0/4B0"):
        world.check()


def test_without_a_slot_the_source_is_new(world: World) -> None:
    world.found = None
    assert not world.check()


def test_a_slot_that_is_lost_is_dropped_only_if_nothing_was_copied(world: World) -> None:
    world.found = world.state(wal_status="lost")
    assert not world.check()
    assert world.dropped == [world.slot.name]
    world.dropped.clear()
    world.copy(world.items)
    with pytest.raises(SlotLost):
        world.check()
    assert world.dropped == []


def test_a_slot_of_another_database_is_nobodys_to_drop(world: World) -> None:
    for spec in (None, world.items):
        if spec is not None:
            world.copy(spec)
        for facts in ({}, {"wal_status": "lost"}):
            world.found = world.state(database="another", **facts)
            with pytest.raises(SourceRefused, match="slot kuvasz_shop is of database another"):
                world.check()
    assert world.dropped == []


def test_rows_of_another_cluster_stop_it(world: World) -> None:
    feed = feed_of(world.source, world.items)
    world.lake.prepare(target_of(world.items), feed, world.table(world.items).relation)
    position = SourcePosition(lsn=1000, system_id="8")
    world.lake.copy(feed, world.table(world.items).relation, [], position, lambda *_: None)
    with pytest.raises(SlotLost, match=r"cluster 7 answers, but table shop.items holds rows of cluster 8"):
        world.check()


def test_a_source_that_lacks_what_the_lake_has_is_told_before_anything_else(world: World) -> None:
    world.copy(world.items, 1200)
    world.wal_end = 1100
    with pytest.raises(SourceReplaced, match="its WAL ends at 0/44C, and the lake has its changes up to 0/4B0"):
        world.check()
    assert world.slot.is_replaced


def test_whose_tables_are_all_copied_again_begins_anew_as_another_source(world: World) -> None:
    for spec in world.source.tables:
        world.copy(spec, 1200)
        world.source_tables.resync(spec, is_due=True)
    world.wal_end = 1100
    given_up: list[int] = []
    world.context.pasts.whenever_given_up(given_up.append)
    assert not world.check()
    assert world.slot.is_replaced
    assert world.dropped == [world.slot.name], "nothing of the old past is confirmed in it"
    assert given_up == [0], "nor is anything of it remembered"


def test_a_table_that_is_paused_still_needs_the_stream(world: World) -> None:
    world.copy(world.items, 1200)
    world.source_tables.resync(world.items, is_due=True)
    world.states.pause("shop.items", world.source.name)
    world.found = None
    with pytest.raises(SlotLost, match="is gone"):
        world.check()


def test_rows_of_an_earlier_past_are_copied_again(world: World) -> None:
    world.standing.update(SourceRecord(system_id="7", timeline=1, history=2, confirmed_lsn=1500))
    feed = feed_of(world.source, world.items)
    world.lake.prepare(target_of(world.items), feed, world.table(world.items).relation)
    earlier = SourcePosition(lsn=99_000, system_id="8", history=1)
    world.lake.copy(feed, world.table(world.items).relation, [], earlier, lambda *_: None)
    feed = feed_of(world.source, world.others)
    world.lake.prepare(target_of(world.others), feed, world.table(world.others).relation)
    now = SourcePosition(lsn=1200, system_id="7", history=2)
    world.lake.copy(feed, world.table(world.others).relation, [], now, lambda *_: None)
    assert world.check()
    assert world.source_tables.look(world.items).is_resync_due
    assert not world.source_tables.look(world.others).is_resync_due
    assert (world.slot.stale, world.slot.history) == ({"shop.items"}, 2)


def test_after_a_failover_nothing_counts_as_confirmed_beyond_the_slot(world: World) -> None:
    world.copy(world.items, 1200)
    world.standing.update(SourceRecord(system_id="7", timeline=1, confirmed_lsn=5000))
    world.progress.received(world.source.name, 5000)
    world.timeline, world.history, world.wal_end = 2, "1\t0/1000\tpromoted", 0x1000
    assert world.check()
    assert world.progress.confirmable(world.source.name) == 1500
    assert world.standing.standing == SourceRecord(
        system_id="7", timeline=2, confirmed_lsn=1500, started_us=66, proved_lsn=1200
    )


@pytest.mark.parametrize(("looked", "believed"), [(1100, 1100), (4000, 1200)])
def test_after_a_failover_no_look_counts_beyond_what_the_lake_has(world: World, looked: int, believed: int) -> None:
    world.copy(world.items, 1200)
    world.standing.update(SourceRecord(system_id="7", timeline=1, confirmed_lsn=1500, looked_lsn=looked))
    world.source_tables.gap_starts.prove(Evidence.FILE, world.items, 5000)
    world.timeline, world.history, world.wal_end = 2, "1\t0/1000\tpromoted", 0x1000
    assert world.check()
    assert world.standing.standing.looked_lsn == world.source_tables.gap_starts.looked_lsn == believed
    world.source_tables.gap_starts.note(Evidence.FILE, world.items)
    assert world.source_tables.gap_starts.get(world.items) == 1200


def test_a_new_slot_begins_with_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = world.source.name
    world.progress.routed(name, 0, 5000)
    world.progress.received(name, 5000)
    taken: Any = SimpleNamespace(consistent_point=800, started_us=77)
    monkeypatch.setattr(slots, "create", lambda *_, **__: taken)
    starts = world.source_tables.gap_starts
    starts.looked_lsn = 600
    starts.prove(Evidence.PUBLICATION, world.items, 790)  # the publication was made before it
    world.slot.create(None, SimpleNamespace(system_identifier=OURS, timeline=3, version=160000, is_in_recovery=False))
    assert world.progress.confirmable(name) == world.progress.received_lsn(name) == 800
    starts.note(Evidence.PUBLICATION, world.items)
    assert (starts.looked_lsn, starts.get(world.items)) == (0, 790)
    assert world.progress.routed_lsn(name) == 0
    assert not world.progress.pending(name)
    assert world.standing.standing == SourceRecord(
        system_id="7", timeline=3, history=1, confirmed_lsn=800, started_us=77
    )
    assert world.slot.is_of_now(taken)
    assert not world.slot.is_of_now(SimpleNamespace(started_us=78)), "it is not compared yet"


def test_a_slot_that_was_made_and_not_noted_begins_a_history_of_its_own(world: World) -> None:
    """Killed in between: what was counted by the number before is of another slot."""
    world.copy(world.items, 1200)
    world.source_tables.resync(world.items, is_due=True)
    world.standing.update(SourceRecord(system_id="7", timeline=1, history=0, confirmed_lsn=1000))
    assert world.check()
    assert world.slot.history == world.standing.standing.history == 1
    assert world.slot.applied_lsn() == 0, "nothing of the one before counts"


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_slot_of_something_else_is_not_touched_whatever_else_is_lost(world: World, *, has_rows: bool) -> None:
    """With `on_slot_lost: resync` a lost one is dropped, and made anew."""
    if has_rows:
        world.copy(world.items, 1200)
    world.found = world.state(plugin="test_decoding", wal_status="lost")
    with pytest.raises(SourceRefused, match="cannot be used: its plugin is test_decoding") as told:
        world.check()
    assert not isinstance(told.value, SlotLost)
    assert (world.dropped, "`sid` another name" in (told.value.hint or "")) == ([], True)


def test_a_missing_publication_is_a_gap(world: World) -> None:
    world.is_published = False
    assert world.check(), "nothing was copied"
    world.copy(world.items, history=world.slot.history)
    with pytest.raises(SlotLost, match="was dropped: changes after"):
        world.check()


def test_a_slot_in_use_is_waited_for(world: World) -> None:
    world.found = world.state(active_pid=99)
    with pytest.raises(SourceError, match="is in use by pid 99"):
        world.check()


def test_what_was_confirmed_of_an_earlier_slot_counts_for_no_new_source(world: World) -> None:
    world.standing.update(SourceRecord(system_id="7", confirmed_lsn=5000))
    assert world.check()
    assert world.standing.standing.confirmed_lsn == 1500


def test_only_copies_that_no_transaction_has_followed_need_a_proof(world: World) -> None:
    def copied() -> list[int]:
        return [position.lsn for position in world.slot.copied()]

    world.copy(world.others, 1100)
    relation, feed = world.table(world.items).relation, feed_of(world.source, world.items)
    world.lake.prepare(target_of(world.items), feed, relation)
    world.lake.copy(feed, relation, [], SourcePosition(lsn=1300, system_id="7", commit_lsn=1290), lambda *_: None)
    assert copied() == [1100]
    world.source_tables.resync(world.others, is_due=True)
    assert copied() == [], "its rows count for nothing"


def test_a_server_that_was_never_compared_says_nothing(world: World) -> None:
    taken: Any = SimpleNamespace(started_us=77)
    assert world.slot.is_of_now(taken)


def test_what_is_parked_counts_as_applied(world: World) -> None:
    assert world.slot.applied_lsn() == 0
    world.copy(world.items, 1200)
    world.copy(world.others, 1100)
    assert world.slot.applied_lsn() == 1200
    world.parked["shop.others"] = 1300
    assert world.slot.applied_lsn() == 1300


def test_snapshots_of_single_tables_have_slots_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []

    def create(_: str, name: str, *, temporary: bool, on_waiting: Any, **__: object) -> Any:
        made.append((name, temporary))
        if len(made) == 2:
            world.lifetime.end()
        on_waiting(())
        return SimpleNamespace(consistent_point=2000)

    monkeypatch.setattr(slots, "create", create)
    world.slot.snapshot(world.items)
    with pytest.raises(SourceError, match="stopped while the slot was being created"):
        world.slot.snapshot(world.items)
    (first, is_temporary), (second, _) = made
    assert is_temporary
    assert len({first, second, world.slot.name}) == 3
    assert first.startswith(f"{world.slot.name}_copy_")


def test_the_stream_must_bring_the_last_transaction_of_each_table_that_it_has(world: World) -> None:
    for spec, lsn in ((world.items, 1200), (world.others, 1300)):
        feed, relation = feed_of(world.source, spec), world.table(spec).relation
        world.lake.prepare(target_of(spec), feed, relation)
        position = SourcePosition(lsn=lsn + 8, commit_lsn=lsn, xid=lsn, commit_us=5)
        world.lake.copy(feed, relation, [], position, lambda *_: None)
    world.source_tables.tables["shop.items"] = world.table(world.items)
    assert world.slot.applied(with_inserts=False) == [(1200, 1200, 5)], "others is not looked at"
    world.source_tables.tables["shop.others"] = world.table(world.others, can_update=False)
    assert world.slot.applied(with_inserts=False) == [(1200, 1200, 5)], "its publication is not named"
    world.parked["shop.items"] = 1400
    assert world.slot.applied(with_inserts=True) == [(1200, 1200, 5), (1300, 1300, 5), (1400, 0, 0)]


@pytest.fixture
def first(world: World) -> MemoryIndex:
    """Return a log that another group has staged, which the scene's hears."""
    index = MemoryIndex()
    index.begin_anew(world.source.name, 1500)
    log = Process(MemoryGroupIndex(index, "blue"), {}, ClusterRole.APPLY).log
    world.slot._staged = StagedPast(log, world.source.name, world.shared.progress)
    return index


def test_a_group_of_a_log_waits_for_the_slot_of_others_and_never_drops_it(world: World, first: MemoryIndex) -> None:
    for state, why in ((None, "is not there"), (world.state(wal_status="lost"), "cannot be used")):
        world.found = state
        with pytest.raises(SourceError, match=why) as caught:
            world.check()
        assert caught.value.retry is Retry.TIMED
    world.slot.drop()
    world.found = world.state(active_pid=99)
    assert world.check(), "it is read by another process"
    assert (world.dropped, first.orders()) == ([], {})
    assert world.slot._staged.is_known
    assert first.positions()[world.source.name].lsn == 1500, "nothing begins anew for the others"
    assert world.standing.standing.started_us == 66


def test_a_group_whose_lake_is_behind_what_the_log_has_is_lost(world: World, first: MemoryIndex) -> None:
    world.slot._staged.begin_anew(1500)
    world.copy(world.items, 1450)
    assert world.check()
    first.withdraw(world.source.name)
    assert world.check(), "it looks at the source, and goes on"
    first.begin_anew(world.source.name, 1600)
    with pytest.raises(SlotLost, match="the log has not all that follows on what the lake of group blue has"):
        world.check()
    world.source_tables.resync(world.items, is_due=True)
    assert world.check()
    assert world.slot._staged.is_known


def test_a_group_copies_again_what_a_server_that_was_started_anew_may_not_have(
    world: World, first: MemoryIndex
) -> None:
    """Who has the slot proves what is staged, and nothing of a copy that nothing staged has followed."""
    world.slot._staged.begin_anew(1500)
    for spec, lsn in ((world.items, 1450), (world.others, 1600)):
        world.copy(spec, lsn, started_us=5)
    assert first.positions()[world.source.name].lsn == 1500
    assert world.check()
    due = [world.source_tables.look(spec).is_resync_due for spec in (world.items, world.others)]
    assert due == [False, True], "the slot stands behind the first one"


@pytest.mark.parametrize("is_repair", [True, False])
def test_a_group_copies_no_table_in_place_of_what_another_repair_would_keep(
    world: World, first: MemoryIndex, *, is_repair: bool
) -> None:
    world.slot._staged.begin_anew(1500)
    world.copy(world.others, 1600, started_us=5)
    config = world.others.config.model_copy(update={"type": TableType.APPEND})
    tables = tuple(
        dataclasses.replace(spec, config=config) if spec.key == world.others.key else spec
        for spec in world.source_tables.source.tables
    )
    world.source_tables.update(dataclasses.replace(world.source_tables.source, tables=tables))
    world.source_tables.resync(world.others, is_due=False, is_repair=is_repair)
    assert world.check()
    look = world.source_tables.look(world.others)
    assert (look.is_resync_due, look.is_repair) == (True, is_repair)
