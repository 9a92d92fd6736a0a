"""The extents of a run: which rows of which data files its records are about.

An *extent* is rows of one data file, one behind another. The extents of a run stand one behind another as well, and
so number all rows that they have: a record has that number, its *code*, in 32 bits, where file and position would
take 64. Runs are merged by putting the newer one's extents behind those of the older one, which adds one number to
the newer one's codes, and none to the many of the older.

There are codes for `CAPACITY` rows. Rows that are dead, or of which another run knows better, have codes as well, for
as long as their files are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.model import Int64s, UInt32s, UInt64s

#: Rows that extents of one run may have: all codes but the one that says that there is no row.
CAPACITY = kernels.ABSENT

_U32 = np.uint64(32)


class Extents:
    """Extents, one behind another. Never change.

    Args:
        firsts: The place of the first row of each.
        rows: How many rows each has, at least one.

    Attributes:
        bounds: Shape (n + 1, 2): of each the place and the code of its first row; at the end `NOWHERE`, and the first
            code that stands for no row.
    """

    __slots__ = ("bounds",)

    def __init__(self, firsts: UInt64s, rows: Int64s | UInt64s) -> None:
        bounds = np.zeros((len(rows) + 1, 2), np.uint64)
        bounds[:-1, 0], bounds[-1, 0] = firsts, kernels.NOWHERE
        np.cumsum(rows, dtype=np.uint64, out=bounds[1:, 1])
        self.bounds = frozen(bounds)

    @classmethod
    def none(cls) -> Self:
        """Return no extents."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.uint64))

    @classmethod
    def over(cls, firsts: UInt64s, lasts: UInt64s) -> Self:
        """Return one extent of each file, ascending, for rows from some places to others.

        Args:
            firsts: The first place of each range of rows.
            lasts: The last place of each, of the same file.
        """
        order = np.argsort(firsts)
        firsts, lasts = firsts[order], lasts[order]
        files = firsts >> _U32
        begins = np.flatnonzero(np.diff(files, prepend=files[:1] + np.uint64(1)))
        if not len(begins):
            return cls.none()
        firsts = firsts[begins]
        return cls(firsts, np.maximum.reduceat(lasts, begins) - firsts + np.uint64(1))

    @classmethod
    def of_places(cls, places: UInt64s) -> Self:
        """Return the extents of rows that are at some places, one at least."""
        files = places >> _U32
        begins = np.flatnonzero(np.diff(files, prepend=files[:1] + np.uint64(1)))
        return cls.over(np.minimum.reduceat(places, begins), np.maximum.reduceat(places, begins))

    # --- Facts

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def firsts(self) -> UInt64s:
        """The place of the first row of each."""
        return self.bounds[:-1, 0]

    @property
    def lasts(self) -> UInt64s:
        """The place of the last row of each."""
        return self.firsts + self._sizes - np.uint64(1)

    @property
    def starts(self) -> UInt64s:
        """The code of the first row of each."""
        return self.bounds[:-1, 1]

    @property
    def rows(self) -> int:
        """How many rows they all have."""
        return int(self.bounds[-1, 1])

    @property
    def files(self) -> set[int]:
        """The numbers of their files."""
        return set((self.firsts >> _U32).tolist())

    @property
    def fits(self) -> bool:
        """Whether there is a code for each of their rows."""
        return self.rows <= CAPACITY

    @property
    def _sizes(self) -> UInt64s:
        return np.diff(self.bounds[:, 1])

    # --- Others

    def behind(self, older: Extents) -> Extents:
        """Return these extents behind those of an older run."""
        return Extents(np.concatenate([older.firsts, self.firsts]), np.concatenate([older._sizes, self._sizes]))

    def joined(self, other: Extents) -> Extents:
        """Return extents, one of each file, for the rows of these and of others."""
        return Extents.over(np.concatenate([self.firsts, other.firsts]), np.concatenate([self.lasts, other.lasts]))

    def parts(self) -> Iterator[slice]:
        """Yield which of these extents one run can have, until all are in one; as a rule that is all of them."""
        begin, used = 0, 0
        for at, rows in enumerate(() if self.fits else self._sizes.tolist()):
            if used + rows > CAPACITY and at > begin:
                yield slice(begin, at)
                begin, used = at, 0
            used += rows
        yield slice(begin, len(self))

    def part(self, which: slice) -> Extents:
        """Return some of these extents, as `parts` says which."""
        return Extents(self.firsts[which], self._sizes[which])

    # --- Codes

    def places(self, records: UInt64s) -> UInt64s:
        """Return where the rows of records are, which have codes of these extents."""
        return kernels.places_of(records, self.bounds)

    def codes(self, places: UInt64s) -> UInt32s:
        """Return the codes of places, if these are extents of ascending files; `ABSENT` where they have none."""
        return kernels.codes_of(frozen(places), self.bounds)

    # --- On disk

    def rendered(self) -> UInt64s:
        """Return what `parsed` reads: two words of each, as a record has."""
        return frozen(np.stack([self.firsts, self._sizes], axis=1))

    @classmethod
    def parsed(cls, words: UInt64s) -> Self:
        """Return extents as they were rendered."""
        return cls(words[:, 0], words[:, 1])


__all__ = ["CAPACITY", "Extents"]
