"""The thread of a worker that commits what was written, in order, and tells what is durable."""

from __future__ import annotations

import concurrent.futures
import time

from kuvasz import failpoints
from kuvasz.errors import InternalError
from kuvasz.events import Event, EventLog
from kuvasz.ports import Failure, Lake, Pending, Receipt
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.tracing.mini_transaction import MiniTransaction, OnDurable, Times
from kuvasz.worker.gather import Gathered
from kuvasz.worker.handover import Handover, Item
from kuvasz.worker.outcomes import Outcomes
from kuvasz.worker.signals import Signals
from kuvasz.worker.under_way import UnderWay

_log = EventLog(__name__)


class CommitLoop:
    """The commit loop of one worker; `run` is its thread.

    Args:
        number: The number of the worker.
        lake: Where changes go.
        outcomes: What follows from commits and failures.
        progress: Told what is durable.
        budget: Told which bytes are no longer waiting.
        under_way: Told what has ended.
        signals: Whether to stop.
        on_durable: Called for every mini-transaction whose times were noted.
    """

    def __init__(
        self,
        number: int,
        lake: Lake,
        outcomes: Outcomes,
        progress: Progress,
        budget: Budget,
        under_way: UnderWay,
        signals: Signals,
        on_durable: OnDurable | None = None,
    ) -> None:
        self._on_durable = on_durable
        self._number = number
        self._lake = lake
        self._outcomes = outcomes
        self._progress = progress
        self._budget = budget
        self._under_way = under_way
        self._signals = signals

    def run(self, handover: Handover) -> None:
        """Commit what is handed over, until nothing more comes."""
        while (item := self._next(handover)) is not None:
            gathered, written = item
            begin = time.monotonic()
            receipts, failed = [], []
            for outcome in self._lake.commit(written):
                if isinstance(outcome, Failure):
                    self._outcomes.fail(outcome)
                    failed.append(outcome.target)
                elif isinstance(outcome, Pending):
                    self._leave_aside(gathered, outcome)
                else:
                    self._outcomes.receive(outcome)
                    receipts.append(outcome)
            self._outcomes.note_replays(gathered, receipts)
            failpoints.hit("before_durable")
            for source, (through, epoch) in gathered.through.items():
                self._progress.durable(source, self._number, through, epoch)
            failpoints.hit("after_durable")
            self._budget.remove(gathered.bytes_of)
            self._under_way.end()
            _log.tell(
                Event.DURABLE, worker=self._number, bytes=gathered.bytes, seconds=round(time.monotonic() - begin, 4)
            )

            if self._on_durable is not None and gathered.times is not None:
                gathered.times.committing, gathered.times.durable = begin, time.monotonic()
                self._on_durable(self._traced(gathered, gathered.times, receipts, failed))

    def _traced(
        self, gathered: Gathered, times: Times, receipts: list[Receipt], failed: list[str]
    ) -> MiniTransaction:  # fmt: skip
        return MiniTransaction(
            worker=self._number,
            times=times,
            bytes=gathered.bytes,
            rows=sum(receipt.rows for receipt in receipts),
            through={source: through for source, (through, _) in gathered.through.items()},
            snapshots={receipt.target: receipt.snapshot_id for receipt in receipts},
            failed=tuple(failed),
        )

    def _next(self, handover: Handover) -> Item:
        item = None if self._signals.died is not None and handover.is_empty else handover.get()
        self._signals.tell()  # there is room again
        return item

    def _leave_aside(self, gathered: Gathered, pending: Pending) -> None:
        """Let all but one target count as durable: its sources are confirmed nothing until it came through."""
        target = pending.target
        aside = {
            source: self._progress.step_aside(source, target)
            for source in self._outcomes.sources_of(gathered, target)
        }
        place = self._under_way.step_aside(target)

        def came_through(outcome: concurrent.futures.Future[tuple[Receipt | Failure, ...]]) -> None:
            try:
                for found in outcome.result():
                    if not isinstance(found, Failure):
                        self._outcomes.receive(found)
                        self._outcomes.note_replays(gathered, [found])
                    elif found.source is None and self._signals.is_stopping:
                        self._outcomes.hold(found)  # it was given up for that, and the next start takes it up
                    else:
                        self._outcomes.fail(found)
            except Exception as error:  # noqa: BLE001 (nobody else would see it)
                _log.tell(Event.BUG_IN_WORKER, worker=self._number)
                self._signals.died = InternalError(f"worker {self._number}: {error!r}")
                return
            for source, number in aside.items():
                self._progress.came_through(source, target, number)
            self._under_way.came_through(target, place)

        pending.outcome.add_done_callback(came_through)


__all__ = ["CommitLoop"]
