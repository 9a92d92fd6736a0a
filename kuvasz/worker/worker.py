"""One worker: an inbox, a thread that writes mini-transactions, and one that commits them.

While mini-transaction n commits, the Spark job of n+1 runs. A worker owns its targets: nobody else writes them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection

from kuvasz.errors import InternalError, KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.model import Delivery
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Failure, Lake
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.tracing.mini_transaction import OnDurable
from kuvasz.worker.backlog import Backlog
from kuvasz.worker.commit_loop import CommitLoop
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.gather import Gatherer, TargetsOf
from kuvasz.worker.handover import Handover
from kuvasz.worker.outcomes import OnFailure, OnReceipt, Outcomes
from kuvasz.worker.signals import Signals
from kuvasz.worker.under_way import UnderWay
from kuvasz.worker.write_loop import WriteLoop

_log = EventLog(__name__)


class Worker:
    """Applies the changes of the targets that are routed to it.

    Args:
        number: Its place among the workers.
        lake: Where changes go.
        targets_of: Finds the targets of a relation; see `TargetsOf`.
        progress: Told what is durable.
        budget: Told which bytes are no longer waiting.
        states: Told about failures, asked which tables are active.
        policy: When to begin a mini-transaction.
        on_failure: Called after a table was put into error.
        on_receipt: Called for every commit.
        lot: Takes the changes of tables that do not follow; None: they are dropped, and their sources are held.
        on_durable: Called for every mini-transaction that is durable; None: their times are not even noted.
    """

    def __init__(  # noqa: PLR0913 (the neighbours of a stage are its parameters)
        self,
        number: int,
        lake: Lake,
        *,
        targets_of: TargetsOf,
        progress: Progress,
        budget: Budget,
        states: TableStates,
        policy: FlushPolicy,
        on_failure: OnFailure,
        on_receipt: OnReceipt,
        lot: ParkingLogs | None = None,
        on_durable: OnDurable | None = None,
    ) -> None:
        self._number = number
        self._signals = signals = Signals()
        self._backlog = Backlog(policy, signals.changed, targets_of)
        self._under_way = UnderWay()
        handover = Handover()
        gatherer = _gatherer(states, lot)
        self._has_parts = functools.partial(gatherer.has_parts, is_active=states.is_active)
        gather = functools.partial(gatherer.gather, targets_of=targets_of, is_active=states.is_active)
        writing = WriteLoop(number, lake, gather, lot, signals, is_traced=on_durable is not None)
        outcomes = Outcomes(states, progress, lot, on_failure=on_failure, on_receipt=on_receipt)
        self._outcomes = outcomes
        committing = CommitLoop(number, lake, outcomes, progress, budget, self._under_way, signals, on_durable)
        write = functools.partial(writing.run, self._backlog, self._under_way, handover)
        commit = functools.partial(committing.run, handover)
        self._threads = [
            threading.Thread(target=self._guard, args=arguments, name=name, daemon=True)
            for name, arguments in (
                (f"write-{number}", (write, handover.free_committer)),
                (f"commit-{number}", (commit, handover.free_writer)),
            )
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Finish what is in hand and stop; deliveries that wait are left. Returns whether it ended in time."""
        self._signals.stop()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def put(self, *deliveries: Delivery) -> None:
        """See `kuvasz.ports.Inbox`."""
        self._backlog.put(*deliveries)

    def cut(self, sources: Collection[str]) -> None:
        """Let mini-transactions end at what was put of some sources by now, until `go_on`."""
        self._backlog.cut(sources)

    def go_on(self) -> None:
        """Take what was put behind the cut."""
        self._backlog.go_on()

    def hurry(self) -> None:
        """Have nothing wait for more that comes, but for a second."""
        self._backlog.hurry()

    def pace(self, interval_s: float) -> None:
        """Have mini-transactions begin at another interval from now on."""
        self._backlog.pace(interval_s)

    def limit(self, most_bytes: int) -> None:
        """Have mini-transactions take no more bytes than so many from now on."""
        self._backlog.limit(most_bytes)

    def has_begun_all(self, sources: Collection[str]) -> bool:
        """Whether all that was put of some sources before the cut is in mini-transactions that have begun."""
        return self._backlog.lacks(sources)

    def fail(self, failure: Failure) -> None:
        """Stop a target that is not what this worker left."""
        self._outcomes.fail_following(failure)

    def begun(self) -> int:
        """Return the number of mini-transactions that have begun."""
        return self._under_way.begun

    def has_ended(self, begun: int, target: str = "") -> bool:
        """Whether so many mini-transactions are committed or have failed, as far as they concern a target.

        A target that was taken out of `TableStates.is_active` before `begun` was asked has nothing under way then.
        """
        return self._under_way.has_ended(begun, target)

    def has_parts(self, target: str) -> bool:
        """Whether it has parts of a transaction of a target that has stopped, and did not end.

        The next mini-transaction gives them up, and has begun once there are none.
        """
        return self._has_parts(target)

    def ask(self) -> None:
        """Have a mini-transaction begin at once, also if nothing waits."""
        self._backlog.ask()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or died."""
        return self._signals.is_stopping

    @property
    def died(self) -> BaseException | None:
        """Why it died; None while it lives."""
        return self._signals.died

    def _guard(self, loop: Callable[[], None], free_other: Callable[[], None]) -> None:
        try:
            loop()
        except KuvaszError as error:
            self._signals.died = error
        except Exception as error:  # noqa: BLE001 (the owner of the thread)
            self._signals.died = InternalError(f"worker {self._number}: {error!r}")
            _log.tell(Event.BUG_IN_WORKER, worker=self._number)
        finally:
            if self._signals.died is not None:
                self._signals.stop()
                free_other()


def _gatherer(states: TableStates, lot: ParkingLogs | None) -> Gatherer:
    if lot is None:
        return Gatherer(end=states.end)

    def is_replaying(target: str, source: str, number: int) -> bool:
        return lot.replays.is_on(target, source, number) and states.is_streaming(target, source)

    return Gatherer(lot.takes, is_replaying, states.end)


__all__ = ["OnFailure", "OnReceipt", "Worker"]
