"""How many equal rows a clone without a key has: copies of a row in the position index.

The live copies of a row are numbered from 0 without a gap: copies that go are the last, copies that come follow them.
So their count is found by looking some of them up, and nothing but the index has to know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kuvasz.index.positions import ABSENT
from kuvasz.modes.keyless import copy_keys, distinct, ranks

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.files.files import Changeset, FileTable
    from kuvasz.model import Int32s, Int64s, UInt32s


class RowCounts:
    """The counts of rows in one table.

    Args:
        lookup: Returns file number and position of keys.
        files: The table's files.
        layers: What a commit that is being worked out has changed so far.
    """

    def __init__(
        self,
        lookup: Callable[[Keys], tuple[UInt32s, UInt32s]],
        files: FileTable,
        layers: Sequence[Changeset] = (),
    ) -> None:
        self._lookup = lookup
        self._files = files
        self._layers = layers

    def stack(self, index: PositionIndex, keys: Keys, number: int, rows: UInt32s) -> None:
        """Tell the index of rows of a file, equal ones among them, that it does not know."""
        found, of, _ = distinct(keys)
        place = self.of(found)[of] + ranks(of)
        index.insert(copy_keys(keys, place), number, rows)

    def of(self, keys: Keys) -> Int64s:
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
        files, rows = self._lookup(copy_keys(keys, number))
        is_alive: npt.NDArray[np.bool_] = files != ABSENT
        for file in np.unique(files[is_alive]).tolist():
            mine = np.flatnonzero(files == file)
            is_alive[mine] = ~self._is_dead(file, rows[mine])
        return is_alive

    def _is_dead(self, file: int, rows: UInt32s) -> npt.NDArray[np.bool_]:
        known = self._files
        is_there = file in known or any(file in layer.added for layer in self._layers)
        if not is_there or any(file in layer.dropped for layer in self._layers):
            return np.ones(len(rows), np.bool_)
        is_dead: npt.NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
        bitmaps = [layer.deletes[file] for layer in self._layers if file in layer.deletes]
        for dead in [*bitmaps, *([known.dead(file)] if file in known else [])]:
            if len(dead):
                is_dead = np.logical_or(is_dead, np.isin(rows, np.fromiter(dead, np.int64, len(dead))))
        return is_dead


__all__ = ["RowCounts"]
