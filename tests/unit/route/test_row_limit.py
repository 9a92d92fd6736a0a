from __future__ import annotations

import pytest

from kuvasz.decode.cells import CUT
from kuvasz.decode.tuples import split_changes
from kuvasz.route.row_limit import RowLimit
from tests.support.changes import ITEMS, Sender, insert
from tests.support.wires import message

BODY = insert(1, body="x" * 100)


def told(limit: int, *transactions: tuple[int, list[bytes]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []

    def exceeded(relation: object, lsn: int, size: int) -> bool:
        found.append((lsn, size))
        return _is(relation)

    segment = Sender().segment(list(transactions))
    assert RowLimit(limit, exceeded).check(segment) is segment
    return found


def _is(relation: object) -> bool:
    assert relation is ITEMS
    return False


@pytest.mark.parametrize(("limit", "lsns"), [(len(BODY), []), (len(BODY) - 1, [1100, 1300, 1300]), (1 << 40, [])])
def test_rows_that_are_too_large_are_told_with_their_transaction(limit: int, lsns: list[int]) -> None:
    small = insert(2)
    found = told(limit, (1100, [BODY, small]), (1200, [small]), (1300, [BODY, small, BODY]))
    assert found == [(lsn, len(BODY)) for lsn in lsns]


def test_many_small_rows_are_no_large_one() -> None:
    assert told(len(BODY), (1100, [BODY] * 10)) == []


@pytest.mark.parametrize("size", [100, 20_000])
def test_of_one_that_is_rejected_the_large_values_are_cut_away(size: int) -> None:
    big, small = "x" * size, insert(2, body="y")
    messages = [small, insert(1, 7, big), message("U", [b"1", b"7", big.encode()], [b"1", b"8", b"z"], "O"), small]
    segment = Sender().segment([(1100, messages[:2]), (1200, messages[2:])])
    cut = RowLimit(60, lambda *_: True).check(segment)
    assert (cut.transactions, cut.relation) == (segment.transactions, segment.relation)
    changes = split_changes(cut.data, cut.lengths, 3)
    texts = [[changes.new.text(column, row) for column in range(3)] for row in range(4)]
    assert texts == [[b"2", b"0", b"y"], [b"1", b"7", None], [b"1", b"7", None], [b"2", b"0", b"y"]]
    assert changes.new.length[2].tolist() == [1, CUT, CUT, 1]
    assert [changes.old.text(column, 0) for column in range(3)] == [b"1", b"8", b"z"]
    assert RowLimit(60, lambda *_: False).check(segment) is segment


def test_of_many_values_none_of_which_is_large_the_largest_are() -> None:
    segment = Sender().segment([(1100, [insert(1, 22, "333"), insert(4, 555, "666")])])
    cut = RowLimit(10, lambda *_: True).check(segment)
    changes = split_changes(cut.data, cut.lengths, 3)
    assert changes.new.length.tolist() == [[1, 1], [2, CUT], [CUT, CUT]]


def test_what_is_no_row_message_goes_on_as_it_is() -> None:
    segment = Sender().segment([(1100, [BODY[:-1]])])
    cut = RowLimit(10, lambda *_: True).check(segment)
    assert (cut.data, cut.lengths.tolist()) == (segment.data, segment.lengths.tolist())
