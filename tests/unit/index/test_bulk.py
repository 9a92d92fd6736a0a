from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.errors import InternalError
from kuvasz.fold.keys import Keys
from kuvasz.index import bulk

WORDS = st.sampled_from([0, 1, 2, 3, 1 << 63, (1 << 64) - 1])
FILES = st.lists(st.lists(st.tuples(WORDS, WORDS), unique=True), max_size=5)


def records(keys):
    hi, lo = np.array(keys, np.uint64).reshape(-1, 2).T
    return bulk.of_one_file(Keys(hi=hi.copy(), lo=lo.copy()))


@given(files=FILES, slice_rows=st.integers(1, 8))
def test_all_records_come_ascending_with_their_file_and_row(files, slice_rows):
    seen = set()
    files = [[key for key in keys if key not in seen and not seen.add(key)] for keys in files]
    merged = bulk.merged([(number + 7, records(keys)) for number, keys in enumerate(files)], slice_rows)
    found = [tuple(record) for part in merged for record in part.tolist()]
    expected = [(*key, number + 7 << 32 | row) for number, keys in enumerate(files) for row, key in enumerate(keys)]
    assert found == sorted(expected)


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
