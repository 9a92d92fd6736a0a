"""How fresh the lake is: the time up to which everything that a source has committed is in it. Pure.

Enter: marks, each saying that what the source had committed by a time ends at or before an LSN. When everything
before that LSN is in the lake, the lake is at least as fresh as that time. There are two kinds of marks: the WAL's
end as the source told it, true by itself but rare, and the commit time of a transaction that came over the wire.
"""

from __future__ import annotations

#: Marks that wait at a time. When there are more, every other one goes and they come rarer: the answer gets
#: coarser, never wrong.
_MOST = 128


class Freshness:
    """The freshness of one source."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []  # (LSN, unix time), in order of the LSN
        self._spacing_s = 0.0  # of marks, but for the last
        self._fresh_at: float | None = None

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
        """Note that everything before `lsn` is in the lake."""
        done = [at for end, at in self._marks if end <= lsn]
        if done:
            self._marks = self._marks[len(done) :]
            self._spacing_s = self._spacing_s if self._marks else 0.0
            self._fresh_at = max([*done, *([] if self._fresh_at is None else [self._fresh_at])])

    @property
    def is_behind(self) -> bool:
        """Whether the source is known to have something that is not in the lake."""
        return bool(self._marks)

    @property
    def at(self) -> float | None:
        """Unix seconds up to which everything is in the lake; None while that is not known."""
        return self._fresh_at
