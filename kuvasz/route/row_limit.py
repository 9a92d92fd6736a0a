"""How large a row may be on its way: what is larger is told of before anybody decodes, spools or writes it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from kuvasz.model import Relation, Segment

#: Relation, commit LSN and bytes of a row message that is too large.
OnTooLarge: TypeAlias = Callable[[Relation, int, int], None]


@dataclasses.dataclass(frozen=True, slots=True)
class RowLimit:
    """The limit, and who is told of what exceeds it.

    Args:
        bytes: The bytes of one row message of the stream; an UPDATE may have the row twice.
        exceeded: Told of each such row before its segment goes to a worker.
    """

    bytes: int
    exceeded: OnTooLarge

    def check(self, segment: Segment) -> None:
        """Tell of the rows of a segment that are too large."""
        if len(segment.data) <= self.bytes:  # by far most: not a look at its rows
            return
        for row in np.flatnonzero(segment.lengths > self.bytes):
            run = int(np.searchsorted(segment.transactions.row_end, row, side="right"))
            self.exceeded(segment.relation, int(segment.transactions.commit_lsn[run]), int(segment.lengths[row]))


__all__ = ["OnTooLarge", "RowLimit"]
