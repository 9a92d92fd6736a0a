"""How large a row may be on its way: what is larger is told of before anybody decodes, spools or writes it. Pure.

Of a row that its table rejects the large values are cut away (`kuvasz.decode.cells.CUT`), so that what goes on is
small, and is rejected where all is known of it, as any row that does not fit. What nobody looks at is no loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from kuvasz.decode.cells import Cells
from kuvasz.decode.tuples import CUT_KIND, VALUE_FRAME, split_changes
from kuvasz.errors import DecodeError
from kuvasz.model import Relation, Segment

#: Relation, commit LSN and bytes of a row message that is too large; returns whether its large values are cut away.
OnTooLarge: TypeAlias = Callable[[Relation, int, int], bool]

#: Larger values are cut away: a B-tree has no key that is larger, unless it can be compressed.
_KEPT_BYTES = 8192


@dataclasses.dataclass(frozen=True, slots=True)
class RowLimit:
    """The limit, and who is told of what exceeds it.

    Args:
        bytes: The bytes of one row message of the stream; an UPDATE may have the row twice.
        exceeded: Told of each such row before its segment goes to a worker.
    """

    bytes: int
    exceeded: OnTooLarge

    def check(self, segment: Segment) -> Segment:
        """Tell of the rows of a segment that are too large, and return it as it is to go on."""
        if len(segment.data) <= self.bytes:  # by far most: not a look at its rows
            return segment
        cut = []
        for row in np.flatnonzero(segment.lengths > self.bytes):
            run = int(np.searchsorted(segment.transactions.row_end, row, side="right"))
            lsn = int(segment.transactions.commit_lsn[run])
            if self.exceeded(segment.relation, lsn, int(segment.lengths[row])):
                cut.append(int(row))
        return _without_large_values(segment, cut) if cut else segment


def _without_large_values(segment: Segment, rows: list[int]) -> Segment:
    """Return a segment without the large values of some rows."""
    view, ends, lengths = memoryview(segment.data), np.cumsum(segment.lengths, dtype=np.int64), segment.lengths.copy()
    pieces: list[bytes | memoryview] = []
    at = 0
    for row in rows:
        end = int(ends[row])
        begin = end - int(lengths[row])
        parts = _small(view[begin:end], len(segment.relation.columns))
        pieces += [view[at:begin], *parts]
        lengths[row] = sum(map(len, parts))
        at = end
    return dataclasses.replace(segment, data=b"".join([*pieces, view[at:]]), lengths=lengths)


def _small(message: memoryview, column_count: int) -> list[bytes | memoryview]:
    """Return what is left of a row message, in parts; all of one that cannot be taken apart, which is told later."""
    try:
        changes = split_changes(np.frombuffer(message, np.uint8), np.array([len(message)], np.uint32), column_count)
    except DecodeError:
        return [message]
    values = sorted(value for cells in (changes.old, changes.new) for value in _values(cells))
    longest = max((end - begin for begin, end in values), default=0)
    parts: list[bytes | memoryview] = []
    at = 0
    for begin, end in values:
        if end - begin > min(_KEPT_BYTES, longest - 1):
            parts += [message[at : begin - VALUE_FRAME], bytes([CUT_KIND])]
            at = end
    return [*parts, message[at:]]


def _values(cells: Cells) -> list[tuple[int, int]]:
    """Return where each value begins and ends."""
    has_value = cells.length >= 0
    begins = cells.start[has_value]
    return list(zip(begins.tolist(), (begins + cells.length[has_value]).tolist(), strict=True))


__all__ = ["OnTooLarge", "RowLimit"]
