from __future__ import annotations

import numpy as np
import pytest

from kuvasz.errors import InternalError
from kuvasz.index.edit import DeadRows, Move, file_numbers
from kuvasz.index.extents import Extents
from kuvasz.index.records import ABSENT, NOWHERE
from kuvasz.model import UInt64s


def places(*found: tuple[int, int]) -> UInt64s:
    return np.array([file << 32 | position for file, position in found], np.uint64)


def shown(found: UInt64s) -> list[tuple[int, int] | None]:
    return [None if place == NOWHERE else (place >> 32, place & 0xFFFF_FFFF) for place in found.tolist()]


def ranges(found: Extents | None) -> list[tuple[int, int, int]]:
    """Return file, first and last position of each extent."""
    assert found is not None
    ends = zip(shown(found.firsts), shown(found.lasts), strict=True)
    return [(first[0], first[1], last[1]) for first, last in ends if first is not None and last is not None]


def test_rows_move_to_new_files_or_nowhere() -> None:
    found = places((3, 0), (3, 1), (5, 0), (4, 0))
    move = Move.remap({5: (8, np.array([6], np.int32)), 3: (9, np.array([2, -1], np.int32))})
    move.apply(found)
    assert shown(found) == [(9, 2), None, (8, 6), (4, 0)]


def test_moved_rows_have_one_extent_of_each_file_they_go_to() -> None:
    before = Extents.of_places(places((3, 0), (3, 9), (4, 7), (5, 1), (5, 2), (6, 0), (6, 3)))
    to_eight = {3: (8, np.array([6, -1, 9], np.int32)), 5: (8, np.array([0, 3, 4, 70], np.int32))}
    assert ranges(Move.remap(to_eight).extents(before)) == [(4, 7, 7), (6, 0, 3), (8, 3, 9)]
    assert ranges(Move.remap({3: (4, np.arange(10, dtype=np.int32))}).extents(before)) == [
        (4, 0, 9), (5, 1, 2), (6, 0, 3)
    ]  # fmt: skip
    assert ranges(Move.drop([3, 4, 5]).extents(before)) == [(6, 0, 3)]
    assert ranges(Move.drop([3, 4, 5, 6]).extents(before)) == []
    assert Move.drop([2, 7]).extents(before) is None


def test_rows_of_dropped_files_are_absent() -> None:
    found = places((3, 0), (4, 7), (5, 1))
    Move.drop([5, 3]).apply(found)
    assert shown(found) == [None, (4, 7), None]


def test_dead_rows_are_absent_and_those_beyond_the_mask_live() -> None:
    found = places((3, 0), (3, 9), (3, 16), (4, 0))
    mask = np.zeros(10, np.bool_)
    mask[[0, 9]] = True
    DeadRows.of({3: mask}).apply(found)
    assert shown(found) == [None, None, (3, 16), (4, 0)]


def test_a_file_with_dead_rows_keeps_its_extents() -> None:
    before = Extents.of_places(places((3, 1), (3, 9), (4, 0)))
    assert ranges(DeadRows.of({3: np.ones(2, np.bool_)}).extents(before)) == [(3, 1, 9), (4, 0, 0)]
    assert DeadRows.of({2: np.ones(2, np.bool_)}).extents(before) is None


@pytest.mark.parametrize("number", [-1, ABSENT])
def test_a_number_that_no_file_has_is_refused(number: int) -> None:
    with pytest.raises(InternalError, match=f"^file numbers go from 0 to {ABSENT - 1}, not {min(number, 0)} to"):
        file_numbers([0, number])


def test_positions_of_another_width_are_refused() -> None:
    with pytest.raises(InternalError, match=r"^positions are 32-bit integers, not \['int64'\]"):
        Move.remap({1: (2, np.array([0], np.int64))})  # type: ignore[dict-item]
