"""How many equal rows there are, found by looking some of them up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from kuvasz.index.positions import PositionIndex
from kuvasz.lake.files.files import Changeset, FileEntry, FileTable
from kuvasz.lake.table.row_counts import RowCounts
from kuvasz.model import UInt32s
from tests.support.lake_table import keys_of


def rows(count: int) -> UInt32s:
    return np.arange(count, dtype=np.uint32)


@pytest.fixture
def files() -> FileTable:
    found = FileTable({})
    found.add(FileEntry(number=0, path="a", rows=100, sid=None, dead=BitMap64()))
    return found


@given(st.lists(st.integers(1, 4), max_size=40))
def test_the_count_is_that_of_the_rows(values: list[int]) -> None:
    index, known = PositionIndex.in_memory(), FileTable({})
    known.add(FileEntry(number=0, path="a", rows=len(values), sid=None, dead=BitMap64()))
    counts = RowCounts(index.lookup, known)
    counts.stack(index, keys_of(*values), 0, rows(len(values)))
    assert counts.of(keys_of(1, 2, 3, 4, 5)).tolist() == [values.count(value) for value in range(1, 6)]


def test_dead_copies_do_not_count_and_others_take_their_numbers(files: FileTable) -> None:
    index = PositionIndex.in_memory()
    counts = RowCounts(index.lookup, files)
    counts.stack(index, keys_of(7, 7, 7), 0, rows(3))
    files.find("a").dead = BitMap64([2])
    assert counts.of(keys_of(7)).tolist() == [2]
    counts.stack(index, keys_of(7), 0, np.array([9], np.uint32))
    assert counts.of(keys_of(7)).tolist() == [3]


def test_what_a_commit_is_about_to_change_counts(files: FileTable) -> None:
    index, layer = PositionIndex.in_memory(), Changeset()
    RowCounts(index.lookup, files).stack(index, keys_of(7, 7), 0, rows(2))
    layer.delete(np.zeros(1, np.uint32), np.ones(1, np.uint32))
    assert RowCounts(index.lookup, files, [layer]).of(keys_of(7)).tolist() == [1]
    layer.dropped.add(0)
    assert RowCounts(index.lookup, files, [layer]).of(keys_of(7)).tolist() == [0]


def test_files_that_are_gone_hold_nothing(files: FileTable) -> None:
    index = PositionIndex.in_memory()
    counts = RowCounts(index.lookup, files)
    counts.stack(index, keys_of(7), 0, rows(1))
    files.remove(0)
    assert counts.of(keys_of(7)).tolist() == [0]
