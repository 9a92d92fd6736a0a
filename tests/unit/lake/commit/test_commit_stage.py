"""Commits that are there although they were refused, or given up."""

from __future__ import annotations

import concurrent.futures
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.errors import ForeignChange
from kuvasz.lake.commit import lanes
from kuvasz.lake.commit.commit_stage import CommitStage
from kuvasz.lake.commit.lanes import Ticket
from kuvasz.lake.commit.write_stage import WriteStage
from kuvasz.lake.format.binding import Feeds
from kuvasz.lake.table.table_lock import TableLock
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Failure, TableWork
from tests.support.changes import ITEMS, SAME, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until


class Open(dict):
    def check(self) -> None:
        """Nothing is open."""


class Table:
    def __init__(self) -> None:
        self.name, self.lock = TARGET, TableLock(TARGET)
        self.positions = {"eu": SourcePosition(lsn=1000)}
        self.era = WriteEra.begin(self.positions)
        self.open, self.commits = Open(), SimpleNamespace(in_flight=set(), discard=lambda _: None, make=self.commit)
        self.definition = SimpleNamespace(identities=0, lock=threading.RLock())
        self.columns = SimpleNamespace(shapes=SimpleNamespace(want_facts=False))
        self.target = SimpleNamespace(
            type=TableType.CLONE, group=None, has_members=False, has_sid=True, is_soft=False
        )
        self.answers = threading.Event()

    def follow(self) -> None:
        assert self.answers.wait(30)

    def commit(self, _: object, positions: dict) -> int:
        self.positions.update(positions)
        return 1


@pytest.mark.parametrize("table_type", list(TableType))
def test_a_commit_that_is_refused_because_it_is_there_is_not_made_again(
    local_world: LocalWorld, table_type: TableType
) -> None:
    def refuse() -> None:
        raise ForeignChange("what it brings is there already")

    local_world.lake.prepare(target(table_type=table_type), feed("eu"), ITEMS)
    local_world.copy("eu", (1, 1, "a"), (2, 2, "b"), (3, 3, "c"))
    eu = Sender()
    local_world.stored().after_commit.append(refuse)
    local_world.applied(work(eu.one(insert(4, 4), update(2, 22, SAME), delete(3))))
    assert local_world.orphans() == []
    local_world.applied(work(eu.one(insert(5, 5), update(1, 11, SAME))))
    rows = {TableType.CLONE: 4, TableType.APPEND: 7, TableType.HISTORY: 7, TableType.CHANGELOG: 8}
    assert local_world.table(TARGET).num_rows == rows[table_type]


def test_a_commit_that_returns_as_it_is_given_up_has_one_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.1)
    monkeypatch.setattr(lanes, "BOUND_S", 0.3)
    monkeypatch.setattr(lanes, "_FAREWELL_S", 0.2)
    table = Table()
    tables = {TARGET: table}
    config = SimpleNamespace(
        lake=SimpleNamespace(properties={}, warehouse_location=""), pipeline=SimpleNamespace(chunk_bytes=1 << 20)
    )
    hangs = CommitStage._hangs

    def hung(stage: CommitStage, ticket: Ticket) -> object:
        table.answers.set()  # the answer comes just now
        wait_until(lambda: table.positions["eu"].lsn > 1000, "the commit is made")
        concurrent.futures.wait([ticket.outcome], timeout=0.5)
        return hangs(stage, ticket)

    monkeypatch.setattr(CommitStage, "_hangs", hung)
    monkeypatch.setattr(CommitStage, "_resolve", lambda *_: None)
    writes = WriteStage(None, SimpleNamespace(parallelism=1), None, tables, Feeds(), config)
    commits = CommitStage(None, lambda: None, 1 << 20, tables, Feeds(), {}, Path())
    sender = Sender()

    def work() -> TableWork:
        change = sender.truncation()
        return TableWork(target=TARGET, changes=(change,), through={"eu": change.end_lsn})

    try:
        (pending,) = commits.commit(writes.write([work()]))
        told = pending.outcome.result(30)
        wait_until(lambda: table.era.error is not None, "given up", 10)
        outcomes = commits.commit(writes.write([work()]))
        assert isinstance(told[0], Failure) or outcomes, "nobody was told, and all that comes is dropped"
    finally:
        commits.close()
