"""What follows from a worker's commits, and from their failures, for the state of tables and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kuvasz import failpoints
from kuvasz.events import Event, EventLog
from kuvasz.model import NO_OPERATIONS
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Failure, Receipt
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.worker.gather import Gathered

_log = EventLog(__name__)

OnFailure = Callable[[Failure], None]
OnReceipt = Callable[[Receipt], None]


def tell_rejected(receipt: Receipt) -> None:
    """Tell of the rows that were left out of a commit."""
    for source, rows in receipt.rejected.items():
        _log.tell(Event.ROWS_REJECTED, table=receipt.target, source=source, rows=rows)


class Outcomes:
    """The outcomes of one worker's commits. Called in any thread.

    Args:
        states: Told about commits and failures.
        progress: Told which sources are held.
        lot: Told how far replays are; None: there are none.
        on_failure: Called after a table was put into error.
        on_receipt: Called for every commit.
    """

    def __init__(
        self,
        states: TableStates,
        progress: Progress,
        lot: ParkingLogs | None,
        *,
        on_failure: OnFailure,
        on_receipt: OnReceipt,
    ) -> None:
        self._states = states
        self._progress = progress
        self._lot = lot
        self._on_failure = on_failure
        self._on_receipt = on_receipt

    def receive(self, receipt: Receipt) -> None:
        """Take note of a commit."""
        tell_rejected(receipt)
        for source in receipt.positions.keys() | receipt.rows_of.keys():
            operations = receipt.operations_of.get(source, NO_OPERATIONS)
            position = receipt.positions.get(source)
            self._states.note(
                receipt.target,
                source,
                rows=receipt.rows_of.get(source, 0),
                bytes=receipt.bytes_of.get(source, 0),
                **operations._asdict(),
                rejected=receipt.rejected.get(source, 0),
                commits=int(receipt.snapshot_id is not None and receipt.is_first),
                last_commit_us=0 if position is None else position.commit_us,
                last_commit_seconds=receipt.seconds,
            )
        self._on_receipt(receipt)

    def fail(self, failure: Failure) -> None:
        """Stop a table, or one source of it."""
        # Hold first: once this mini-transaction counts as durable, its changes could be confirmed away.
        self.hold(failure)
        self._stop(failure)
        self._on_failure(failure)

    def fail_following(self, failure: Failure) -> None:
        """Stop a table that failed by none of its commits; who has been told of it is not told again."""
        if self._stop(failure):
            self._on_failure(failure)

    def _stop(self, failure: Failure) -> bool:
        target = failure.target
        return self._states.fail(
            target, failure.error, hold=lambda source: self._progress.hold(source, target), source=failure.source
        )

    def hold(self, failure: Failure) -> None:
        """Have nothing more confirmed of what feeds a target, or of the source that failed."""
        target, one = failure.target, failure.source
        for source in self._states.sources_of(target) if one is None else [one]:
            if self._states.knows(target, source):
                self._progress.hold(source, target)

    def note_replays(self, gathered: Gathered, receipts: Iterable[Receipt]) -> None:
        """Take note how far parking logs are replayed into the targets that were committed.

        A source that is left out of a commit, because it failed in that one or before, has no position in it.
        """
        received = {(receipt.target, source) for receipt in receipts for source in receipt.positions}
        for source, replay in gathered.replays:
            if self._lot is not None and (replay.target, source) in received:
                failpoints.hit("replay_applied")
                self._lot.replays.applied(replay.target, source, replay.number, replay.end)

    def sources_of(self, gathered: Gathered, target: str) -> list[str]:
        """Return the sources that wait for a target of a mini-transaction.

        All that feed it: once it fails, nothing of any of them is written, and they are told behind that.
        """
        (work,) = [work for work in gathered.works if work.target == target]
        return [*{*work.through, *work.open_sources, *work.abandoned, *self._states.sources_of(target)}]


__all__ = ["OnFailure", "OnReceipt", "Outcomes"]
