"""How fresh the lake is: the time up to which everything that a source has committed is in it. Pure.

Enter: marks, each saying that what the source had committed by a time ends at or before an LSN. When everything
before that LSN is in the lake, the lake is at least as fresh as that time. There are two kinds of marks: the WAL's
end as the source told it, true by itself but rare, and the commit time of a transaction that came over the wire.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

#: Marks that wait at a time. When there are more, every other one goes and they come rarer: the answer gets
#: coarser, never wrong.
_MOST = 128


class Freshness:
    """The freshness of one source."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []  # (LSN, unix time), in order of the LSN
        self._spacing_s = 0.0  # of marks, but for the last
        self._fresh_at: float | None = None
        self._passed = 0  # LSN before which everything is in the lake

    def mark(self, lsn: int, at: float) -> None:
        """Note that everything committed by `at` (unix seconds) ends at or before `lsn`."""
        if self._marks and lsn <= self._marks[-1][0]:
            # The same end at a later time says more. One that is behind the last mark says nothing new.
            if lsn == self._marks[-1][0]:
                self._marks[-1] = (lsn, max(at, self._marks[-1][1]))
            return
        if len(self._marks) > 1 and at - self._marks[-2][1] < self._spacing_s:
            self._marks[-1] = (lsn, at)  # the newest always stays: it says whether anything is missing
        else:
            self._marks.append((lsn, at))
        if len(self._marks) > _MOST:
            self._spacing_s = 2 * (self._marks[-1][1] - self._marks[0][1]) / _MOST
            self._marks = [*self._marks[:-1:2], self._marks[-1]]

    def passed(self, lsn: int) -> None:
        """Note that everything before `lsn` is in the lake; less than before means another past of the source."""
        if lsn < self._passed:
            self._marks, self._spacing_s = [], 0.0
        self._passed = lsn
        done = [at for end, at in self._marks if end <= lsn]
        if done:
            self._marks = self._marks[len(done) :]
            self._spacing_s = self._spacing_s if self._marks else 0.0
            self._fresh_at = max([*done, *([] if self._fresh_at is None else [self._fresh_at])])

    def known(self) -> tuple[tuple[int, float], ...]:
        """Return what a table has that has everything before an LSN: (LSN, unix seconds), both growing."""
        steps = [] if self._fresh_at is None else [(0, self._fresh_at)]
        for lsn, at in self._marks:
            steps.append((lsn, max(at, steps[-1][1]) if steps else at))
        return tuple(steps)

    @property
    def is_behind(self) -> bool:
        """Whether the source is known to have something that is not in the lake."""
        return bool(self._marks)

    @property
    def at(self) -> float | None:
        """Unix seconds up to which everything is in the lake; None while that is not known."""
        return self._fresh_at


def moment_of(known: Sequence[tuple[int, float]], lsn: int) -> float | None:
    """Return the unix seconds up to which who has everything before `lsn` has everything; None: not known.

    Args:
        known: As `Freshness.known` returns it.
        lsn: Not before what was `passed` when it did.
    """
    place = bisect.bisect_right(known, lsn, key=lambda step: step[0])
    return known[place - 1][1] if place else None
