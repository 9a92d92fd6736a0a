"""Parts of what one transaction after another brought: whole transactions are taken out of changes. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
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


def older(change: Change, lsn: int) -> Change | None:
    """Return the part of a change whose transactions committed before an LSN."""
    if isinstance(change, Truncation):
        return change if change.commit_lsn < lsn else None
    return between(change, 0, int(np.searchsorted(change.transactions.commit_lsn, lsn, side="left")))


def open_lsn(change: Change) -> int:
    """Return the commit LSN of a transaction that goes on behind a change; 0 if all of it are whole.

    One that has not ended has an end LSN of one more than its commit LSN.
    """
    if isinstance(change, Truncation):
        return change.commit_lsn if change.end_lsn == change.commit_lsn + 1 else 0
    runs = change.transactions
    return int(runs.commit_lsn[-1]) if runs.end_lsn[-1] == runs.commit_lsn[-1] + 1 else 0


def separate(changes: Iterable[Change], lsn: int, *, is_open: bool) -> tuple[list[Change], list[Change]]:
    """Return what transactions that committed after an LSN brought: those that are whole, and the one that is not.

    Args:
        changes: In stream order.
        lsn: What committed up to there is left out.
        is_open: Whether the one that has not ended is wanted.
    """
    fresh = [part for change in changes if (part := newer(change, lsn)) is not None]
    whole = [part for change in fresh if (part := _part(change, is_open=False)) is not None]
    begun = [part for change in fresh if (part := _part(change, is_open=True)) is not None] if is_open else []
    return whole, begun


def commit_lsns(changes: Iterable[Change]) -> list[int]:
    """Return the first and the last commit LSN of each change."""
    lsns = []
    for change in changes:
        if isinstance(change, Truncation):
            lsns.append(change.commit_lsn)
        else:
            lsns += [int(change.transactions.commit_lsn[0]), int(change.transactions.commit_lsn[-1])]
    return lsns


def _part(change: Change, *, is_open: bool) -> Change | None:
    """Return the whole transactions of a change, or the one that has not ended."""
    if isinstance(change, Truncation):
        return change if bool(open_lsn(change)) is is_open else None
    count = len(change.transactions.commit_lsn)
    whole = count - bool(open_lsn(change))
    return between(change, whole, count) if is_open else between(change, 0, whole)


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


__all__ = ["Change", "between", "commit_lsns", "newer", "older", "open_lsn", "separate"]
