"""Changing only what differs: after a lost slot in place of a copy, and for `kuvasz verify --fix`.

A clone's differing rows are replaced. Of a history the open versions are compared: those that differ end at the
time of the source's snapshot, and what the source has instead begins then. What an append or changelog table misses
is in no snapshot; it only gets its position. What was lost stands in the table as a gap (`kuvasz.lake.format.gaps`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, InternalError, LakeError, place_of
from kuvasz.fold.difference import Difference, DifferenceKind, find
from kuvasz.fold.keys import Keys
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.compare.comparison import Comparison, OnProgress, lake_files
from kuvasz.lake.copies.order import Order
from kuvasz.lake.copies.soft_deletions import SoftDeletions
from kuvasz.lake.executors.comparison_tasks import Fetched, Reading, pairs
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.lake.files.files import Changeset, FileTable
from kuvasz.lake.table.commits import may_be_there
from kuvasz.model import Int64s, SourcePosition, TableType
from kuvasz.modes.clone import Closings
from kuvasz.ports import CopyRequest, Receipt

#: Attempts at a repair that meets another writer who rewrites the files it compared.
_ATTEMPTS = 3


def wanted_keys(difference: Difference) -> Keys:
    """Return the differing keys that the source has a row of."""
    return difference.keys.take(difference.kinds != DifferenceKind.EXTRA)


def is_in(files: FileTable, difference: Difference) -> bool:
    """Whether the files that hold the differing rows are still there."""
    return all(number in files for number in np.unique(difference.files).tolist())


class RepairJob:
    """One repair. Use once.

    Args:
        order: What is repaired.
        on_read: Called when all is read of the source, before the commit.
        at_us: When the source's snapshot was taken, in µs since 1970.
        gap_lsn: Where the gap begins that the commit closes, if none is open.
    """

    def __init__(self, order: Order, on_read: Callable[[], None], at_us: int = 0, gap_lsn: int | None = None) -> None:
        self._order = order
        self._on_read = on_read
        self._at_us = at_us
        self._gap_lsn = gap_lsn
        self._table = order.table
        self._feed = order.feed
        self._sid = order.sid
        self._jobs = order.jobs
        self._reading = Reading(
            shape=order.shape(), properties=order.properties, chunk_bytes=order.pipeline.chunk_bytes,
            at_us=at_us if order.table.target.type is TableType.HISTORY else None,
        )  # fmt: skip
        self._rejected: dict[str, int] = {}
        self._folder = order.folder
        self._parallelism = order.pipeline.copy_parallelism

    def run(self, requests: Sequence[CopyRequest], position: SourcePosition, on_progress: OnProgress) -> Receipt:
        """Compare, and commit what differs."""
        try:
            return self._run(requests, position, on_progress)
        except OSError as error:
            message = f"{place_of(table=self._table.name)}: what differs cannot be kept below {self._folder}: {error}"
            raise LakeError(message, hint="make room; it is tried again") from error

    def _run(self, requests: Sequence[CopyRequest], position: SourcePosition, on_progress: OnProgress) -> Receipt:
        table = self._table
        self._reading = dataclasses.replace(self._reading, lsn=position.lsn)
        if table.definition.is_growing:
            with table.lock:
                table.follow()
                table.open.abandon(self._feed.source)
                self._lack()
                return self._commit(Difference.concat([]), [], position, table.index.readings)
        for attempt in range(_ATTEMPTS):
            with table.lock:
                table.follow()
                table.index.places  # noqa: B018 (files are known with it)
                table.open.abandon(self._feed.source)
                seen = table.index.readings
                files = lake_files(table.index.files, self._feed.source, self._sid, has_sid=table.target.has_sid)
            comparison = Comparison(
                self._jobs, self._reading, requests, files, parallelism=self._parallelism, folder=self._folder,
                on_progress=on_progress,
                keep_rejected=lambda rows: self._order.keep_rejected(self._table.name, rows),
            )  # fmt: skip
            fetched: list[Fetched] = []
            try:
                difference = comparison.difference()
                if len(difference):
                    fetched = comparison.fetch(wanted_keys(difference), table)
                self._settle(comparison, fetched)
                self._rejected = dict(comparison.rejected.rows)
                failpoints.hit("gap_compared", LakeError)
                return self._commit(difference, fetched, position, seen)
            except ForeignChange:
                comparison.discard(fetched)
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                comparison.close()
        raise InternalError("unreachable")

    def _lack(self) -> None:
        """Have no row take from those that are there what it leaves out: that may be another one since the gap."""
        columns, source = self._table.columns, self._feed.source
        columns.rules.lack(source)
        columns.shapes.mix(source, is_mixed=columns.rules.is_mixed(source), lacks_rows=True)

    def _settle(self, comparison: Comparison, fetched: Sequence[Fetched]) -> None:
        """Have whoever asked say whether what was read of the source counts, and write down what does not fit."""
        try:
            self._on_read()
            comparison.rejected.flush()
        except BaseException:
            comparison.discard(fetched)
            raise

    def _commit(
        self, difference: Difference, fetched: Sequence[Fetched], position: SourcePosition, seen: int
    ) -> Receipt:
        """Commit what differs, unless the rows that were compared may be others by now.

        Args:
            difference: What differs.
            fetched: The source's rows of it.
            position: Where the source's snapshot stands.
            seen: `TableIndex.readings` when the lake's rows were listed.
        """
        table, source = self._table, self._feed.source
        begin = time.monotonic()
        changeset = self._order.changeset()
        changeset.summary["kuvasz.repair"] = str(len(difference))
        with table.lock:
            try:
                table.follow()
                if table.index.readings != seen or not is_in(table.index.files, difference):
                    message = f"{place_of(table=table.name)}: someone else changed it while it was compared"
                    raise ForeignChange(message, hint="it is compared again")
                table.notes.close_gap(changeset, source, position.lsn, self._at_us, self._gap_lsn)
                table.notes.begin(changeset, source, position)
                if table.target.type is TableType.HISTORY:
                    self._end_versions(changeset, difference, fetched)
                else:
                    changeset.delete(difference.files, difference.places)
                    if table.target.is_soft:
                        deletions = SoftDeletions(self._order, changeset, self._at_us)
                        deletions.keep(difference)
                        deletions.let_go(wanted_keys(difference))
                    rows = list(pairs(fetched))
                    numbered = [(table.index.files.reserve(), file) for file, _ in rows]
                    Resolution(table.rows, changeset).adopt(numbered, [keys for _, keys in rows], self._sid)
                snapshot_id = table.commits.make(changeset, {source: position})
                if snapshot_id is None:
                    table.notes.keep(changeset)
                    table.commits.advance({source: position})
            except BaseException as error:
                changeset.is_outcome_unknown = may_be_there(changeset, error)
                if changeset.is_outcome_unknown:
                    table.commits.unanswered.add(source)
                table.commits.discard(changeset)
                table.index.undo()
                raise
            table.era.accept({source: position.lsn})
        return Receipt(
            target=table.name, positions={source: position}, rows=len(difference), snapshot_id=snapshot_id,
            rejected=self._rejected, seconds=time.monotonic() - begin,
        )  # fmt: skip

    def _end_versions(self, changeset: Changeset, difference: Difference, fetched: Sequence[Fetched]) -> None:
        writer = HistoryWriter(self._table.rows, self._jobs, self._order.properties, changeset)
        end_versions(writer, difference.keys, fetched, self._feed.source, self._sid, self._at_us)


def end_versions(
    writer: HistoryWriter, keys: Keys, fetched: Sequence[Fetched], source: str, sid: str | None, at_us: int
) -> dict[str, Int64s]:
    """Have what differs change at the time of the snapshot, as one transaction of the source would.

    Args:
        writer: The writer of the history.
        keys: The keys that differ, ascending.
        fetched: The rows that the source has of some of them, and perhaps of others.
        source: Whose they are.
        sid: The sid of the source.
        at_us: The time of the snapshot, in µs since 1970.

    Returns:
        Rows of other keys, by the path of their file: nothing may come of these.
    """
    rows = list(pairs(fetched))
    key_of = find(keys, Keys.concat([some for _, some in rows])).astype(np.int32)
    wanted = np.flatnonzero(key_of >= 0).astype(np.int32)
    written = np.full(len(keys), -1, np.int32)
    written[key_of[wanted]] = wanted
    is_gone = written < 0
    closings = Closings(
        us=np.full(len(keys), at_us, np.int64), is_gone=is_gone,
        first_start=np.where(is_gone, np.iinfo(np.int64).max, at_us), key_of=key_of,
    )  # fmt: skip
    done = ChunkDone(files=tuple(file for file, _ in rows), keys=keys, written=written, closings=closings)
    writer.chunk(done, source, sid)
    others = {file.path: np.flatnonzero(find(keys, some) < 0) for file, some in rows}
    return {path: found for path, found in others.items() if len(found)}
