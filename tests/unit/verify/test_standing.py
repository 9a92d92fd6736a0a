"""Differences that are mended: only those of which the lake has just what was compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from pyroaring import BitMap64

from kuvasz.fold.difference import Difference, Listing, difference
from kuvasz.fold.keys import Keys
from kuvasz.lake.files.files import FileEntry, FileTable
from kuvasz.verify.standing import standing

FILE, GONE, NEW = 0, 9, 7
#: Key, file, place; and the fingerprint, where it is not the key.
Row: TypeAlias = tuple[int, ...]


class Since:
    """Stands for what gives comparisons of nothing with what came since, and with files that were there."""

    def __init__(self, came: Sequence[Row], there: Sequence[Row]) -> None:
        self._came, self._there = came, there
        self.opened: list[Compared] = []

    def __call__(self, again: Collection[int]) -> Any:
        listed = [*self._came, *(row for row in self._there if row[1] in again)]
        self.opened.append(Compared(rows(listed)))
        return self.opened[-1]


class Compared:
    """Stands for a comparison of nothing with some rows."""

    def __init__(self, found: Listing) -> None:
        self._found = found
        self.is_closed = False

    def difference_of(self, wanted: Keys) -> Difference:
        return difference(rows([]), self._found.take(np.isin(self._found.keys.lo, wanted.lo)))

    def close(self) -> None:
        self.is_closed = True


def rows(found: Sequence[Row]) -> Listing:
    """Rows by key, file and place; the fingerprint is the key, or what a fourth number says."""
    number = np.array([row[0] for row in found], np.uint64)
    keys = Keys(hi=np.zeros(len(found), np.uint64), lo=number)
    prints = Keys(hi=keys.hi, lo=np.array([(*row, row[0])[3] for row in found], np.uint64))
    files, places = (np.array([row[at] for row in found], np.uint32) for at in (1, 2))
    return Listing(keys=keys, prints=prints, files=files, places=places)


#: 1 is missing, 2 doubled, 3 and 4 are too many.
THERE = [(2, FILE, 0), (2, FILE, 1), (3, FILE, 2), (4, FILE, 3)]
FOUND = difference(rows([(1, 0, 0), (2, 0, 0)]), rows(THERE))


def left(dead: Sequence[int] = (), came: Sequence[Row] = (), number: int = FILE) -> list[Row]:
    """Return the rows that stand, and of keys without rows the key, as (key, -1, -1)."""
    files = FileTable({})
    files.add(FileEntry(number=number, path="a", rows=9, sid=None, dead=BitMap64(dead)))
    since = Since(came, [row for row in THERE if row[2] not in dead and number == FILE])
    found = standing(FOUND, files, since)
    assert since.opened
    assert all(comparison.is_closed for comparison in since.opened)
    assert found.keys.lo.tolist() == sorted(found.keys.lo.tolist())
    held = zip(found.keys.lo[found.owner].tolist(), found.files.tolist(), found.places.tolist(), strict=True)
    bare = [key for at, key in enumerate(found.keys.lo.tolist()) if at not in found.owner]
    return sorted([*held, *((key, -1, -1) for key in bare)])


def keys(found: Sequence[Row]) -> list[int]:
    return sorted({row[0] for row in found})


def test_what_nobody_else_has_touched_is_mended() -> None:
    assert left() == [(1, -1, -1), *THERE]


@pytest.mark.parametrize(("dead", "expected"), [([0], [1, 3, 4]), ([1, 3], [1, 3])])
def test_what_lost_one_of_its_rows_is_not(dead: list[int], expected: list[int]) -> None:
    assert keys(left(dead)) == expected


def test_what_was_in_a_file_that_is_gone_is_not() -> None:
    assert keys(left(number=5)) == [1]


def test_what_got_a_row_is_not() -> None:
    assert keys(left([], [(1, GONE, 0), (4, GONE, 1), (7, GONE, 2)])) == [2, 3]
    assert keys(left([2], [(1, GONE, 0)])) == [2, 4]


def test_what_was_merged_is_mended_where_it_is_now() -> None:
    assert left([2], [(3, NEW, 5)]) == [(1, -1, -1), (2, FILE, 0), (2, FILE, 1), (3, NEW, 5), (4, FILE, 3)]
    assert left([0, 2, 3], [(4, NEW, 0), (2, NEW, 1), (3, NEW, 2)]) == [
        (1, -1, -1), (2, FILE, 1), (2, NEW, 1), (3, NEW, 2), (4, NEW, 0),
    ]  # fmt: skip
    moved = [(2, NEW, 1), (2, NEW, 2), (3, NEW, 0), (4, NEW, 3)]
    assert left(number=5, came=moved) == [(1, -1, -1), *moved]


def test_what_is_another_row_now_is_not() -> None:
    assert keys(left([2, 3], [(3, NEW, 5, 8), (4, NEW, 6)])) == [1, 2, 4]
    assert keys(left([0], [(2, NEW, 5), (2, NEW, 6)])) == [1, 3, 4]
