from __future__ import annotations

from kuvasz.config import names
from kuvasz.config.patterns.new_tables import DAY_S, NewTables

ONE, OTHER, THIRD = (names.parse_table(name) for name in ("one", "other", "third"))


def test_tables_count_for_a_day_also_when_they_are_gone() -> None:
    new = NewTables()
    assert new.count("shop_eu", [ONE], 0.0) == 1
    assert new.count("shop_eu", [], 0.0) == 0, "nobody has taken it in"
    new.note("shop_eu", [ONE], 0.0)
    new.note("shop_eu", [OTHER], 10.0)
    assert new.count("shop_eu", [], 20.0) == 2
    assert new.count("shop_us", [ONE], 20.0) == 1
    assert new.count("shop_eu", [THIRD], DAY_S) == 2


def test_one_that_comes_back_is_no_other() -> None:
    new = NewTables()
    for number in range(100):
        new.note("shop_eu", [ONE], float(number))
    assert new.count("shop_eu", [ONE], 100.0) == 1
