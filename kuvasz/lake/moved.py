"""What the stream says of some keys: those that changed, and what they are now. Nothing else of it is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kuvasz.fold.difference import find
from kuvasz.fold.keys import Keys
from kuvasz.lake.comparing import prints
from kuvasz.model import Int64s, Relation, Segment, Truncation
from kuvasz.modes import clone
from kuvasz.modes.shape import Shape

_UNTOUCHED, _ROW, _DELETED, _UNKNOWN = range(4)


class Moved:
    """The state of some keys after the changes taken so far.

    Args:
        keys: The keys of interest, ascending.
        shape_of: How a relation meets the lake table.
    """

    def __init__(self, keys: Keys, shape_of: Callable[[Relation], Shape]) -> None:
        self._keys = keys
        self._shape_of = shape_of
        self._states = np.zeros(len(keys), np.uint8)
        self._prints = Keys.empty(len(keys))

    @property
    def touched(self) -> np.ndarray:
        """Per key whether it changed."""
        mask: np.ndarray = self._states != _UNTOUCHED
        return mask

    @property
    def unknown(self) -> np.ndarray:
        """Per key whether it changed to a row of which large values were not sent."""
        mask: np.ndarray = self._states == _UNKNOWN
        return mask

    def known(self) -> tuple[Int64s, Int64s, Keys]:
        """Return the changed keys of which all is known, as indices, with 0 or 1 row, and its fingerprint."""
        known = np.flatnonzero((self._states == _ROW) | (self._states == _DELETED))
        return known, (self._states[known] == _ROW).astype(np.int64), self._prints.take(known)

    def take(self, change: Segment | Truncation) -> None:
        """Take a change; they must come in stream order.

        Raises:
            DecodeError: A value does not fit.
            SchemaError: The relation does not meet the lake table.
        """
        if isinstance(change, Truncation):
            self._states[:] = _DELETED
            return
        shape = self._shape_of(change.relation)
        applied = clone.apply_changes(shape, np.frombuffer(change.data, np.uint8), change.lengths)
        at = find(self._keys, applied.keys)
        hit = np.flatnonzero(at >= 0)
        mine, written = at[hit], applied.written[hit]
        count = applied.rows.num_rows
        is_row = (written >= 0) & (written < count)
        self._states[mine] = np.select([written < 0, is_row], [_DELETED, _ROW], _UNKNOWN)
        if not is_row.any():
            return
        rows = applied.rows.take(written[is_row])
        found = prints(shape, rows)
        self._prints.hi[mine[is_row]], self._prints.lo[mine[is_row]] = found.hi, found.lo
