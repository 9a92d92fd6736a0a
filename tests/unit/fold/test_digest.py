"""Fingerprints of rows by bucket: equal rows have equal buckets, and hardly anything else has."""

from __future__ import annotations

import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.fold.digest import Buckets, bucket_count, bucket_of, fingerprints
from kuvasz.fold.keys import Keys, hash_keys

SEED = bytes(range(16))


def buckets(ids: list[int], values: list[str | None], count: int = 64) -> Buckets:
    columns = [pa.array(ids, pa.int64()), pa.array(values, pa.string())]
    found = Buckets.empty(count)
    found.add(hash_keys(columns[:1], sid=None, seed=SEED), fingerprints(columns, SEED))
    return found


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=5)), max_size=50), st.data())
def test_the_order_and_the_cut_of_rows_do_not_show(rows: list[tuple[int, str | None]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    whole = buckets([id_ for id_, _ in rows], [value for _, value in rows])
    parts = buckets([id_ for id_, _ in shuffled[:cut]], [value for _, value in shuffled[:cut]])
    parts.merge(buckets([id_ for id_, _ in shuffled[cut:]], [value for _, value in shuffled[cut:]]))
    assert len(whole.differing(parts)) == 0


@pytest.mark.parametrize(
    "values", [["a", "b", None, "d"], ["a", "b", "c", ""], ["a", "c", "b", "d"], ["a", "b", "c"]],
    ids=["null", "empty", "swapped", "missing"],
)  # fmt: skip
def test_another_row_shows_in_its_bucket(values: list[str | None]) -> None:
    before = buckets([1, 2, 3, 4], ["a", "b", "c", "d"])
    after = buckets([1, 2, 3, 4][: len(values)], values)
    keys = hash_keys([pa.array([1, 2, 3, 4])], sid=None, seed=SEED)
    wrong = {number for number, value in enumerate("abcd") if number >= len(values) or values[number] != value}
    assert set(before.differing(after).tolist()) == {int(bucket_of(keys, 64)[number]) for number in wrong}


def test_a_doubled_row_shows_and_twins_do_not_cancel_out() -> None:
    assert len(buckets([1, 1], ["a", "a"]).differing(buckets([1], ["a"]))) == 1
    assert len(buckets([1, 1], ["a", "a"]).differing(buckets([], []))) == 1
    assert len(buckets([1, 1], ["a", "b"]).differing(buckets([1, 1], ["b", "a"]))) == 0


def test_a_table_of_one_integer_column_is_hashed_too() -> None:
    one, other = (fingerprints([pa.array(values, pa.int64())], SEED) for values in ([1, 4], [2, 3]))
    assert int(one.lo.sum()) != int(other.lo.sum())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([None], pa.int32()), pa.array([0], pa.int32())),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([math.nan]), pa.array([None], pa.float64())),
        (pa.array([decimal.Decimal("1.0")]), pa.array([decimal.Decimal("-1.0")])),
        (pa.array([[]], pa.list_(pa.int32())), pa.array([[None]], pa.list_(pa.int32()))),
        (pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
         pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))),
        (pa.array([b""]), pa.array([None], pa.binary())),
    ],
    ids=["null-0", "-0", "nan-null", "sign", "empty list", "map value", "empty bytes"],
)  # fmt: skip
def test_values_that_are_nearly_the_same_are_told_apart(one: pa.Array, other: pa.Array) -> None:
    assert fingerprints([one], SEED).lo[0] != fingerprints([other], SEED).lo[0]
    assert fingerprints([one], SEED).lo[0] == fingerprints([pa.chunked_array([one])], SEED).lo[0]


@pytest.mark.parametrize("rows", [0, 1, 10**6, 10**9, 10**12])
def test_the_number_of_buckets_is_a_power_of_two_within_bounds(rows: int) -> None:
    count = bucket_count(rows)
    assert count & (count - 1) == 0
    assert 256 <= count <= 2**17


@pytest.mark.parametrize("count", [1, 2, 256, 2**17])
def test_buckets_are_filled_evenly_by_neighbours(count: int) -> None:
    keys = Keys(hi=np.full(100_000, 7, np.uint64), lo=np.arange(100_000, dtype=np.uint64))
    filled = np.bincount(bucket_of(keys, count), minlength=count)
    assert len(filled) == count
    assert filled.max() <= 3 * (100_000 // count + 1)
