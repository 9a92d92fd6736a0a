from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kuvasz.model import Segment
from kuvasz.route import parts
from tests.support.changes import Sender, insert

ROWS = [(1100, [insert(1), insert(2)]), (1200, [insert(3)]), (1300, [insert(4), insert(5)])]


def contents(segment: Segment) -> list[tuple[int, list[bytes]]]:
    """Commit LSN and messages of each transaction."""
    ends, messages = segment.lengths.cumsum().tolist(), []
    for begin, end in zip([0, *ends], ends, strict=False):
        messages.append(bytes(segment.data[begin:end]))
    runs = segment.transactions
    starts = [0, *runs.row_end.tolist()]
    return [
        (lsn, messages[begin:end])
        for lsn, begin, end in zip(runs.commit_lsn.tolist(), starts, runs.row_end.tolist(), strict=False)
    ]


@pytest.mark.parametrize(("lsn", "left"), [(0, 3), (1099, 3), (1100, 2), (1107, 2), (1200, 1), (1299, 1)])
def test_transactions_that_committed_after_an_lsn_are_left(lsn: int, left: int) -> None:
    segment = parts.newer(Sender().segment(ROWS), lsn)
    assert isinstance(segment, Segment)
    assert contents(segment) == ROWS[3 - left :]


def test_of_older_ones_nothing_is_left() -> None:
    assert parts.newer(Sender().segment(ROWS), 1300) is None


def test_what_is_wholly_newer_is_the_same_object() -> None:
    segment = Sender().segment(ROWS)
    assert parts.newer(segment, 5) is segment


def test_a_truncation_is_left_or_not() -> None:
    truncation = Sender().truncation(1200)
    assert parts.newer(truncation, 1199) is truncation
    assert parts.newer(truncation, 1200) is None


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 2), (1, 3), (0, 3)])
def test_some_transactions_of_a_segment(first: int, last: int) -> None:
    segment = parts.between(Sender().segment(ROWS), first, last)
    assert segment is not None
    assert contents(segment) == ROWS[first:last]


def test_no_transaction_is_none() -> None:
    assert parts.between(Sender().segment(ROWS), 2, 2) is None


def test_what_is_whole_and_what_goes_on_are_told_apart() -> None:
    eu = Sender()
    first, truncation, lsn = eu.transactions([insert(1)], [insert(2)]), eu.truncation(), eu.commit_lsn()
    part = eu.part(lsn, insert(3))
    assert parts.separate([first, truncation, part], 0, is_open=True) == ([first, truncation], [part])
    assert parts.separate([first, truncation, part], 0, is_open=False) == ([first, truncation], [])
    (later, cut), begun = parts.separate([first, truncation, part], 1100, is_open=True)
    assert parts.commit_lsns([later, cut, *begun]) == [1200, 1200, 1300, lsn, lsn]
    assert parts.separate([first, truncation, part], lsn, is_open=True) == ([], [])


def test_one_segment_may_have_both() -> None:
    segment = Sender().segment([(1100, [insert(1)]), (1200, [insert(2)])])
    runs = dataclasses.replace(segment.transactions, end_lsn=np.array([1108, 1201], np.uint64))
    (whole,), (begun,) = parts.separate([dataclasses.replace(segment, transactions=runs)], 0, is_open=True)
    assert (contents(whole), contents(begun)) == ([(1100, [insert(1)])], [(1200, [insert(2)])])
