from __future__ import annotations

import pytest

from kuvasz.source.catalog.entries import Entry, changed

ITEMS: list[Entry] = [(7, "s", "items", 1, "id", "700"), (7, "s", "items", 2, "n", "700")]
LEAF: list[Entry] = [(8, "s", "leaf", 1, "id", "701"), (8, "s", "leaf", 2, "n", "701")]


@pytest.mark.parametrize(
    ("now", "names"),
    [
        ([*ITEMS, *LEAF], []),
        ([*ITEMS, *LEAF, (7, "s", "items", 3, "more", "800")], []),
        (ITEMS, []),
        (LEAF, ["s.items"]),
        ([(7, "s", "items", 1, "id", "700"), *LEAF], ["s.items"]),
        ([ITEMS[0], (7, "s", "items", 2, "n", "800"), *LEAF], ["s.items"]),
        ([ITEMS[0], (7, "s", "items", 2, "m", "800"), *LEAF], ["s.items"]),
        ([(7, "s", "other", *ITEMS[0][3:]), (7, "s", "other", *ITEMS[1][3:]), *LEAF], ["s.items"]),
        ([*ITEMS, (8, "s", "leaf", 1, "id", "701")], ["s.leaf"]),
        ([], ["s.items"]),
    ],
    ids=["nothing", "a new column", "a partition that is gone", "the table is gone", "a column that is gone",
         "a column that was altered", "a column that was renamed", "another name", "a partition's column", "all"],
)  # fmt: skip
def test_what_is_not_as_it_was(now: list[Entry], names: list[str]) -> None:
    assert [str(table) for table in changed([*ITEMS, *LEAF], now, 7)] == names


def test_a_table_without_columns_has_an_entry() -> None:
    assert changed([(7, "s", "items", None, None, None)], [], 7)
