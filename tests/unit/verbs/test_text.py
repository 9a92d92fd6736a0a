from __future__ import annotations

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
