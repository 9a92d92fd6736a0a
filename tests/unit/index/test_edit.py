from __future__ import annotations

import numpy as np
import pytest

from kuvasz.errors import InternalError
from kuvasz.index.edit import DeadRows, Move, file_numbers
from kuvasz.index.records import ABSENT, pack
from kuvasz.model import UInt64s


def records(*places: tuple[int, int]) -> UInt64s:
    """Return records of the keys 0, 1, … at (file, position)."""
    files, positions = np.array(places, np.uint32).T.copy()
    keys = np.arange(len(places), dtype=np.uint64)
    return pack(keys, keys, files, positions, np.empty(0, np.int64))


def places(found: UInt64s) -> list[tuple[int, int] | None]:
    split = [(int(place) >> 32, int(place) & 0xFFFF_FFFF) for place in found[:, 2]]
    return [None if file == ABSENT else (file, position) for file, position in split]


def test_rows_move_to_new_files_or_nowhere() -> None:
    found = records((3, 0), (3, 1), (5, 0), (4, 0))
    move = Move.remap({5: (8, np.array([6], np.int32)), 3: (9, np.array([2, -1], np.int32))})
    assert move.apply(found) == 3
    assert places(found) == [(9, 2), None, (8, 6), (4, 0)]


def test_rows_of_dropped_files_are_absent() -> None:
    found = records((3, 0), (4, 7), (5, 1))
    assert Move.drop([5, 3]).apply(found) == 2
    assert places(found) == [None, (4, 7), None]


def test_dead_rows_are_absent_and_those_beyond_the_mask_live() -> None:
    found = records((3, 0), (3, 9), (3, 16), (4, 0))
    mask = np.zeros(10, np.bool_)
    mask[[0, 9]] = True
    assert DeadRows.of({3: mask}).apply(found) == 2
    assert places(found) == [None, None, (3, 16), (4, 0)]


@pytest.mark.parametrize("number", [-1, ABSENT])
def test_a_number_that_no_file_has_is_refused(number: int) -> None:
    with pytest.raises(InternalError, match=f"^file numbers go from 0 to {ABSENT - 1}, not {min(number, 0)} to"):
        file_numbers([0, number])


def test_positions_of_another_width_are_refused() -> None:
    with pytest.raises(InternalError, match=r"^positions are 32-bit integers, not \['int64'\]"):
        Move.remap({1: (2, np.array([0], np.int64))})  # type: ignore[dict-item]
