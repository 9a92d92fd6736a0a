from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.errors import InternalError
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk

WORDS = st.sampled_from([0, 1, 2, 3, 1 << 32, 1 << 63, (1 << 64) - 1])
HALVES = st.sampled_from([0, 1, 2, 1 << 31, (1 << 32) - 1])
FILES = st.lists(st.lists(st.tuples(HALVES, WORDS), unique=True), max_size=5)


def words(keys):
    return keys.hi, keys.lo


def records(keys):
    hi, lo = np.array(keys, np.uint64).reshape(-1, 2).T
    return bulk.of_one_file(Keys(hi=hi.copy(), lo=lo.copy()))


@given(files=FILES, slice_rows=st.integers(1, 8))
def test_all_records_come_ascending_with_their_file_and_row(files, slice_rows):
    seen = set()
    files = [[key for key in keys if key not in seen and not seen.add(key)] for keys in files]
    merged = list(bulk.merged([(1000 * (at + 7), records(keys)) for at, keys in enumerate(files)], slice_rows))
    found = [tuple(key) for part in merged for key in np.stack([*words(bulk.keys_of(part))], axis=1).tolist()]
    codes = [int(code) for part in merged for code in part[:, 1].astype(np.uint32)]
    expected = [(key, 1000 * (at + 7) + row) for at, keys in enumerate(files) for row, key in enumerate(keys)]
    assert list(zip(found, codes, strict=True)) == sorted(expected)


@given(keys=st.lists(st.tuples(WORDS, WORDS), max_size=9), others=st.lists(st.tuples(HALVES, WORDS), max_size=9))
def test_rows_of_keys_are_found_in_a_file(keys, others):
    keys = list({(hi % (1 << 32), lo): (hi, lo) for hi, lo in keys}.values())
    wanted = np.array(keys[::2] + others, np.uint64).reshape(-1, 2)
    low = [(hi % (1 << 32), lo) for hi, lo in wanted.tolist()]
    expected = [row for row, (hi, lo) in enumerate(keys) if (hi % (1 << 32), lo) in low]
    assert bulk.rows_of(records(keys), Keys(hi=wanted[:, 0], lo=wanted[:, 1])).tolist() == expected


@given(keys=st.lists(st.tuples(WORDS, WORDS), max_size=9))
def test_keys_in_their_order_make_ascending_records(keys):
    keys = list({(hi % (1 << 32), lo): (hi, lo) for hi, lo in keys}.values())
    hi, lo = np.array(keys, np.uint64).reshape(-1, 2).T.copy()
    given = Keys(hi=hi, lo=lo)
    order = bulk.order(given)
    ascending = bulk.ascending(given.take(order), order.astype(np.uint32))
    assert ascending.tolist() == records(keys).tolist()


@given(count=st.integers(1, 2000), slice_rows=st.integers(1, 300))
def test_a_slice_is_never_much_larger_than_asked_for(count, slice_rows):
    numbers = np.random.default_rng(count).permutation(count)
    files = [(at, records([(0, int(n)) for n in part])) for at, part in enumerate(np.array_split(numbers, 7))]
    sizes = [len(part) for part in bulk.merged(files, slice_rows)]
    assert sum(sizes) == count
    assert max(sizes) <= 2 * slice_rows + 14


def test_a_key_in_two_files_is_refused():
    with pytest.raises(InternalError, match="1 keys occur in two files"):
        list(bulk.merged([(1, records([(0, 1), (0, 2)])), (2, records([(0, 2), (0, 3)]))]))


def test_a_key_twice_in_a_file_is_refused():
    with pytest.raises(InternalError, match="occurs twice among the 2"):
        records([(0, 1), (0, 1)])
