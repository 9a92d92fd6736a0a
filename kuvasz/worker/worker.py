"""One worker: an inbox, a thread that writes mini-transactions, and one that commits them.

While mini-transaction n commits, the Spark job of n+1 runs. A worker owns its targets: nobody else writes them.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Container
from typing import Any

from kuvasz import failpoints
from kuvasz.backoff import Backoff
from kuvasz.errors import InternalError, KuvaszError, LakeError
from kuvasz.model import NO_OPERATIONS, Delivery, TableName
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Failure, Lake, Pending, Receipt
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.worker.flush import FlushPolicy, Waiting
from kuvasz.worker.gather import Gathered, Gatherer, TargetOf

_log = logging.getLogger(__name__)

OnFailure = Callable[[Failure], None]
OnReceipt = Callable[[Receipt], None]


class Worker:
    """Applies the changes of the targets that are routed to it.

    Args:
        number: Its place among the workers.
        lake: Where changes go.
        target_of: Finds the target of a relation; see `TargetOf`.
        progress: Told what is durable.
        budget: Told which bytes are no longer waiting.
        states: Told about failures, asked which tables are active.
        policy: When to begin a mini-transaction.
        on_failure: Called after a table was put into error.
        on_receipt: Called for every commit.
        lot: Takes the changes of tables that do not follow; None: they are dropped, and their sources are held.
    """

    def __init__(  # noqa: PLR0913 (the neighbours of a stage are its parameters)
        self,
        number: int,
        lake: Lake,
        *,
        target_of: TargetOf,
        progress: Progress,
        budget: Budget,
        states: TableStates,
        policy: FlushPolicy,
        on_failure: OnFailure,
        on_receipt: OnReceipt,
        lot: ParkingLogs | None = None,
    ) -> None:
        self._number = number
        self._lake = lake
        self._find_target = target_of
        self._progress = progress
        self._budget = budget
        self._states = states
        self._policy = policy
        self._on_failure = on_failure
        self._on_receipt = on_receipt
        self._waiting: collections.deque[Delivery] = collections.deque()
        self._waiting_bytes = 0
        self._since = 0.0  # when the first of it came
        self._last = 0.0  # when the last of it came
        self._dirty: set[TableName] = set()  # the tables it is of
        self._wake = threading.Condition()
        self._stopping = False
        self._begun = 0  # mini-transactions
        self._ended = 0
        #: target -> numbers of the mini-transactions whose commits of it take long
        self._aside: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
        self._lot = lot
        self._gatherer = Gatherer() if lot is None else Gatherer(lot.takes, self._is_replaying)
        self._written: queue.Queue[tuple[Gathered, Any] | None] = queue.Queue(maxsize=1)
        self._threads = [
            threading.Thread(target=self._guard, args=(self._write_loop,), name=f"write-{number}", daemon=True),
            threading.Thread(target=self._guard, args=(self._commit_loop,), name=f"commit-{number}", daemon=True),
        ]
        self.died: BaseException | None = None

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish what is in hand and stop; deliveries that wait are left. Returns whether it ended in time."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def put(self, delivery: Delivery) -> None:
        """See `kuvasz.ports.Inbox`."""
        with self._wake:
            self._last = time.monotonic()
            if not self._waiting:
                self._since = self._last
            self._waiting.append(delivery)
            self._waiting_bytes += delivery.bytes
            self._dirty.update(change.relation.table for change in delivery.changes)
            self._wake.notify_all()

    def begun(self) -> int:
        """Return the number of mini-transactions that have begun."""
        with self._wake:
            return self._begun

    def has_ended(self, begun: int, target: str = "") -> bool:
        """Whether so many mini-transactions are committed or have failed, as far as they concern a target.

        A target that was taken out of `TableStates.is_active` before `begun` was asked has nothing under way then.
        """
        with self._wake:
            return self._ended >= begun and all(number > begun for number in self._aside[target])

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or died."""
        return self._stopping

    # Writing

    def _write_loop(self) -> None:
        last_begin = 0.0
        while True:
            deliveries = self._take(last_begin)
            if deliveries is None:
                self._hand_over(None)
                return
            last_begin = time.monotonic()
            gathered = self._gatherer.gather(deliveries, self._find_target, self._states.is_active)
            self._park(gathered)
            written = self._write(gathered)
            _log.debug("written", extra={
                "event": "written", "worker": self._number, "bytes": gathered.bytes,
                "tables": len(gathered.works), "seconds": round(time.monotonic() - last_begin, 4),
            })  # fmt: skip
            if written is None:
                self._hand_over(None)
                return
            self._hand_over((gathered, written))

    def _take(self, last_begin: float) -> list[Delivery] | None:
        """Wait for the next mini-transaction's changes; None: the worker stops.

        Nothing is taken while the last one waits for its commit: this one would only wait behind it.
        """
        with self._wake:
            while not self._stopping:
                if self._waiting and self._written.empty():
                    waiting = Waiting(
                        bytes=self._waiting_bytes, tables=len(self._dirty), since=self._since, last=self._last,
                        last_begin=last_begin,
                    )  # fmt: skip
                    wait = self._policy.wait(waiting, time.monotonic())
                    if wait <= 0:
                        return self._pop()
                    self._wake.wait(wait)
                else:
                    self._wake.wait()
            return None

    def _pop(self) -> list[Delivery]:
        taken: list[Delivery] = []
        size = 0
        most = self._policy.most(len(self._dirty))
        while self._waiting and (not taken or size < most):
            delivery = self._waiting.popleft()
            size += delivery.bytes
            taken.append(delivery)
        self._waiting_bytes -= size
        self._since = time.monotonic()
        self._dirty = {change.relation.table for delivery in self._waiting for change in delivery.changes}
        self._begun += 1
        return taken

    def _is_replaying(self, target: str, source: str, number: int) -> bool:
        assert self._lot is not None
        return self._lot.is_replaying(target, source, number) and self._states.is_streaming(target, source)

    def _park(self, gathered: Gathered) -> None:
        """Give the parking logs their part, before any of it counts as durable."""
        for part in gathered.to_park:
            assert self._lot is not None
            self._lot.park(part.target, part.source, part.epoch, part.changes, part.through, is_open=part.is_open)

    def _write(self, gathered: Gathered) -> Any:  # noqa: ANN401
        backoff = Backoff()
        while True:
            try:
                return self._lake.write(gathered.works)
            except LakeError as error:
                if self._stopping:
                    return None
                wait = backoff.next_s()
                _log.warning("a job failed and is tried again", extra={
                    "event": "job_retry", "worker": self._number, "error": error.message, "wait_s": wait,
                })  # fmt: skip
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, wait)

    def _hand_over(self, item: tuple[Gathered, Any] | None) -> None:
        if self.died is None:
            self._written.put(item)

    # Committing

    def _next(self) -> tuple[Gathered, Any] | None:
        item = None if self.died is not None and self._written.empty() else self._written.get()
        with self._wake:
            self._wake.notify_all()
        return item

    def _commit_loop(self) -> None:
        while (item := self._next()) is not None:
            gathered, written = item
            begin = time.monotonic()
            received = set()
            for outcome in self._lake.commit(written):
                if isinstance(outcome, Failure):
                    self._fail(outcome)
                elif isinstance(outcome, Pending):
                    self._leave_aside(gathered, outcome)
                else:
                    self._receive(outcome)
                    received.add(outcome.target)
            self._note_replays(gathered, received)
            failpoints.hit("before_durable")
            for source, (through, epoch) in gathered.through.items():
                self._progress.durable(source, self._number, through, epoch)
            failpoints.hit("after_durable")
            self._budget.remove(gathered.bytes)
            with self._wake:
                self._ended += 1
            _log.debug("durable", extra={
                "event": "durable", "worker": self._number, "bytes": gathered.bytes,
                "seconds": round(time.monotonic() - begin, 4),
            })  # fmt: skip

    def _leave_aside(self, gathered: Gathered, pending: Pending) -> None:
        """Let all but one target count as durable: its sources are confirmed nothing until it came through."""
        target = pending.target
        (work,) = [work for work in gathered.works if work.target == target]
        # Of all that feed it: once it fails, nothing of any of them is written, and they are told behind that.
        sources = [*{*work.through, *work.open_sources, *work.abandoned, *self._states.sources_of(target)}]
        for source in sources:
            self._progress.step_aside(source, target)
        with self._wake:
            number = self._ended + 1
            self._aside[target].append(number)

        def came_through(outcome: concurrent.futures.Future[Receipt | Failure | None]) -> None:
            try:
                found = outcome.result()
                if isinstance(found, Failure):
                    if self._stopping:
                        return  # it was given up for that, and the next start takes it up
                    self._fail(found)
                elif found is not None:
                    self._receive(found)
                    self._note_replays(gathered, {target})
            except Exception as error:  # noqa: BLE001 (nobody else would see it)
                _log.exception("a worker died", extra={"event": "bug", "worker": self._number})
                self.died = InternalError(f"worker {self._number}: {error!r}")
                return
            for source in sources:
                self._progress.came_through(source, target)
            with self._wake:
                self._aside[target].remove(number)

        pending.outcome.add_done_callback(came_through)

    def _note_replays(self, gathered: Gathered, received: Container[str]) -> None:
        for source, replay in gathered.replays:
            if self._lot is not None and replay.target in received:
                failpoints.hit("replay_applied")
                self._lot.applied(replay.target, source, replay.number, replay.end)

    def _receive(self, receipt: Receipt) -> None:
        for source in receipt.positions.keys() | receipt.rows_of.keys():
            operations = receipt.operations_of.get(source, NO_OPERATIONS)
            self._states.note(
                receipt.target,
                source,
                rows=receipt.rows_of.get(source, 0),
                **operations._asdict(),
                commits=int(receipt.snapshot_id is not None and receipt.is_first),
                last_commit_us=receipt.commit_us,
                last_commit_seconds=receipt.seconds,
            )
        self._on_receipt(receipt)

    def _fail(self, failure: Failure) -> None:
        # Hold first: once this mini-transaction counts as durable, its changes could be confirmed away.
        for source in self._states.sources_of(failure.target):
            self._progress.hold(source, failure.target)
            if self._states.is_streaming(failure.target, source):
                self._states.set(failure.target, source, State.ERROR, failure.error)
        self._on_failure(failure)

    def _guard(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except KuvaszError as error:
            self.died = error
        except Exception as error:  # noqa: BLE001 (the owner of the thread)
            self.died = InternalError(f"worker {self._number}: {error!r}")
            _log.exception("a worker died", extra={"event": "bug", "worker": self._number})
        finally:
            if self.died is not None:
                with self._wake:
                    self._stopping = True
                    self._wake.notify_all()
                self._free_other()

    def _free_other(self) -> None:
        """End the wait of the other thread: for something in the queue, or for room in it."""
        if threading.current_thread() is self._threads[0]:
            with contextlib.suppress(queue.Full):
                self._written.put_nowait(None)
        else:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._written.get_nowait()
