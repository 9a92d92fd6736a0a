from __future__ import annotations

import pytest

from kuvasz.verbs import text


def test_columns_are_as_wide_as_their_widest_entry() -> None:
    shown = text.table(("table", "rows"), [("shop.items", "1"), ("a", "10000")])
    assert shown.splitlines() == [
        "table       rows",
        "----------  -----",
        "shop.items  1",
        "a           10000",
    ]


def test_an_entry_stays_on_its_line() -> None:
    assert text.table(("error",), [("first\n  second",)]).splitlines() == ["error", "------------", "first second"]


def test_a_table_without_rows_has_headers() -> None:
    assert text.table(("a", "bc"), []).splitlines() == ["a  bc", "-  --"]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "?"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 kB"), (1536, "1.5 kB"), (1024**2, "1.0 MB"),
        (1.25 * 1024**3, "1.2 GB"), (1024**4, "1.0 TB"), (5000 * 1024**4, "5000.0 TB"),
    ],
)  # fmt: skip
def test_a_size_is_for_a_person(count: float | None, shown: str) -> None:
    assert text.size(count) == shown
