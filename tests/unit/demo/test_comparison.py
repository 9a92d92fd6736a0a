"""A line of the comparison, from answers that a test gives for Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.demo import shop
from kuvasz.demo.comparison import compare
from kuvasz.demo.fingerprint import RowFingerprint

TABLE = shop.TABLES[0]


def session(*rows: tuple[str, int, int], is_there: bool = True) -> Any:
    catalog = SimpleNamespace(tableExists=lambda name: is_there and name == f"kuvasz.shop.{TABLE.name}")
    return SimpleNamespace(catalog=catalog, sql=lambda _: SimpleNamespace(collect=lambda: list(rows)))


def equal(found: Any, **sources: tuple[int, int]) -> dict[str, bool]:
    contents = {sid: {TABLE.name: RowFingerprint(rows=rows, total=total)} for sid, (rows, total) in sources.items()}
    lines = compare(found, "kuvasz.shop", contents, [TABLE])
    return {line.sid: line.is_equal for line in lines}


@pytest.mark.parametrize(("lake", "is_equal"), [((3, 99), True), ((3, 98), False), ((2, 99), False)])
def test_rows_are_equal_by_their_number_and_their_content(lake: tuple[int, int], *, is_equal: bool) -> None:
    assert equal(session(("eu", *lake)), eu=(3, 99)) == {"eu": is_equal}


def test_each_source_is_compared_with_its_own_rows() -> None:
    assert equal(session(("eu", 1, 5), ("us", 1, 6)), eu=(1, 5), us=(1, 5)) == {"eu": True, "us": False}


def test_a_source_without_rows_is_equal_to_none_in_the_lake_and_to_no_missing_table() -> None:
    assert equal(session(), eu=(0, 0)) == {"eu": True}
    assert equal(session(is_there=False), eu=(0, 0)) == {"eu": False}
