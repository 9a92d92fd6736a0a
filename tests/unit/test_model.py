"""What values that cross stages know of themselves."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.model import NO_OPERATIONS, UNPROVED, Operations, Seen, TableName, Uniqueness
from tests.support.changes import ITEMS


@pytest.mark.parametrize(
    ("now", "is_lapsed"),
    [
        (Uniqueness(1, 2, 3), False),
        (Uniqueness(1, 2, 9), False),  # REINDEX, or a rewrite
        (Uniqueness(1, 8, 9), False),  # REINDEX CONCURRENTLY
        (Uniqueness(7, 8, 3), False),  # dropped and made again around the same file
        (Uniqueness(7, 8, 9), True),
        (UNPROVED, False),
    ],
)
def test_a_key_lapses_when_nothing_of_it_is_the_same(now: Uniqueness, *, is_lapsed: bool) -> None:
    assert Uniqueness(1, 2, 3).lapsed(now) is is_lapsed


def test_what_is_missing_on_both_sides_is_nothing_in_common() -> None:
    assert Uniqueness(0, 2, 0).lapsed(Uniqueness(0, 3, 0))
    assert not UNPROVED.lapsed(Uniqueness(1, 2, 3)), "of what was not known nothing can be said"


def test_a_key_has_the_order_of_the_columns() -> None:
    assert ITEMS.key == ("id",)
    turned = dataclasses.replace(ITEMS, columns=tuple(dataclasses.replace(one, is_key=True) for one in ITEMS.columns))
    assert turned.key == ("id", "n", "body")


def test_when_a_relation_was_seen_makes_it_no_other() -> None:
    assert dataclasses.replace(ITEMS, seen=Seen(lsn=1, until=2)) == ITEMS
    assert dataclasses.replace(ITEMS, file=9) != ITEMS


def test_operations_add_up() -> None:
    assert Operations(1, 2, 3).plus(Operations(10, 20, 30)) == Operations(11, 22, 33)
    assert NO_OPERATIONS.plus(NO_OPERATIONS) == NO_OPERATIONS


def test_a_name_is_shown_with_its_schema() -> None:
    assert str(TableName(schema="public", name="items")) == "public.items"
