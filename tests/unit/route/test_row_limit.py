from __future__ import annotations

import pytest

from kuvasz.route.row_limit import RowLimit
from tests.support.changes import ITEMS, Sender, insert

BODY = insert(1, body="x" * 100)


def told(limit: int, *transactions: tuple[int, list[bytes]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    RowLimit(limit, lambda relation, lsn, size: found.append((lsn, size)) or _is(relation)).check(  # type: ignore[func-returns-value]
        Sender().segment(list(transactions))
    )
    return found


def _is(relation: object) -> None:
    assert relation is ITEMS


@pytest.mark.parametrize(("limit", "lsns"), [(len(BODY), []), (len(BODY) - 1, [1100, 1300, 1300]), (1 << 40, [])])
def test_rows_that_are_too_large_are_told_with_their_transaction(limit: int, lsns: list[int]) -> None:
    small = insert(2)
    found = told(limit, (1100, [BODY, small]), (1200, [small]), (1300, [BODY, small, BODY]))
    assert found == [(lsn, len(BODY)) for lsn in lsns]


def test_many_small_rows_are_no_large_one() -> None:
    assert told(len(BODY), (1100, [BODY] * 10)) == []
