"""Tables that have another file: what the stream explains, what their rows explain, and what is a gap."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError, SourceLocked
from kuvasz.source.catalog import partitions, relation_files
from kuvasz.source.catalog.relation_files import RelationFile
from kuvasz.state.tables import State
from kuvasz.sync.context.gap_starts import Evidence
from kuvasz.sync.watch import rewrite_watch
from kuvasz.sync.watch.rewrite_watch import RewriteWatch
from tests.support.changes import ITEMS
from tests.support.scene import Scene

HORIZON = (1 << 32) + 100  #: transactions have come round once


class World(Scene):
    """`items` streams, published with all tables, and was looked at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = {ITEMS.oid: RelationFile(file=1, file_xid=50, horizon=HORIZON)}
        self.wal_lsn, self.asked = 8000, list[int]()
        self.has_rows_from_before = self.begins_with_an_insert = False
        self.is_proved = False  #: as the last look said
        self.usable = [(self.items, self.table(self.items))]
        self.source_tables.tables[self.items.key] = self.usable[0][1]
        self.copy(self.items)
        self.states.activate("shop.items", self.source.name, 1)
        self.source_tables.set(self.items, State.STREAMING)
        self.watch = RewriteWatch(self.context)
        self.begin()
        self.hear(8000)

    def begin(self) -> None:
        connection: Any = self
        self.watch.begin(connection, self.usable)

    def hear(self, lsn: int) -> None:
        reader: Any = SimpleNamespace(received_lsn=lsn)
        self.context.current.reader = reader

    def write_anew(self, xid: int = 120, horizon: int = HORIZON + 50, **facts: Any) -> None:
        before = self.now[ITEMS.oid]
        now = dataclasses.replace(before, file=before.file + 1, file_xid=xid, horizon=horizon)
        self.become(dataclasses.replace(now, **facts))

    def become(self, now: RelationFile) -> None:
        self.now = {ITEMS.oid: now}

    def look(self, times: int = 1) -> None:
        connection: Any = self
        for _ in range(times):
            self.is_proved = self.watch.look(connection, self.wal_lsn)

    @property
    def is_put_off(self) -> bool:
        return self.items.key in self.source_tables.put_off[Evidence.FILE]

    @property
    def has_gap(self) -> bool:
        is_out = self.source_tables.state(self.items) is State.NEW
        assert self.source_tables.look(self.items).is_resync_due == is_out
        return is_out


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    def rows_from_before(world: Any, _: object, horizon: int) -> bool:
        world.asked.append(horizon)
        return bool(world.has_rows_from_before)

    monkeypatch.setattr(
        relation_files, "load", lambda world, oids: {oid: one for oid, one in world.now.items() if oid in oids}
    )
    monkeypatch.setattr(partitions, "has_rows_from_before", rows_from_before)
    monkeypatch.setattr(relation_files, "begins_with_an_insert", lambda world, *_: world.begins_with_an_insert)
    monkeypatch.setattr(rewrite_watch, "wal_end", lambda world: world.wal_lsn)
    monkeypatch.setattr(rewrite_watch, "end_to_send", lambda world: world.wal_lsn)
    return World(tmp_path)


def test_what_nothing_explains_is_a_gap(world: World) -> None:
    world.look(5)
    assert not world.has_gap, "nothing happened"
    assert world.is_proved
    world.write_anew()
    world.look()
    assert not world.has_gap, "the stream may tell yet"
    assert not world.is_proved
    world.look()
    assert world.has_gap
    assert not world.is_proved


def test_the_stream_is_heard_out_first(world: World) -> None:
    world.wal_lsn = 9000
    world.write_anew()
    world.look(5)
    assert not world.has_gap
    world.hear(9000)
    world.look()
    assert world.has_gap


def test_what_the_stream_truncated_is_none(world: World) -> None:
    world.write_anew(xid=120)
    world.look()
    world.watch.truncated(ITEMS, 120)
    world.look(3)
    assert not world.has_gap
    assert world.is_proved
    assert world.asked == []
    world.write_anew(xid=130)
    world.look(2)
    assert world.has_gap, "an earlier one explains nothing"


@pytest.mark.parametrize("command", [12, None])
def test_what_came_behind_a_truncate_may_have_been_written_without_wal(world: World, command: int | None) -> None:
    """Unless its first row was inserted into the truncated table: TRUNCATE and a load are compared by nobody."""
    for begins_with_an_insert in (True, False):
        world.begins_with_an_insert = begins_with_an_insert
        world.write_anew(xid=120, command=command)
        world.watch.truncated(ITEMS, 120)
        world.look(2)
        assert world.has_gap != begins_with_an_insert
    assert world.asked == [], "a TRUNCATE leaves no row from before"


@pytest.mark.parametrize("known", [0, 7])
def test_a_table_with_the_same_toast_table_was_not_unlogged(world: World, known: int) -> None:
    """Whatever gave it another file, also if it got its TOAST table, or was first seen by this version, since."""
    world.become(dataclasses.replace(world.now[ITEMS.oid], toast=known))
    world.look()
    world.become(dataclasses.replace(world.now[ITEMS.oid], toast=7))
    world.look()
    world.write_anew(command=12)
    world.look()
    assert world.is_proved
    world.write_anew(xid=130, toast=8)
    world.watch.truncated(ITEMS, 130)
    world.look(2)
    assert world.has_gap, "TRUNCATE would have left the TOAST table"
    assert len(world.asked) == 1


def test_a_table_that_is_named_was_not_unlogged_unless_its_name_came_meanwhile(world: World) -> None:
    world.become(dataclasses.replace(world.now[ITEMS.oid], named=(5, 6)))
    world.look()
    world.write_anew(named=(6, 7))
    world.look()
    assert world.is_proved, "it was named all the time"
    assert not world.has_gap
    world.write_anew(named=(8,))
    world.look(2)
    assert world.has_gap, "it was out of all publications in between"


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_table_that_is_named_no_more_is_compared_with_the_file_of_the_last_look(
    world: World, *, is_restarted: bool
) -> None:
    world.become(dataclasses.replace(world.now[ITEMS.oid], named=(5,)))
    world.look()
    world.write_anew(xid=110, named=(5,))
    world.look()
    world.become(dataclasses.replace(world.now[ITEMS.oid], named=()))
    if not is_restarted:
        world.look()
        assert world.is_proved
        assert not world.has_gap
    world.write_anew(named=())
    if is_restarted:
        world.watch = RewriteWatch(world.context)
        world.begin()
    world.look(2)
    assert world.has_gap


def test_rows_that_kept_their_transactions_prove_that_none_is_missing(world: World) -> None:
    world.now[ITEMS.oid] = RelationFile(file=1, file_xid=50, horizon=HORIZON + 20)
    world.look()
    world.has_rows_from_before = True
    world.write_anew()
    world.look(3)
    assert not world.has_gap
    assert world.is_proved
    assert world.asked == [HORIZON + 20], "once, and with the last look at the file of before"


def test_the_next_process_knows_the_file(world: World) -> None:
    world.write_anew()
    world.watch = RewriteWatch(world.context)
    world.begin()
    assert world.is_put_off, "a job does not end before the look that says what it is"
    world.look()
    assert world.has_gap, "a start asks the first look for that"
    assert world.asked == [HORIZON]
    assert not world.is_put_off


def test_a_start_has_no_doubts_of_a_file_that_is_known_or_was_logged(world: World) -> None:
    world.begin()
    assert not world.is_put_off
    world.become(dataclasses.replace(world.now[ITEMS.oid], named=(5,)))
    world.look()
    world.write_anew(named=(5,))
    world.begin()
    assert not world.is_put_off
    world.become(dataclasses.replace(world.now[ITEMS.oid], named=()))
    world.look()
    world.write_anew()
    world.begin()
    assert world.is_put_off
    world.source_tables.resync(world.items, is_due=True)
    world.begin()
    assert not world.is_put_off, "it is copied"


def test_what_a_start_has_doubts_of_may_be_told_by_the_stream(world: World) -> None:
    world.write_anew(xid=120)
    world.wal_lsn = 9000
    world.begin()
    world.look(3)
    assert world.is_put_off
    assert not world.has_gap
    world.watch.truncated(ITEMS, 120)
    world.hear(9000)
    world.look()
    assert not world.is_put_off
    assert not world.has_gap
    assert world.is_proved


@pytest.mark.parametrize("what", ["resync", "forgotten"])
def test_what_is_about_to_be_copied_has_its_file_from_then_on(world: World, what: str) -> None:
    world.write_anew()
    if what == "resync":
        world.source_tables.resync(world.items, is_due=True)
    else:
        world.lake.forget("shop.items", world.source.name)
    world.begin()
    world.source_tables.resync(world.items, is_due=False)
    world.copy(world.items)
    world.look(3)
    assert world.source_tables.state(world.items) is State.STREAMING
    world.write_anew()
    world.look(2)
    assert world.has_gap


def test_a_table_that_cannot_be_read_through_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its source answers: the others are looked at all the same."""

    def unread(*_: object) -> bool:
        raise SourceError("it has not answered for 120 s")

    monkeypatch.setattr(partitions, "has_rows_from_before", unread)
    world.write_anew()
    world.look(2)
    assert world.has_gap


def test_a_table_that_is_locked_is_left_to_the_next_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that VACUUM FULL has not done with: its rows say later that nothing is missing."""

    def locked(*_: object) -> bool:
        raise SourceLocked("somebody has locked it")

    world.write_anew()
    with monkeypatch.context() as patch:
        patch.setattr(partitions, "has_rows_from_before", locked)
        world.look(3)
    assert not world.has_gap
    assert not world.is_proved
    world.has_rows_from_before = True
    world.look(2)
    assert not world.has_gap
    assert world.is_proved


def test_a_gap_begins_with_the_last_look_since_the_copy(world: World) -> None:
    world.wal_lsn = 700
    world.look()
    world.write_anew()
    world.look()
    assert not world.has_gap
    world.source_tables.resync(world.items, is_due=True)
    world.begin()
    world.source_tables.resync(world.items, is_due=False)
    world.write_anew()
    world.look(2)
    assert world.has_gap
    assert world.source_tables.gap_starts.get(world.items) is None, "the look was before the copy"


def test_a_table_that_does_not_follow_is_looked_at_when_it_does(world: World) -> None:
    world.source_tables.set(world.items, State.PAUSED)
    world.write_anew()
    world.look(3)
    assert world.source_tables.state(world.items) is State.PAUSED
    world.begin()
    world.source_tables.set(world.items, State.STREAMING)
    world.look(2)
    assert world.has_gap


def test_a_truncate_of_a_past_that_is_given_up_explains_nothing(world: World) -> None:
    world.watch.truncated(ITEMS, 120)
    world.context.pasts.give_up(7000)
    world.watch.truncated(ITEMS, 130)
    assert world.shared.state.files(world.source.name).all()[ITEMS.oid].truncated == (130,)
    world.write_anew(xid=120)
    world.look(2)
    assert world.has_gap


def test_no_table_is_suspected_at_a_place_of_another_past(world: World) -> None:
    world.write_anew()
    world.wal_lsn = 90000
    world.look()
    world.context.pasts.give_up(7000)
    world.wal_lsn = 8000
    world.look(2)
    assert world.has_gap
