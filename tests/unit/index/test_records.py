from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.fold.keys import frozen
from kuvasz.index import records as kernels
from kuvasz.index.records import ABSENT
from kuvasz.model import UInt64s

SHIFT = 100

keys = st.tuples(st.integers(0, 2), st.integers(0, 9))
codes = st.sampled_from([0, 1, 2, ABSENT])
runs = st.dictionaries(keys, codes)


def records(run: dict[tuple[int, int], int]) -> UInt64s:
    """Return a run of codes by the two parts of a key: the words of its record."""
    rows = [(first, second << 32 | code) for (first, second), code in sorted(run.items())]
    return frozen(np.array(rows, np.uint64).reshape(-1, 2))


def shown(found: UInt64s) -> dict[tuple[int, int], int]:
    return {(first, second >> 32): second & 0xFFFF_FFFF for first, second in found.tolist()}


def shifted(code: int) -> int:
    return code if code == ABSENT else code + SHIFT


@settings(deadline=None)  # the first example compiles
@given(older=runs, newer=runs, room=st.integers(1, 7), is_oldest=st.booleans())
def test_a_merge_keeps_the_newer_record_in_whatever_pieces(
    older: dict[tuple[int, int], int], newer: dict[tuple[int, int], int], room: int, is_oldest: bool
) -> None:
    one, other, out = records(older), records(newer), np.empty((room, 2), np.uint64)
    i = j = 0
    merged: list[list[int]] = []
    while i < len(one) or j < len(other):
        i, j, count = kernels.merge(one, i, other, j, out, np.uint64(SHIFT), is_oldest)
        merged += out[:count].tolist()
    both = older | {key: shifted(code) for key, code in newer.items()}
    expected = {key: code for key, code in sorted(both.items()) if not is_oldest or code != ABSENT}
    found = shown(np.array(merged, np.uint64).reshape(-1, 2))
    assert list(found.items()) == list(expected.items())
    assert len(merged) == len(expected)


def test_packed_records_have_the_lower_bits_of_their_key_and_the_code_of_their_row() -> None:
    hi, lo = np.array([5 << 32 | 6, 3], np.uint64), np.array([1 << 32, 2], np.uint64)
    codes = np.array([7, 8], np.uint32)
    order = np.array([1, 0], np.int64)
    packed = kernels.pack(frozen(hi), frozen(lo), frozen(codes), frozen(order))
    assert packed.tolist() == [[3 << 32, 2 << 32 | 8], [6 << 32 | 1, 7]]


@pytest.mark.parametrize(
    ("rows", "is_rising"),
    [([], True), ([(1, 2)], True), ([(1, 2), (2, 0)], True), ([(1, 2), (1, 2)], False), ([(2, 0), (1, 2)], False)],
)
def test_keys_rise_if_each_is_there_once(rows: list[tuple[int, int]], is_rising: bool) -> None:
    found = np.array([(first, second << 32 | 9 - at) for at, (first, second) in enumerate(rows)], np.uint64)
    found = found.reshape(-1, 2)
    assert kernels.rises(frozen(found)) is is_rising


@settings(deadline=None)
@given(run=runs, key=keys, start=st.integers(0, 5))
def test_the_first_record_from_a_key_on(run: dict[tuple[int, int], int], key: tuple[int, int], start: int) -> None:
    found = records(run)
    start = min(start, len(found))
    ascending = sorted(run)
    expected = next((row for row in range(start, len(found)) if ascending[row] >= key), len(found))
    assert kernels.first_from(found, start, np.uint64(key[0]), np.uint64(key[1] << 32)) == expected


@settings(deadline=None)
@given(run=runs, cut=st.integers(0, 20))
def test_a_checksum_is_that_of_the_records_in_whatever_slices(run: dict[tuple[int, int], int], cut: int) -> None:
    found = records(run)
    whole, parts = np.zeros(2, np.uint64), np.zeros(2, np.uint64)
    kernels.checksum(found, whole)
    kernels.checksum(found[:cut], parts)
    kernels.checksum(found[cut:], parts)
    assert whole.tolist() == parts.tolist()


@settings(deadline=None)
@given(run=runs)
def test_the_top_is_above_all_codes(run: dict[tuple[int, int], int]) -> None:
    assert kernels.top(records(run)) == max((code + 1 for code in run.values() if code != ABSENT), default=0)


def test_codes_are_exchanged_and_keys_stay() -> None:
    found = records({(0, 1): 5, (2, 3): ABSENT})
    changed = kernels.with_codes(found, frozen(np.array([ABSENT, 6], np.uint32)))
    assert shown(changed) == {(0, 1): ABSENT, (2, 3): 6}


def test_moved_rows_have_their_new_place_and_dropped_ones_none() -> None:
    found = np.array([1 << 32, 1 << 32 | 1, 1 << 32 | 2, 2 << 32, kernels.NOWHERE], np.uint64)
    numbers, targets = np.array([1], np.uint32), np.array([9], np.uint32)
    starts, positions = np.array([0, 2], np.int64), np.array([5, -1], np.int32)
    kernels.move(found, frozen(numbers), frozen(targets), frozen(starts), frozen(positions))
    assert found.tolist() == [9 << 32 | 5, kernels.NOWHERE, kernels.NOWHERE, 2 << 32, kernels.NOWHERE]


def test_dead_rows_are_absent_and_those_beyond_the_bits_live() -> None:
    found = np.array([1 << 32 | row for row in range(10)] + [2 << 32], np.uint64)
    numbers, starts = np.array([1], np.uint32), np.array([0, 1], np.int64)
    kernels.bury(found, frozen(numbers), frozen(starts), frozen(np.array([0b101], np.uint8)))
    assert [row for row, place in enumerate(found.tolist()) if place == kernels.NOWHERE] == [0, 2]
