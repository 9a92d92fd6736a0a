"""Clones of tables without a key: copies of equal rows in the position index.

The live copies of a row are numbered from 0 without a gap: copies that go are the last, copies that come follow them.
So their count is found by looking some of them up, and nothing but the index has to know of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kuvasz.errors import TableError
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT
from kuvasz.lake.files.data_file import place_in
from kuvasz.modes.keyless import RowCopies, copy_keys, distinct, ranks

if TYPE_CHECKING:
    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.executors.tasks import ChunkDone
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.lake.table.transaction import OpenTransaction
    from kuvasz.model import Int32s, Int64s, UInt32s


class KeylessRows:
    """The rows of one table while one commit is worked out.

    Args:
        table: The table.
        layers: What the commit has changed so far, with the open transaction's part if there is one.
        pending: The open transaction.
    """

    def __init__(
        self, table: LakeTable, layers: Sequence[Changeset] = (), pending: OpenTransaction | None = None
    ) -> None:
        self._table = table
        self._layers = layers
        self._pending = pending

    def take(self, done: ChunkDone, source: str, sid: str | None) -> None:
        """Take the results of a chunk.

        Args:
            done: The results.
            source: Of the chunk.
            sid: Of its rows.

        Raises:
            TableError: A row that goes is not there.
        """
        assert done.keys is not None
        assert done.written is not None
        assert done.delta is not None
        layer = self._layers[-1]
        before = self.count(done.keys)
        after = before + done.delta
        if (after < 0).any():
            message = (
                f"source {source}, table {self._table.name}: {int(-after[after < 0].sum())} rows that were changed or"
                " deleted are not in the lake"
            )
            raise TableError(message, hint=f"copy the table again: kuvasz resync --table {self._table.name}")
        gone = RowCopies.between(after, before)
        layer.delete(*self._table.lookup(copy_keys(done.keys.take(gone.of), gone.number), self._pending))
        came = RowCopies.between(before, after)
        rows = (done.written[came.of] + (came.number - before[came.of])).astype(np.int32)
        if done.places is not None:
            rows = done.places[rows]
        files, positions = place_in(done.files, self._table.add_files(done.files, layer, sid), rows)
        self._table.insert(copy_keys(done.keys.take(came.of), came.number), files, positions, self._pending)

    def stack(self, index: PositionIndex, keys: Keys, number: int, rows: UInt32s) -> None:
        """Tell the index of rows of a file, equal ones among them, that it does not know."""
        found, of, _ = distinct(keys)
        place = self.count(found)[of] + ranks(of)
        index.insert(copy_keys(keys, place), number, rows)

    def count(self, keys: Keys) -> Int64s:
        """Return how many copies of rows are alive: double until one is not, then halve."""
        low = np.zeros(len(keys), np.int64)
        high = np.full(len(keys), -1, np.int64)
        probe = np.zeros(len(keys), np.int64)
        left = np.arange(len(keys))
        while len(left):
            is_alive = self._is_alive(keys.take(left), probe[left])
            low[left[is_alive]] = probe[left[is_alive]] + 1
            high[left[~is_alive]] = probe[left[~is_alive]]
            probe[left] = np.where(high[left] < 0, 2 * probe[left] + 1, (low[left] + high[left]) // 2)
            left = left[(high[left] < 0) | (low[left] < high[left])]
        return low

    def _is_alive(self, keys: Keys, number: Int64s | Int32s) -> npt.NDArray[np.bool_]:
        files, rows = self._table.lookup(copy_keys(keys, number), self._pending)
        is_alive: npt.NDArray[np.bool_] = files != ABSENT
        for file in np.unique(files[is_alive]).tolist():
            mine = np.flatnonzero(files == file)
            is_alive[mine] = ~self._is_dead(file, rows[mine])
        return is_alive

    def _is_dead(self, file: int, rows: UInt32s) -> npt.NDArray[np.bool_]:
        known = self._table.files
        is_there = file in known or any(file in layer.added for layer in self._layers)
        if not is_there or any(file in layer.dropped for layer in self._layers):
            return np.ones(len(rows), np.bool_)
        is_dead: npt.NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
        bitmaps = [layer.deletes[file] for layer in self._layers if file in layer.deletes]
        for dead in [*bitmaps, *([known.dead(file)] if file in known else [])]:
            if len(dead):
                is_dead = np.logical_or(is_dead, np.isin(rows, np.fromiter(dead, np.int64, len(dead))))
        return is_dead
