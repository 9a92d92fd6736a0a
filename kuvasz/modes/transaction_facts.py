"""What a chunk's rows have of their transactions: for the modes that show when, and in what order, things happened.

Runs of rows, not rows: a transaction's facts stand once, however many rows it has. Travels to executors as bytes.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

from kuvasz.model import Int32s, Int64s

_FIELDS = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """k runs of rows of one transaction each, in stream order."""

    commit_lsn: Int64s
    commit_us: Int64s  #: µs since 2000-01-01 UTC
    xid: Int64s
    row_end: Int64s  #: index one past the run's last row in the chunk
    ordinal: Int64s  #: of the run's first row, within its transaction for this table

    @classmethod
    def of(cls, runs: Int64s) -> Self:
        """Return facts of k runs, shape (k, 5): each has the fields in their order."""
        return cls._from(runs.T)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Return what `to_bytes` gave."""
        return cls._from(np.frombuffer(data, np.int64).reshape(_FIELDS, -1))

    @classmethod
    def _from(cls, fields: Int64s) -> Self:
        commit_lsn, commit_us, xid, row_end, ordinal = (np.ascontiguousarray(field) for field in fields)
        return cls(commit_lsn=commit_lsn, commit_us=commit_us, xid=xid, row_end=row_end, ordinal=ordinal)

    def to_bytes(self) -> bytes:
        """Return all fields, one after another."""
        return np.stack([self.commit_lsn, self.commit_us, self.xid, self.row_end, self.ordinal]).tobytes()

    def part(self, begin: int, end: int) -> Self:
        """Return the facts of some rows, which begin and end with a run."""
        mine = (self.row_end > begin) & (self.row_end <= end)
        return type(self)(
            commit_lsn=self.commit_lsn[mine], commit_us=self.commit_us[mine], xid=self.xid[mine],
            row_end=self.row_end[mine] - begin, ordinal=self.ordinal[mine],
        )  # fmt: skip

    def of_rows(self, rows: Int32s) -> Self:
        """Return the facts of some rows, ascending: each keeps its ordinal, so a run ends where a row is left out."""
        run, ordinal = self.runs()[rows], self.ordinals()[rows]
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = (run[1:] != run[:-1]) | (ordinal[1:] != ordinal[:-1] + 1)
        is_first = np.concatenate((is_last[-1:], is_last[:-1]))
        mine = run[is_last]
        return type(self)(
            commit_lsn=self.commit_lsn[mine], commit_us=self.commit_us[mine], xid=self.xid[mine],
            row_end=np.flatnonzero(is_last) + 1, ordinal=ordinal[is_first],
        )  # fmt: skip

    def runs(self) -> Int32s:
        """Return the run of each row."""
        return np.repeat(np.arange(len(self.row_end), dtype=np.int32), np.diff(self.row_end, prepend=0))

    def ordinals(self) -> Int64s:
        """Return the ordinal of each row."""
        runs = self.runs()
        begins = np.concatenate(([0], self.row_end[:-1]))
        ordinals: Int64s = np.arange(len(runs), dtype=np.int64) - begins[runs] + self.ordinal[runs]
        return ordinals
