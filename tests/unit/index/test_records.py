from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels
from kuvasz.index.records import ABSENT
from kuvasz.model import UInt64s

keys = st.tuples(st.integers(0, 2), st.integers(0, 9))
files = st.sampled_from([0, 1, 2, ABSENT])
runs = st.dictionaries(keys, files)


def records(run: dict[tuple[int, int], int]) -> UInt64s:
    """Return a run; each record's position is the second word of its key."""
    rows = [(hi, lo, file << 32 | lo) for (hi, lo), file in sorted(run.items())]
    return frozen(np.array(rows, np.uint64).reshape(-1, 3))


def shown(found: UInt64s) -> dict[tuple[int, int], int]:
    return {(hi, lo): place >> 32 for hi, lo, place in found.tolist()}


@settings(deadline=None)  # the first example compiles
@given(older=runs, newer=runs, room=st.integers(1, 7), is_oldest=st.booleans())
def test_a_merge_keeps_the_newer_record_in_whatever_pieces(
    older: dict[tuple[int, int], int], newer: dict[tuple[int, int], int], room: int, is_oldest: bool
) -> None:
    one, other, out = records(older), records(newer), np.empty((room, 3), np.uint64)
    i = j = 0
    merged: list[list[int]] = []
    while i < len(one) or j < len(other):
        i, j, count = kernels.merge(one, i, other, j, out, is_oldest)
        merged += out[:count].tolist()
    expected = {key: file for key, file in (older | newer).items() if not is_oldest or file != ABSENT}
    assert [(hi, lo, place >> 32) for hi, lo, place in merged] == [
        (*key, expected[key]) for key in sorted(expected)
    ]  # fmt: skip


def test_packed_records_have_the_place_of_their_row() -> None:
    hi, lo = np.array([5, 3], np.uint64), np.array([1, 2], np.uint64)
    position = np.array([7, 8], np.uint32)
    order = np.array([1, 0], np.int64)
    packed = kernels.pack(frozen(hi), frozen(lo), frozen(np.array([4], np.uint32)), frozen(position), frozen(order))
    assert packed.tolist() == [[3, 2, 4 << 32 | 8], [5, 1, 4 << 32 | 7]]


@pytest.mark.parametrize(
    ("rows", "is_rising"),
    [([], True), ([(1, 2)], True), ([(1, 2), (2, 0)], True), ([(1, 2), (1, 2)], False), ([(2, 0), (1, 2)], False)],
)
def test_keys_rise_if_each_is_there_once(rows: list[tuple[int, int]], is_rising: bool) -> None:
    found = np.array([(hi, lo, 0) for hi, lo in rows], np.uint64).reshape(-1, 3)
    assert kernels.rises(frozen(found)) is is_rising


@settings(deadline=None)
@given(run=runs, key=keys, start=st.integers(0, 5))
def test_the_first_record_from_a_key_on(run: dict[tuple[int, int], int], key: tuple[int, int], start: int) -> None:
    found = records(run)
    start = min(start, len(found))
    expected = next((row for row in range(start, len(found)) if tuple(found[row, :2].tolist()) >= key), len(found))
    assert kernels.first_from(found, start, np.uint64(key[0]), np.uint64(key[1])) == expected


@settings(deadline=None)
@given(run=runs, cut=st.integers(0, 20))
def test_a_checksum_is_that_of_the_records_in_whatever_slices(run: dict[tuple[int, int], int], cut: int) -> None:
    found = records(run)
    whole, parts = np.zeros(3, np.uint64), np.zeros(3, np.uint64)
    kernels.checksum(found, whole)
    kernels.checksum(found[:cut], parts)
    kernels.checksum(found[cut:], parts)
    assert whole.tolist() == parts.tolist()


def test_moved_rows_have_their_new_place_and_dropped_ones_none() -> None:
    found = np.array([[0, 0, 1 << 32], [0, 1, 1 << 32 | 1], [0, 2, 1 << 32 | 2], [0, 3, 2 << 32]], np.uint64)
    numbers, targets = np.array([1], np.uint32), np.array([9], np.uint32)
    starts, positions = np.array([0, 2], np.int64), np.array([5, -1], np.int32)
    changed = kernels.move(found, frozen(numbers), frozen(targets), frozen(starts), frozen(positions))
    assert changed == 3
    assert shown(found) == {(0, 0): 9, (0, 1): ABSENT, (0, 2): ABSENT, (0, 3): 2}
    assert int(found[0, 2]) == 9 << 32 | 5


def test_dead_rows_are_absent_and_those_beyond_the_bits_live() -> None:
    found = np.array([[0, row, 1 << 32 | row] for row in range(10)] + [[1, 0, 2 << 32]], np.uint64)
    numbers, starts = np.array([1], np.uint32), np.array([0, 1], np.int64)
    assert kernels.bury(found, frozen(numbers), frozen(starts), frozen(np.array([0b101], np.uint8))) == 2
    assert [key for key, file in shown(found).items() if file == ABSENT] == [(0, 0), (0, 2)]
