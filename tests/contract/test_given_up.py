"""A table of two sources whose commit is given up: what the other source sent meanwhile must not be confirmed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.commit import lanes
from kuvasz.lake.commit.commit_stage import CommitStage
from kuvasz.lake.commit.write_stage import WriteStage
from kuvasz.lake.format.binding import Feeds
from kuvasz.lake.table.table_lock import TableLock
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Delivery, SourcePosition, TableType
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.worker import Worker
from tests.support.changes import TARGET, Sender
from tests.support.waiting import wait_until

SOURCES = ("eu", "us")


class Table:
    """A table that the catalog does not answer for, and whose store takes its time to delete files."""

    def __init__(self) -> None:
        self.name, self.lock = TARGET, TableLock(TARGET)
        self.positions = {name: SourcePosition(lsn=1000) for name in SOURCES}
        self.era = WriteEra.begin(self.positions)
        self.open, self.commits = {}, SimpleNamespace(in_flight=set())
        self.definition = SimpleNamespace(identities=0, lock=threading.Lock())
        self.columns = SimpleNamespace(shapes=SimpleNamespace(want_facts=False))
        self.target = SimpleNamespace(
            type=TableType.CLONE, group=None, has_sid=True, has_members=False, is_soft=False
        )
        self.is_forgetting, self.goes_on = threading.Event(), threading.Event()

    def follow(self) -> bool:
        raise LakeError("the catalog does not answer for it")

    def forget(self, _: object) -> None:
        self.is_forgetting.set()
        assert self.goes_on.wait(30)


class Lake:
    """The two stages of the real lake."""

    def __init__(self, table: Table) -> None:
        tables = {TARGET: table}
        config = SimpleNamespace(
            lake=SimpleNamespace(properties={}, warehouse_location=""), pipeline=SimpleNamespace(chunk_bytes=1 << 20)
        )
        self.stage = WriteStage(None, SimpleNamespace(parallelism=1), None, tables, Feeds(), config)
        self.commits = CommitStage(None, lambda: None, 1 << 20, tables, Feeds(), {}, Path())
        self.write, self.commit = self.stage.write, self.commits.commit


def test_what_another_source_sends_meanwhile_is_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.1)
    monkeypatch.setattr(lanes, "BOUND_S", 0.5)
    table, progress, states, budget = Table(), Progress(), TableStates(MemoryNotes()), Budget(1 << 20)
    for name in SOURCES:
        states.add(TARGET, name, "public.items")
        states.activate(TARGET, name, 1)
        progress.begin_anew(name, 1000)
        progress.restarted(name, 1)
    lake = Lake(table)
    worker = Worker(
        0, lake, targets_of=lambda source, _: [(TARGET, source)], progress=progress, budget=budget, states=states,
        policy=FlushPolicy(interval_s=0.0, bytes=1), on_failure=lambda _: None, on_receipt=lambda _: None,
    )  # fmt: skip
    senders = {name: Sender(name) for name in SOURCES}

    def put(name: str) -> int:
        change = senders[name].truncation()
        budget.add(name, 100)
        progress.routed(name, 0, change.end_lsn)
        worker.put(Delivery(source=name, changes=(change,), through=change.end_lsn, bytes=100, epoch=1))
        progress.received(name, change.end_lsn)
        return change.commit_lsn

    worker.start()
    try:
        first = put("eu")
        assert table.is_forgetting.wait(30), "the commit was given up"
        assert states.is_streaming(TARGET, "us"), "nobody knows yet"
        other = put("us")  # the store still deletes what was written of eu
        wait_until(lambda: budget.bytes == 0, "the worker calls it durable", 30)
        assert progress.confirmable("us") <= other, "it is not in the lake"
        table.goes_on.set()
        wait_until(lambda: states.get(TARGET, "us").state is State.ERROR, "told", 30)
        assert progress.confirmable("eu") <= first
        assert table.positions["us"].lsn == 1000
        assert progress.confirmable("us") <= other
        assert "items" in str(progress.held("us")), "until it comes again"
    finally:
        table.goes_on.set()
        lake.commits.close()
        worker.stop(10)
