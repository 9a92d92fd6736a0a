"""The second stage of a mini-transaction: per target, earlier versions are found and one Iceberg commit shows it."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kuvasz.errors import ForeignChange, InternalError, KuvaszError, LakeError, LateCommit, TableGone
from kuvasz.lake import chunks
from kuvasz.lake.clone import CloneWriter
from kuvasz.lake.era import Era
from kuvasz.lake.files import Changeset
from kuvasz.lake.history import HistoryWriter
from kuvasz.model import TableType
from kuvasz.ports import Failure, Receipt

if TYPE_CHECKING:
    from kuvasz.lake.binding import Feeds
    from kuvasz.lake.jobs import Jobs
    from kuvasz.lake.table import LakeTable
    from kuvasz.lake.written import Written, WrittenTable

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Attempts at a commit that meets another writer's before the table stops.
_CONFLICT_ATTEMPTS = 5

#: Before a step that failed is tried again; longer each time.
_FIRST_WAIT_S = 0.5
_LAST_WAIT_S = 30.0


class CommitStage:
    """Commits what was written; a table that fails fails alone. Safe from any thread.

    Args:
        jobs: Where rows that need others of the lake are written.
        pool: Tables commit side by side in it.
        tables: Every prepared table by its name.
        feeds: What feeds them.
        properties: Of the FileIO.
        state: The folder with the indexes.
    """

    def __init__(
        self,
        jobs: Jobs,
        pool: concurrent.futures.Executor,
        tables: Mapping[str, LakeTable],
        feeds: Feeds,
        properties: Mapping[str, str],
        state: Path,
    ) -> None:
        self._jobs = jobs
        self._pool = pool
        self._tables = tables
        self._feeds = feeds
        self._properties = properties
        self._state = state
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.conflicts = 0  #: commits made again because another writer was faster

    def close(self) -> None:
        """Try nothing again any more."""
        self._closing.set()

    def commit(self, written: Written) -> list[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        if len(written.tables) == 1:
            outcomes = [self._commit(written.tables[0])]
        else:
            outcomes = list(self._pool.map(self._commit, written.tables))
        return [outcome for outcome in outcomes if outcome is not None]

    def _commit(self, written: WrittenTable) -> Receipt | Failure | None:
        table = self._tables[written.work.target]
        with table.lock:
            changeset = Changeset()
            if table.era is not written.era or written.era.error is not None:
                written.abandon_to(changeset)
                table.discard(changeset)
                table.in_flight.difference_update(written.paths())
                return None
            try:
                for source in written.work.abandoned:
                    table.abandon(source)
                written.check_generations(table)
                if written.error is not None:
                    raise written.error
                had_open = bool(table.open)
                for attempt in range(_CONFLICT_ATTEMPTS):
                    try:
                        return self._apply(table, written, changeset)
                    except ForeignChange:
                        self._note_conflict()
                        # Parts of an open transaction cannot be resolved again: their keys are gone by now.
                        if attempt == _CONFLICT_ATTEMPTS - 1 or had_open or table.open:
                            raise
                        table.discard(changeset, keep=written.paths())
                        changeset = Changeset()
                        table.reset_index()
                        table.table.refresh()
                raise InternalError("unreachable")
            except KuvaszError as error:
                return _failed(table, written, changeset, error)
            except OSError as error:
                # It leaves the index as it was, but the chunk was resolved in part: the table begins again behind it.
                message = f"table {table.name}: its index below {self._state} cannot be kept: {error}"
                return _failed(table, written, changeset, LakeError(message, hint="make room; it is tried again"))
            except Exception as error:  # noqa: BLE001 (the table stops, not the process)
                _log.exception("a commit failed in our own code", extra={"event": "bug", "table": table.name})
                return _failed(table, written, changeset, InternalError(f"table {table.name}: {error!r}"))
            finally:
                table.in_flight.difference_update(written.paths())

    def _note_conflict(self) -> None:
        with self._lock:
            self.conflicts += 1

    def _apply(self, table: LakeTable, written: WrittenTable, changeset: Changeset) -> Receipt:
        self._retried(table, table.follow)
        table.check_open()
        self._resolve(table, written, changeset)
        positions = chunks.reached(written.cut, written.work.through, table.positions)
        begin = time.monotonic()
        snapshot_id = self._retried(table, lambda: table.commit(changeset, positions))
        seconds = time.monotonic() - begin
        return Receipt(
            target=table.name,
            positions=positions,
            rows=written.cut.rows,
            snapshot_id=snapshot_id,
            rows_of=written.cut.rows_of,
            operations_of=written.operations(),
            commit_us=written.cut.commit_us,
            seconds=seconds,
        )

    def _retried(self, table: LakeTable, step: Callable[[], T]) -> T:
        """Catalog and storage may fail for a while: the work is kept and the step tried again, for ever."""
        wait = _FIRST_WAIT_S
        while True:
            try:
                return step()
            except LakeError as error:
                if self._closing.is_set() or isinstance(error, LateCommit):
                    raise
                _log.warning("a commit failed and is tried again", extra={
                    "event": "commit_retry", "table": table.name, "error": error.message, "wait_s": wait,
                })  # fmt: skip
                self._closing.wait(wait)
                wait = min(wait * 2, _LAST_WAIT_S)

    def _resolve(self, table: LakeTable, written: WrittenTable, changeset: Changeset) -> None:
        kind = HistoryWriter if table.target.type is TableType.HISTORY else CloneWriter
        writer = kind(table, self._jobs, self._properties, changeset)
        for step, result in zip(written.cut.steps, written.results, strict=True):
            feed = self._feeds.find(table.name, step.source, step.relation)
            writer.take(step, result, feed.sid if table.target.has_sid else None)
        writer.conclude(written.work.through.keys() - written.work.open_sources)


def _failed(table: LakeTable, written: WrittenTable, changeset: Changeset, error: KuvaszError) -> Failure:
    table.era = Era(accepted={}, error=error)
    # A commit that was refused for sure leaves files to remove; one of which nobody knows that may be there.
    is_refused = isinstance(error, ForeignChange | TableGone) and not changeset.is_there
    changeset.is_outcome_unknown = changeset.sent is not None and not is_refused
    written.abandon_to(changeset)
    table.forget(changeset)
    return Failure(target=table.name, error=error)


__all__ = ["CommitStage"]
