"""Differences that are mended: only those of which the lake has just what was compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from kuvasz.fold.difference import Difference, Listing, difference
from kuvasz.fold.keys import Keys
from kuvasz.lake.files.files import FileEntry, FileTable
from kuvasz.verify.standing import standing

FILE, GONE = 0, 9


class Since:
    """Stands for a comparison of nothing with what came since."""

    def __init__(self, *keys: int) -> None:
        self._found = rows([(key, GONE, 0) for key in keys])
        self.is_closed = False

    def difference_of(self, wanted: Keys) -> Difference:
        return difference(rows([]), self._found.take(np.isin(self._found.keys.lo, wanted.lo)))

    def close(self) -> None:
        self.is_closed = True


def rows(found: Sequence[tuple[int, int, int]]) -> Listing:
    """Rows by key, file and place."""
    number = np.array([key for key, _, _ in found], np.uint64)
    keys = Keys(hi=np.zeros(len(found), np.uint64), lo=number)
    files, places = (np.array([row[at] for row in found], np.uint32) for at in (1, 2))
    return Listing(keys=keys, prints=dataclasses.replace(keys), files=files, places=places)


#: 1 is missing, 2 doubled, 3 and 4 are too many.
FOUND = difference(
    rows([(1, 0, 0), (2, 0, 0)]), rows([(2, FILE, 0), (2, FILE, 1), (3, FILE, 2), (4, FILE, 3)])
)  # fmt: skip


def left(dead: Sequence[int] = (), *since: int, number: int = FILE) -> list[int]:
    files = FileTable({})
    files.add(FileEntry(number=number, path="a", rows=9, sid=None, dead=BitMap64(dead)))
    comparison: Any = Since(*since)
    found = standing(FOUND, files, lambda: comparison)
    assert comparison.is_closed
    return found.keys.lo.tolist()


def test_what_nobody_else_has_touched_is_mended() -> None:
    assert left() == [1, 2, 3, 4]


@pytest.mark.parametrize(("dead", "expected"), [([0], [1, 3, 4]), ([1, 3], [1, 3])])
def test_what_lost_one_of_its_rows_is_not(dead: list[int], expected: list[int]) -> None:
    assert left(dead) == expected


def test_what_was_in_a_file_that_is_gone_is_not() -> None:
    assert left(number=5) == [1]


def test_what_got_a_row_is_not() -> None:
    assert left([], 1, 4, 7) == [2, 3]
    assert left([2], 1) == [2, 4]
