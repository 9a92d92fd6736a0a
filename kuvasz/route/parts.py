"""Parts of what one transaction after another brought: whole transactions are taken out of changes. Pure."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np

from kuvasz.model import Segment, Transactions, Truncation

Change: TypeAlias = Segment | Truncation


def newer(change: Change, lsn: int) -> Change | None:
    """Return the part of a change whose transactions committed after one."""
    if isinstance(change, Truncation):
        return change if change.commit_lsn > lsn else None
    runs = change.transactions
    return between(change, int(np.searchsorted(runs.commit_lsn, lsn, side="right")), len(runs.commit_lsn))


def open_lsn(change: Change) -> int:
    """Return the commit LSN of a transaction that goes on behind a change; 0 if all of it are whole.

    One that has not ended has an end LSN of one more than its commit LSN.
    """
    if isinstance(change, Truncation):
        return change.commit_lsn if change.end_lsn == change.commit_lsn + 1 else 0
    runs = change.transactions
    return int(runs.commit_lsn[-1]) if runs.end_lsn[-1] == runs.commit_lsn[-1] + 1 else 0


def between(segment: Segment, first: int, last: int) -> Segment | None:
    """Return a segment of some of a segment's transactions; None for none."""
    runs = segment.transactions
    if first >= last:
        return None
    if first == 0 and last == len(runs.commit_lsn):
        return segment
    begin, end = int(runs.row_end[first - 1]) if first else 0, int(runs.row_end[last - 1])
    ends = np.cumsum(segment.lengths, dtype=np.int64)
    part = slice(first, last)
    return dataclasses.replace(
        segment,
        data=bytes(memoryview(segment.data)[int(ends[begin - 1]) if begin else 0 : int(ends[end - 1])]),
        lengths=segment.lengths[begin:end],
        transactions=Transactions(
            commit_lsn=runs.commit_lsn[part], end_lsn=runs.end_lsn[part], commit_us=runs.commit_us[part],
            xid=runs.xid[part], row_end=runs.row_end[part] - np.uint32(begin),
        ),
    )  # fmt: skip


__all__ = ["Change", "between", "newer", "open_lsn"]
