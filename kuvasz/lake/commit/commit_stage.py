"""The second stage of a mini-transaction: per target, earlier versions are found and one Iceberg commit shows it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kuvasz.backoff import Backoff
from kuvasz.errors import (
    ForeignChange,
    InternalError,
    KuvaszError,
    LakeError,
    LateCommit,
    TableStuck,
    place_of,
)
from kuvasz.events import Event, EventLog
from kuvasz.lake.commit import chunks, lanes
from kuvasz.lake.commit.bundles import Bundle
from kuvasz.lake.commit.clone import CloneWriter
from kuvasz.lake.commit.failures import failed, told
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.commit.lanes import Lanes, Outcome, Ticket
from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.files.snapshot_origin import SnapshotOrigin
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.table.commits import may_be_there
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import SourcePosition, TableType, Truncation
from kuvasz.ports import Failure, Pending, Receipt

if TYPE_CHECKING:
    from kuvasz.lake.commit.bundles import Step
    from kuvasz.lake.commit.written import Written, WrittenTable
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.format.binding import Feeds
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.lake.table.table_lock import TableLock

_log = EventLog(__name__)

T = TypeVar("T")

#: Attempts at a commit that meets another writer's before the table stops.
_CONFLICT_ATTEMPTS = 5

#: Before a step that failed is tried again; longer each time.
_FIRST_WAIT_S = 0.5

#: Between looks why a table's lock is not to be had.
_LOCK_LOOK_S = 0.1


class CommitStage:
    """Commits what was written; a table that fails fails alone. Safe from any thread.

    Args:
        jobs: Where rows that need others of the lake are written.
        answer: Raises a `KuvaszError` if catalog or store do not answer for any table.
        room_bytes: See `Lanes`.
        tables: Every prepared table by its name.
        feeds: What feeds them.
        properties: The properties of the FileIO.
        state: The folder with the indexes.
        tells: Whether snapshots say how they came about; see `kuvasz.lake.files.snapshot_origin`.
    """

    def __init__(
        self,
        jobs: Jobs,
        answer: Callable[[], None],
        room_bytes: int,
        tables: Mapping[str, LakeTable],
        feeds: Feeds,
        properties: Mapping[str, str],
        state: Path,
        *,
        tells: bool = False,
    ) -> None:
        self._jobs = jobs
        self._tables = tables
        self._feeds = feeds
        self._properties = properties
        self._state = state
        self._tells = tells
        self._lanes = Lanes(self._commit, self._hangs, answer, room_bytes)
        self._lock = threading.Lock()
        self.conflicts = 0  #: commits made again because another writer was faster

    def close(self) -> None:
        """Try nothing again any more."""
        self._lanes.close()

    def commit(self, written: Written) -> list[Receipt | Failure | Pending]:
        """See `kuvasz.ports.Lake.commit`."""
        outcomes: list[Receipt | Failure | Pending] = []
        for ticket in self._lanes.put(written.tables):
            if not ticket.outcome.done():
                outcomes.append(Pending(target=ticket.target, outcome=ticket.outcome))
            else:
                outcomes += ticket.outcome.result()
        return outcomes

    def _hangs(self, ticket: Ticket) -> KuvaszError:
        """Give up a commit of which nobody knows when it returns; see `Lanes`."""
        table = self._tables[ticket.target]
        message = f"{place_of(table=table.name)}: catalog or store have not answered a commit for {lanes.BOUND_S:g} s"
        error = TableStuck(message, hint="see what they wait for; it is tried again, and other tables go on")
        # Without the lock, which that commit holds. If it is made in the end, the table's position says so.
        table.era = WriteEra(accepted={}, error=error)
        return error

    def _commit(self, tickets: Sequence[Ticket]) -> Sequence[Outcome]:
        """Commit the first of a table's mini-transactions, and at once with it those that can be; see `Lanes`."""
        table = self._tables[tickets[0].target]
        with _patiently(table.lock, tickets[0]):
            together = _together(table, tickets)
            try:
                if table.era is together[0].written.era and table.era.error is None:
                    return self._commit_together(table, together)
                changeset = Changeset()
                _abandon(together, changeset)
                table.commits.discard(changeset)
                return [()] * len(together)
            finally:
                table.commits.in_flight.difference_update(_paths(together))

    def _commit_together(self, table: LakeTable, together: Sequence[Ticket]) -> Sequence[Outcome]:
        changeset = Changeset()
        try:
            for ticket in together:
                for source in (*ticket.written.work.abandoned, *ticket.written.refused):
                    table.open.abandon(source)
                ticket.written.check(table)
                if ticket.written.error is not None:
                    raise ticket.written.error
            had_open = bool(table.open)
            for attempt in range(_CONFLICT_ATTEMPTS):
                try:
                    return self._apply(table, together, changeset)
                except ForeignChange:
                    self._note_conflict()
                    # Parts of an open transaction cannot be resolved again: their keys are gone by now.
                    if attempt == _CONFLICT_ATTEMPTS - 1 or had_open or table.open:
                        raise
                    table.commits.discard(changeset, keep=_paths(together))
                    changeset = Changeset()
                    table.index.reset()
                    table.table.refresh()
            raise InternalError("unreachable")
        except KuvaszError as error:
            return _failed(table, together, changeset, error)
        except OSError as error:
            # It leaves the index as it was, but the chunk was resolved in part: the table begins again behind it.
            message = f"{place_of(table=table.name)}: its index below {self._state} cannot be kept: {error}"
            return _failed(table, together, changeset, LakeError(message, hint="make room; it is tried again"))
        except Exception as error:  # noqa: BLE001 (the table stops, not the process)
            _log.tell(Event.BUG_IN_COMMIT, table=table.name)
            return _failed(table, together, changeset, InternalError(f"{place_of(table=table.name)}: {error!r}"))

    def _note_conflict(self) -> None:
        with self._lock:
            self.conflicts += 1

    def _apply(self, table: LakeTable, together: Sequence[Ticket], changeset: Changeset) -> Sequence[Outcome]:
        head = together[0]
        self._retried(table, head, table.follow)
        table.open.check()
        reached: list[dict[str, SourcePosition]] = []
        positions: dict[str, SourcePosition] = {}
        for ticket in together:
            written = ticket.written
            self._resolve(table, written, changeset)
            reached.append(chunks.reached(written.cut, written.work.through, {**table.positions, **positions}))
            positions.update(reached[-1])
        begin = time.monotonic()
        if self._tells:
            changeset.summary |= _origin(changeset, head.written, begin).entry()
        snapshot_id = self._retried(table, head, lambda: table.commits.make(changeset, positions))
        seconds = time.monotonic() - begin
        return [
            told(
                ticket.written.refused,
                Receipt(
                    target=table.name,
                    positions=positions,
                    rows=ticket.written.cut.rows,
                    snapshot_id=snapshot_id,
                    is_first=ticket is head,
                    rows_of=ticket.written.cut.rows_of,
                    operations_of=ticket.written.operations(),
                    commit_us=ticket.written.cut.commit_us,
                    seconds=seconds,
                ),
            )
            for ticket, positions in zip(together, reached, strict=True)
        ]

    def _retried(self, table: LakeTable, ticket: Ticket, step: Callable[[], T]) -> T:
        """Catalog and storage may fail for a while: the work is kept and the step tried until it is given up."""
        with table.lock.doubtful():
            return self._tried_again(ticket, step)

    def _tried_again(self, ticket: Ticket, step: Callable[[], T]) -> T:
        backoff = Backoff(_FIRST_WAIT_S)
        ticket.waits_since = time.monotonic()
        while True:
            try:
                done = step()
            except LakeError as error:
                if self._lanes.is_closing or isinstance(error, LateCommit):
                    raise
                if ticket.is_given_up.is_set():
                    raise TableStuck(error.message, hint=error.hint) from error
                ticket.refusal = error
                wait = backoff.next_s()
                _log.tell(Event.COMMIT_RETRY, table=ticket.target, error=error.message, wait_s=wait)
                ticket.is_given_up.wait(wait)
            else:
                ticket.waits_since = ticket.refusal = None
                return done

    def _resolve(self, table: LakeTable, written: WrittenTable, changeset: Changeset) -> None:
        kind = HistoryWriter if table.target.type is TableType.HISTORY else CloneWriter
        writer = kind(table.rows, self._jobs, of_table(self._properties, table.definition.location), changeset)
        for step, result in zip(written.steps, written.results, strict=True):
            writer.apply(step, result, self._sid_of(table, step))
            if self._tells and not isinstance(result, Truncation):
                pending = table.open.get(step.source)
                layer = changeset if pending is None else pending.changeset
                for counted in result.operations:
                    layer.operations = layer.operations.plus(counted)
        writer.conclude(written.work.through.keys() - written.work.open_sources)

    def _sid_of(self, table: LakeTable, step: Step) -> str | None:
        if isinstance(step, Bundle) or not table.target.has_sid:
            return None
        return self._feeds.find(table.name, step.source, step.relation).sid


@contextlib.contextmanager
def _patiently(lock: TableLock, ticket: Ticket) -> Iterator[None]:
    """Hold a table's lock; while its holder waits for catalog or store, the commit is late for that."""
    while not lock.acquire(timeout=_LOCK_LOOK_S):
        ticket.waits_since = lock.doubtful_since
    ticket.waits_since = None
    try:
        yield
    finally:
        lock.release()


def _together(table: LakeTable, tickets: Sequence[Ticket]) -> list[Ticket]:
    """Return the first mini-transaction and those behind it that can be in one commit with it."""
    era = tickets[0].written.era
    first = [*itertools.takewhile(lambda ticket: ticket.written.era is era and _is_plain(ticket.written), tickets)]
    return first if first and not table.open else [tickets[0]]


def _origin(changeset: Changeset, written: WrittenTable, begin: float) -> SnapshotOrigin:
    return SnapshotOrigin(
        by=snapshot_origin.STREAM,
        operations=changeset.operations,
        writing_s=written.seconds,
        waiting_s=begin - written.written_at,
    )


def _is_plain(written: WrittenTable) -> bool:
    """Whether it is of whole transactions and nothing of it has failed."""
    work = written.work
    return written.error is None and not (written.refused or work.open_sources or work.abandoned)


def _paths(tickets: Sequence[Ticket]) -> list[str]:
    return [path for ticket in tickets for path in ticket.written.paths()]


def _abandon(tickets: Sequence[Ticket], changeset: Changeset) -> None:
    for ticket in tickets:
        ticket.written.abandon_to(changeset)


def _failed(
    table: LakeTable, together: Sequence[Ticket], changeset: Changeset, error: KuvaszError
) -> Sequence[Outcome]:
    failures = failed(table.name, error, table.positions.keys())
    table.era = WriteEra(accepted={}, error=failures[-1].error)
    changeset.is_outcome_unknown = may_be_there(changeset, error)
    _abandon(together, changeset)
    table.forget(changeset)
    return [failures, *[()] * (len(together) - 1)]


__all__ = ["CommitStage"]
