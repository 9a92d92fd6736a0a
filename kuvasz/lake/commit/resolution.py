"""New rows into a table: what jobs have written, taken into a changeset and told to the index.

For tables whose rows have keys of their own: what the stream brings into a clone without a key goes through
`kuvasz.lake.table.keyless`, into a history through `kuvasz.lake.commit.history`. Copied rows come this way into all
of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kuvasz.index import bulk
from kuvasz.index.positions import ABSENT
from kuvasz.lake.executors.tasks import from_ipc, to_ipc
from kuvasz.lake.files.data_file import place_in
from kuvasz.lake.table.row_counts import RowCounts

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.executors.tasks import ChunkDone
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.open_transactions import OpenTransaction
    from kuvasz.lake.table.table_index import TableRows
    from kuvasz.model import UInt32s, UInt64s


class Resolution:
    """The rows of one commit of one table.

    Args:
        table: The rows of the table, whose lock is held.
        changeset: The commit's own, beside those of open transactions.
    """

    def __init__(self, table: TableRows, changeset: Changeset) -> None:
        self._table = table
        self._changeset = changeset

    def apply(
        self,
        done: ChunkDone,
        source: str,
        waiting: int,
        layer: Changeset,
        sid: str | None,
        source_of: Callable[[Keys], str] | None = None,
    ) -> tuple[UInt32s, UInt32s] | None:
        """Apply the results of one chunk: earlier versions die, new rows enter the index.

        Args:
            done: The results.
            source: The source of the chunk; its open transaction is looked at first.
            waiting: File number reserved for its rows that wait for earlier versions.
            layer: Takes the outcome: the commit's changeset, or the open transaction's.
            sid: The sid of the chunk's rows; None if they are of several sources.
            source_of: As for `TableIndex.find_earlier`.

        Returns:
            For rows that wait: file number and position of each one's earlier version, else None.

        Raises:
            TableError: A row waits for an earlier version that is not there.
        """
        assert done.keys is not None
        assert done.written is not None
        table = self._table
        pending = table.open.get(source)
        earlier = None
        if done.sources is not None:
            earlier = table.index.find_earlier(done.sources, source, source_of)
        if not table.definition.is_growing:
            files, rows = table.index.lookup(done.keys, pending)
            found = files != ABSENT
            layer.delete(files[found], rows[found])
        numbers = [*table.index.add_files(done.files, layer, sid), waiting]
        kept = np.flatnonzero(done.written >= 0)
        file, position = place_in(done.files, numbers, done.written[kept])
        table.index.insert(done.keys.take(kept.astype(np.int32)), file, position, pending)
        if table.definition.is_growing and len(kept) < len(done.written):
            self._forget(done.keys.take(np.flatnonzero(done.written < 0).astype(np.int32)), pending)
        return earlier

    def _forget(self, keys: Keys, pending: OpenTransaction | None) -> None:
        """Have the index know no row of keys that are gone: what comes of them later need not go on from these.

        They left a filter, or do not fit, and may change meanwhile.
        """
        index = self._table.index
        files, rows = index.lookup(keys, pending)
        found = np.flatnonzero(files != ABSENT).astype(np.int32)
        if len(found):
            nowhere = np.full(len(found), index.files.reserve(), np.uint32)  # a file that there never is
            index.insert(keys.take(found), nowhere, rows[found], pending)

    def without_lost(
        self,
        done: ChunkDone,
        source: str,
        layer: Changeset,
        waiting: Container[int],
        may_lack: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[ChunkDone, npt.NDArray[np.bool_]]:
        """Leave the rows out that wait for what is not there, or goes in this very commit.

        Args:
            done: The results of a chunk.
            source: Its source.
            layer: Takes the outcome.
            waiting: Numbers of files that are still to come.
            may_lack: Which of those that wait are left out, None: all.

        Returns:
            The results without them, and which of those that waited they are.
        """
        assert done.aside is not None
        assert done.sources is not None
        assert done.written is not None
        files, rows = self._table.index.lookup(done.sources, self._table.open.get(source))
        lost = self._table.index.lost(files, rows)
        layers = [layer, self._changeset]
        for number in np.unique(files).tolist():
            is_there = number in self._table.index.files or any(number in one.added for one in layers)
            if not (is_there or number in waiting) or any(number in one.dropped for one in layers):
                lost |= files == number  # the index does not forget rows of files that went as a whole
            for changeset in layers:
                gone = changeset.deletes.get(number)
                if gone is not None:
                    lost |= (files == number) & np.isin(rows, np.fromiter(gone, np.uint32, len(gone)))
        if may_lack is not None:
            lost &= may_lack
        if not lost.any():
            return done, lost
        begin = sum(file.rows for file in done.files)
        waits = np.flatnonzero(done.written >= begin)
        row = done.written[waits] - begin
        written = done.written.copy()
        written[waits] = np.where(lost[row], -1, begin + np.cumsum(~lost)[row] - 1)
        stay = np.flatnonzero(~lost).astype(np.int32)
        if len(stay) == 0:
            return dataclasses.replace(done, written=written, aside=None, sources=None, unchanged=()), lost
        left = from_ipc(done.aside).take(pa.array(stay))
        unchanged = tuple(mask[stay] if len(mask) else mask for mask in done.unchanged)
        sources = done.sources.take(stay)
        return dataclasses.replace(
            done, written=written, aside=to_ipc(left), sources=sources, unchanged=unchanged
        ), lost

    def complete(
        self, waiting: int, done: ChunkDone, completed: ChunkDone, source: str, layer: Changeset, sid: str | None
    ) -> tuple[UInt32s, UInt32s]:
        """Take rows that waited for their earlier versions to the files they turned out to belong to.

        Until now they stood under one number, because nobody could know their partitions.

        Args:
            waiting: The number under which they stood.
            done: The results of their chunk.
            completed: Where they are.
            source: The source of the chunk.
            layer: The changeset they belong to.
            sid: The sid of the rows.

        Returns:
            File number and position of each row that waited.
        """
        assert done.keys is not None
        assert done.written is not None
        table, outer = self._table, self._changeset
        numbers = table.index.add_files(completed.files, layer, sid)
        count = sum(file.rows for file in completed.files)
        rows = np.arange(count, dtype=np.int32) if completed.written is None else completed.written
        file, position = place_in(completed.files, numbers, rows)
        gone = layer.deletes.get(waiting)
        for changeset in {id(one): one for one in (outer, *(o.changeset for o in table.open.values()))}.values():
            if (dead := changeset.deletes.pop(waiting, None)) is not None:
                which = np.fromiter(dead, np.int64, len(dead))
                changeset.delete(file[which], position[which])
        # Keys that a later chunk took over stay as that chunk left them.
        begin = sum(one.rows for one in done.files)
        mine = np.flatnonzero(done.written >= begin)
        row = done.written[mine].astype(np.int64) - begin
        if gone is not None:
            lives = ~np.isin(row, np.fromiter(gone, np.int64, len(gone)))
            mine, row = mine[lives], row[lives]
        if table.definition.is_growing:  # nothing is deleted here: the index tells
            current, _ = table.index.lookup(done.keys.take(mine.astype(np.int32)), table.open.get(source))
            mine, row = mine[current == waiting], row[current == waiting]
        pending = table.open[source] if layer is not outer else None
        table.index.insert(done.keys.take(mine.astype(np.int32)), file[row], position[row], pending)
        return file, position

    def adopt(self, files: Sequence[tuple[int, DataFile]], keys: Iterable[Keys], sid: str | None) -> None:
        """Take copied files."""
        table = self._table
        if not table.definition.is_bag:
            self.adopt_sorted(files, map(bulk.of_one_file, keys) if table.definition.key else (), sid)
            return
        places = table.index.places
        for (number, file), file_keys in zip(files, keys, strict=True):
            self._changeset.add(number, file, sid)
            rows = np.arange(file.rows, dtype=np.uint32)
            RowCounts(places.lookup, table.index.files, (self._changeset,)).stack(places, file_keys, number, rows)

    def adopt_sorted(
        self, files: Sequence[tuple[int, DataFile]], records: Iterable[UInt64s], sid: str | None
    ) -> None:
        """Take copied files; for a table with a key come records (`kuvasz.index.bulk`) of each."""
        for number, file in files:
            self._changeset.add(number, file, sid)
        if self._table.definition.key:
            self._table.index.places.load([(number, part) for (number, _), part in zip(files, records, strict=True)])
