"""Rows of the lake of which several have one key: which of them is the newest, and whether versions fit together.

A changelog's events are ordered by the LSN of their transaction and their number in it, an append table's rows by
their place among its files, a history's versions by the time they begin. Whole arrays, no loop over rows.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

import numpy as np

from kuvasz.fold.difference import Listing
from kuvasz.fold.keys import Keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from kuvasz.model import Int64s, UInt8s

    Bools = npt.NDArray[np.bool_]

#: Before every event.
NEVER = (-1, -1)


class Fault(enum.IntEnum):
    """What is wrong with the versions of a key."""

    OVERLAP = 0  #: one begins before the one before it has ended
    GAP = 1  #: one ends, not deleted, and none goes on from there
    BROKEN = 2  #: one ends before it begins or as it begins, or is open and deleted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Rows of the lake with what orders those of one key; n entries each."""

    rows: Listing
    first: Int64s  #: LSN, number of the file, or start of the version
    second: Int64s  #: number of the event, place in the file, or end of the version
    is_end: Bools  #: the key is gone then

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> Events:  # noqa: ANN401 (indices, a mask or a slice)
        """Return some of them."""
        return Events(
            rows=self.rows.take(rows), first=self.first[rows], second=self.second[rows], is_end=self.is_end[rows]
        )

    @staticmethod
    def empty() -> Events:
        """Return none."""
        none = np.zeros(0, np.int64)
        return Events(rows=Listing.empty(), first=none, second=none, is_end=np.zeros(0, np.bool_))

    @staticmethod
    def concat(parts: list[Events]) -> Events:
        """Return those of all parts."""
        if not parts:
            return Events.empty()
        return Events(
            rows=Listing.concat([part.rows for part in parts]),
            first=np.concatenate([part.first for part in parts]),
            second=np.concatenate([part.second for part in parts]),
            is_end=np.concatenate([part.is_end for part in parts]),
        )

    def after(self, since: tuple[int, int]) -> Events:
        """Return those that come after an event."""
        return self.take((self.first > since[0]) | ((self.first == since[0]) & (self.second > since[1])))

    def ordered(self) -> Events:
        """Return them by key, and those of a key in their order."""
        keys = self.rows.keys
        return self.take(np.lexsort((self.second, self.first, keys.lo, keys.hi)))


def newest(events: Events) -> tuple[Listing, Keys]:
    """Return the newest row of each key that is not gone, and the keys of which an event is there twice."""
    events = events.ordered()
    is_last = _differs_from_next(events.rows.keys)
    is_again = ~is_last
    is_again[:-1] &= (events.first[1:] == events.first[:-1]) & (events.second[1:] == events.second[:-1])
    doubled = events.rows.keys.take(is_again)
    return events.rows.take(is_last & ~events.is_end), doubled.take(_differs_from_next(doubled))


def faults(versions: Events, forever: int) -> tuple[Keys, UInt8s]:
    """Return the keys, ascending, whose versions do not fit together, and what is wrong with each.

    Args:
        versions: All versions of these keys; `first` is when they begin, `second` when they end.
        forever: The end of an open one.
    """
    versions = versions.ordered()
    begin, end, is_end = versions.first, versions.second, versions.is_end
    is_last = _differs_from_next(versions.rows.keys)
    next_begin = np.append(begin[1:], forever)
    next_begin[is_last] = forever
    is_broken = (begin >= end) | (is_end & (end == forever))
    is_over = ~is_last & (end > next_begin)
    is_gap = ~is_end & (end < next_begin)
    kinds = np.select([is_broken, is_over, is_gap], [Fault.BROKEN, Fault.OVERLAP, Fault.GAP], len(Fault))
    wrong = np.flatnonzero(kinds < len(Fault))
    keys = versions.rows.keys.take(wrong)
    one_each = np.flatnonzero(_differs_from_next(keys))
    return keys.take(one_each), kinds[wrong][one_each].astype(np.uint8)


def _differs_from_next(keys: Keys) -> Bools:
    """Say of ordered keys which are the last of their like."""
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = (keys.hi[1:] != keys.hi[:-1]) | (keys.lo[1:] != keys.lo[:-1])
    return is_last


__all__ = ["NEVER", "Events", "Fault", "faults", "newest"]
