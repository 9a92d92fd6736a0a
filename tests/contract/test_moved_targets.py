"""A target goes to another worker while kuvasz runs: its source ended within a transaction that comes in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import Delivery, Relation, Segment, SourcePosition, TableName, TableType
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.worker import Worker
from kuvasz.worker.workers import Workers
from tests.support.changes import ITEMS, TABLE, TARGET, Sender, feed, insert, relation, target
from tests.support.waiting import wait_until

OTHER = "shop.others"
OTHERS = relation(table=TableName(schema="public", name="others"), oid=2)


class Scene:
    """Two workers, and two targets that grow."""

    def __init__(self) -> None:
        self.lake, self.progress, self.budget = MemoryLake(), Progress(), Budget(1 << 20)
        self.states = TableStates(MemoryNotes())
        for name, found in ((TARGET, ITEMS), (OTHER, OTHERS)):
            self.lake.prepare(target(name, table_type=TableType.APPEND), feed("eu", name, table=found.table), found)
            self.lake.copy(feed("eu", name), found, [], SourcePosition(lsn=1000), lambda *_: None)
        self.routed_by = {TARGET: "first", OTHER: "first"}
        self.workers = Workers([self._worker(0), self._worker(1)], self.routed_by, ["first", "second"])
        self.workers.start()
        self.begin(1)

    def _worker(self, number: int) -> Worker:
        return Worker(
            number, self.lake, targets_of=self._targets, progress=self.progress, budget=self.budget,
            states=self.states, policy=FlushPolicy(interval_s=0.0, bytes=1), on_failure=lambda _: None,
            on_receipt=lambda _: None,
        )  # fmt: skip

    def _targets(self, source: str, found: Relation) -> list[tuple[str, str]]:
        return [({TABLE: TARGET, OTHERS.table: OTHER}[found.table], source)]

    def begin(self, epoch: int) -> None:
        """As a connection of the source does."""
        self.progress.restarted("eu", epoch)
        for name, found in ((TARGET, ITEMS), (OTHER, OTHERS)):
            self.states.add(name, "eu", str(found.table))
            self.states.activate(name, "eu", epoch)

    def put(self, target: str, change: Segment, through: int, epoch: int, *, is_open: bool = False) -> None:
        number = self.workers.number_of(target)
        self.budget.add("eu", 100)
        self.progress.routed("eu", number, through)
        self.workers.all[number].put(
            Delivery(source="eu", changes=(change,), through=through, bytes=100, epoch=epoch, is_open=is_open)
        )
        wait_until(lambda: self.workers.died is not None or self.budget.bytes == 0, "it was taken", 30)
        assert self.workers.died is None, self.workers.died

    def end(self) -> None:
        """As `kuvasz.sync.sources.Sources.end` does."""
        self.progress.forget("eu")
        self.states.begin_anew("eu", {})
        for name in (TARGET, OTHER):
            asyncio.run(self.workers.settle(name))

    def ids(self) -> list[int]:
        return sorted(self.lake.rows(TARGET).column("id").to_pylist())


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    asyncio.run(made.workers.stop(30))


def test_what_its_first_worker_had_of_a_transaction_does_not_come_twice(scene: Scene) -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    scene.put(TARGET, eu.part(lsn, insert(1)), 1000, 1, is_open=True)
    scene.end()
    scene.routed_by[TARGET] = "second"
    scene.begin(9)
    scene.put(TARGET, eu.part(lsn, insert(1)), 1000, 9, is_open=True)
    scene.put(TARGET, eu.segment([(lsn, [insert(2)])]), 1108, 9)
    assert scene.ids() == [1, 2]


def test_nor_does_its_first_worker_give_up_what_the_second_has_of_it(scene: Scene) -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    scene.put(TARGET, eu.part(lsn, insert(1)), 1000, 1, is_open=True)
    scene.end()
    scene.routed_by[TARGET] = "second"
    scene.begin(9)
    scene.put(TARGET, eu.part(lsn, insert(1)), 1000, 9, is_open=True)
    scene.put(OTHER, Sender(relation=OTHERS, start=500).one(insert(7)), 1000, 9)
    scene.put(TARGET, eu.segment([(lsn, [insert(2)])]), 1108, 9)
    assert scene.ids() == [1, 2]
