"""A worker between real neighbours: progress, budget, states and the lake in memory."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import Delivery, Relation, Segment, SourcePosition, TableName, Truncation
from kuvasz.ports import Failure, Receipt
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.tracing.mini_transaction import MiniTransaction
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.worker import Worker
from tests.support.changes import ITEMS, TABLE, TARGET, Sender, feed, insert, relation, target
from tests.support.waiting import wait_until

OTHER = "shop.others"
OTHERS = relation(table=TableName(schema="public", name="others"), oid=2)


class FailingLake(MemoryLake):
    """Fails so many writes before it works."""

    def __init__(self) -> None:
        super().__init__()
        self.failing_writes = 0
        self.commits_go_on = threading.Event()
        self.commits_go_on.set()
        self.is_committing = threading.Event()
        self.write_attempts = 0

    def write(self, works: object, *, apart: bool = False) -> object:
        self.write_attempts += 1
        if self.failing_writes:
            self.failing_writes -= 1
            raise LakeError("the warehouse does not answer")
        return super().write(works, apart=apart)

    def commit(self, written: object) -> object:
        self.is_committing.set()
        assert self.commits_go_on.wait(30)
        return super().commit(written)


class Bench:
    """One worker and all around it."""

    def __init__(self) -> None:
        self.lake, self.progress, self.budget = FailingLake(), Progress(), Budget(1 << 20)
        self.states = TableStates(MemoryNotes())
        self.failures: list[Failure] = []
        self.receipts: list[Receipt] = []
        self.durable: list[MiniTransaction] = []
        for name, found in ((TARGET, ITEMS), (OTHER, OTHERS)):
            self.lake.prepare(target(name), feed("eu", name, table=found.table), found)
            self.lake.copy(feed("eu", name), found, [], SourcePosition(lsn=1000), lambda *_: None)
            self.states.add(name, "eu", str(found.table))
            self.states.activate(name, "eu", 1)
        self.progress.restarted("eu", 1)
        self.worker = Worker(
            0, self.lake, targets_of=self._targets, progress=self.progress, budget=self.budget, states=self.states,
            policy=FlushPolicy(interval_s=0.0, bytes=1), on_failure=self._fail, on_receipt=self.receipts.append,
            on_durable=self.durable.append,
        )  # fmt: skip
        self.held_at_failure: list[int] = []

    def _targets(self, source: str, found: Relation) -> list[tuple[str, str]]:
        target = {TABLE: TARGET, OTHERS.table: OTHER}.get(found.table)
        return [] if target is None else [(target, source)]

    def _fail(self, failure: Failure) -> None:
        self.held_at_failure.append(self.progress.confirmable("eu"))
        self.failures.append(failure)

    def put(self, *changes: Segment | Truncation, through: int, epoch: int = 1, is_open: bool = False) -> None:
        """As a reader does: count, register, hand over."""
        delivery = Delivery(source="eu", changes=changes, through=through, bytes=100, epoch=epoch, is_open=is_open)
        self.budget.add("eu", delivery.bytes)
        self.progress.routed("eu", 0, through)
        self.worker.put(delivery)
        self.progress.received("eu", through)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: self.worker.died is not None or condition(), what, 30)
        assert self.worker.died is None, self.worker.died

    def wait_done(self) -> None:
        self.wait(lambda: self.budget.bytes == 0, "everything was taken")

    def ids(self, name: str = TARGET) -> list[int]:
        return sorted(self.lake.rows(name).column("id").to_pylist())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.lake.commits_go_on.set()
    made.worker.stop(30)


def test_applies_and_confirms(bench: Bench) -> None:
    eu = Sender()
    bench.worker.start()
    bench.put(eu.one(insert(1)), through=1108)
    bench.put(eu.one(insert(2)), through=1208)
    bench.wait(lambda: bench.progress.confirmable("eu") == 1208, "all is confirmed")
    bench.wait_done()
    assert bench.ids() == [1, 2]
    assert sum(receipt.rows for receipt in bench.receipts) == 2
    (state,) = [state for state in bench.states.snapshot() if state.target == TARGET]
    assert (state.rows, state.commits, state.last_commit_us) == (2, 2, 12000)


def test_what_is_durable_is_told_with_the_times_of_its_steps(bench: Bench) -> None:
    begin = time.monotonic()
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    bench.wait(lambda: bench.durable, "it is told")
    (one,) = bench.durable
    assert (one.worker, one.bytes, one.rows, one.through, one.failed) == (0, 100, 1, {"eu": 1108}, ())
    assert one.snapshots == {TARGET: bench.receipts[0].snapshot_id}
    times = [begin, *dataclasses.astuple(one.times), time.monotonic()]
    assert times == sorted(times)


def test_confirms_nothing_that_is_only_written(bench: Bench) -> None:
    bench.lake.commits_go_on.clear()
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    assert bench.lake.is_committing.wait(30)
    assert bench.progress.confirmable("eu") < 1108
    assert bench.budget.bytes == 100
    bench.lake.commits_go_on.set()
    bench.wait(lambda: bench.progress.confirmable("eu") == 1108, "it is confirmed")


def test_gathers_while_a_mini_transaction_waits_for_its_commit(bench: Bench) -> None:
    """Written at once it would only wait, too; and together they are fewer commits."""
    eu = Sender()
    bench.lake.commits_go_on.clear()
    bench.worker.start()
    bench.put(eu.one(insert(0)), through=1108)
    assert bench.lake.is_committing.wait(30)
    bench.put(eu.one(insert(1)), through=1208)
    bench.wait(lambda: bench.lake.write_attempts == 2, "the second is written while the first commits")
    bench.worker._backlog._policy = FlushPolicy(interval_s=0.0, bytes=1 << 20)
    for number in range(2, 6):
        bench.put(eu.one(insert(number)), through=1108 + 100 * number)
    bench.lake.commits_go_on.set()
    bench.wait_done()
    assert (bench.ids(), bench.lake.write_attempts) == ([0, 1, 2, 3, 4, 5], 3)


def test_changes_of_another_epoch_or_without_a_target_are_confirmed_and_not_applied(bench: Bench) -> None:
    bench.states.activate(TARGET, "eu", 2)
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    bench.put(Sender(relation=relation(table=TableName(schema="x", name="y"))).one(insert(1)), through=1208)
    bench.wait(lambda: bench.progress.confirmable("eu") == 1208, "all is confirmed")
    assert bench.ids() == []


def test_a_failure_holds_the_source_before_anything_counts_as_durable(bench: Bench) -> None:
    bench.worker.start()
    bench.put(Sender().one(insert(1, "x1")), Sender(relation=OTHERS).one(insert(5)), through=1108)
    bench.wait_done()
    (failure,) = bench.failures
    assert failure.target == TARGET
    assert bench.held_at_failure == [0]
    assert bench.progress.confirmable("eu") == 0
    states = {state.target: state for state in bench.states.snapshot()}
    assert (states[TARGET].state, states[TARGET].error) == (State.ERROR, failure.error)
    assert states[OTHER].state is State.CATCHING_UP
    assert bench.ids(OTHER) == [5]
    # What comes later is confirmed no further either, and the other table goes on.
    bench.put(Sender(start=2000).one(insert(2)), Sender(relation=OTHERS, start=2000).one(insert(6)), through=2108)
    bench.wait_done()
    assert (bench.ids(), bench.ids(OTHER), bench.progress.confirmable("eu")) == ([], [5, 6], 0)


def test_a_job_that_fails_is_run_again_with_the_same_rows(bench: Bench) -> None:
    bench.lake.failing_writes = 2
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    bench.wait(lambda: bench.progress.confirmable("eu") == 1108, "it is confirmed")
    assert (bench.lake.write_attempts, bench.ids(), bench.failures) == (3, [1], [])


def test_stops_while_a_job_fails_for_ever(bench: Bench) -> None:
    bench.lake.failing_writes = 1 << 30
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    bench.wait(lambda: bench.lake.write_attempts, "it was tried")
    assert bench.worker.stop(30)
    assert bench.worker.died is None
    assert (bench.progress.confirmable("eu"), bench.ids()) == (0, [])


def test_stop_finishes_what_is_in_hand(bench: Bench) -> None:
    bench.lake.commits_go_on.clear()
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    assert bench.lake.is_committing.wait(30)
    assert not bench.worker.stop(0.01)
    bench.put(Sender(start=2000).one(insert(2)), through=2108)
    bench.lake.commits_go_on.set()
    assert bench.worker.stop(30)
    assert bench.ids() == [1]
    assert bench.progress.confirmable("eu") == 1108


def test_an_idle_worker_stops(bench: Bench) -> None:
    bench.worker.start()
    assert bench.worker.stop(30)


def test_an_error_of_our_own_code_is_reported_and_ends_the_worker(bench: Bench) -> None:
    def broken(_: object, **__: object) -> object:
        raise ZeroDivisionError("oops")

    bench.lake.write = broken
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    wait_until(lambda: bench.worker.died is not None, "the worker died", 30)
    assert "worker 0: ZeroDivisionError('oops')" in str(bench.worker.died)
    assert bench.progress.confirmable("eu") == 0
    assert bench.worker.stop(10), "the other thread ends with it"


@pytest.mark.parametrize("waiting", [0, 3])
def test_a_commit_that_breaks_ends_the_worker(bench: Bench, waiting: int) -> None:
    def broken(_: object) -> object:
        bench.lake.is_committing.set()
        assert bench.lake.commits_go_on.wait(30)
        raise ZeroDivisionError("oops")

    bench.lake.commit = broken
    bench.lake.commits_go_on.clear()
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    assert bench.lake.is_committing.wait(30)
    for number in range(waiting):
        bench.put(Sender(start=2000 + 1000 * number).one(insert(2)), through=2108 + 1000 * number)
        bench.wait(lambda: bench.lake.write_attempts > 1, "one is written")
    bench.lake.commits_go_on.set()
    assert bench.worker.stop(10)
    assert "oops" in str(bench.worker.died)
    assert bench.progress.confirmable("eu") == 0


def test_parts_of_a_transaction_that_begins_again_are_applied_once(bench: Bench) -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    bench.worker.start()
    bench.put(eu.part(lsn, insert(1)), through=1000, is_open=True)
    bench.wait_done()
    assert bench.ids() == []
    bench.progress.restarted("eu", 2)
    bench.put(eu.part(lsn, insert(1), insert(2)), through=1000, epoch=2, is_open=True)
    bench.put(eu.segment([(lsn, [insert(3)])]), through=lsn + 8, epoch=2)
    bench.wait(lambda: bench.progress.confirmable("eu") == lsn + 8, "all is confirmed")
    assert bench.ids() == [1, 2, 3]


def test_what_has_begun_has_ended_once_it_is_committed(bench: Bench) -> None:
    assert bench.worker.has_ended(bench.worker.begun())
    bench.lake.commits_go_on.clear()
    bench.worker.start()
    bench.put(Sender().one(insert(1)), through=1108)
    assert bench.lake.is_committing.wait(30)
    begun = bench.worker.begun()
    assert not bench.worker.has_ended(begun)
    bench.lake.commits_go_on.set()
    bench.wait(lambda: bench.worker.has_ended(begun), "it has ended")
    assert bench.ids() == [1]


def test_a_table_paused_within_a_large_transaction_shows_nothing_of_it_until_it_comes_again(bench: Bench) -> None:
    eu = Sender()
    lsn = eu.commit_lsn()
    bench.worker.start()
    bench.put(eu.part(lsn, insert(1)), through=1000, is_open=True)
    bench.wait_done()
    bench.progress.hold("eu", TARGET)
    bench.states.pause(TARGET, "eu")
    bench.put(eu.segment([(lsn, [insert(2)])]), through=lsn + 8)
    bench.wait_done()
    assert (bench.ids(), bench.lake.positions(TARGET)["eu"].lsn) == ([], 1000)
    bench.states.unpause(TARGET, "eu")
    bench.states.activate(TARGET, "eu", 2)
    bench.progress.restarted("eu", 2)
    bench.put(eu.segment([(lsn, [insert(1), insert(2)])]), through=lsn + 8, epoch=2)
    bench.progress.release("eu", TARGET)
    bench.wait(lambda: bench.progress.confirmable("eu") == lsn + 8, "all is confirmed")
    assert bench.ids() == [1, 2]
