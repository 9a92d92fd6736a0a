"""Rows in their partitions and in the order that is asked for."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuvasz.lake.files.arrangement import arrange
from kuvasz.lake.format.layout import Layout
from tests.support.layouts import term, wanted


def test_values_are_written_as_the_spec_has_them() -> None:
    at = datetime.datetime(1969, 12, 31, 23, 0, 0, 123456, tzinfo=datetime.UTC)
    unique = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    rows = pa.table({
        "at": pa.array([at], pa.timestamp("us", tz="UTC")), "day": pa.array([at.date()]), "s": ["hä"],
        "u": pa.array([unique.bytes], pa.binary(16)), "b": pa.array([b"\x00\xff"]), "t": [True],
        "d": pa.array([decimal.Decimal("-1.50")], pa.decimal128(9, 2)), "n": pa.array([None], pa.int32()),
    })  # fmt: skip
    asked = wanted("at", "day", "s", "u", "b", "t", "d", "n", "days(day)", "hours(at)")
    asked = Layout(partition=(*asked.partition, term("month", "day")))
    ((values, _),) = arrange(asked, rows)
    assert values == ("1969-12-31T23:00:00.123456+00:00", "1969-12-31", "hä", str(unique), "00FF", True, "-1.50",
                      None, "1969-12-31", -1, -1)  # fmt: skip


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=30))
def test_every_row_goes_to_its_partition_once(rows: list) -> None:
    table = pa.table(
        {"n": pa.array([n for n, _ in rows], pa.int32()), "s": pa.array([s for _, s in rows], pa.string())}
    )
    found = arrange(wanted("truncate(5, n)", "truncate(1, s)"), table)
    seen = [index for _, order in found for index in order.tolist()]
    assert sorted(seen) == list(range(len(rows)))
    for values, order in found if rows else ():
        assert order.tolist() == sorted(order.tolist()), "rows keep their order"
        for index in order.tolist():
            n, s = rows[index]
            assert values == (None if n is None else n - n % 5, None if s is None else s[:1])
    assert len({values for values, _ in found}) == len(found)


def _first(value: float | None, *, descends: bool, nulls_first: bool) -> tuple:
    if value is None:
        return (0 if nulls_first else 2, 0.0, 0)
    rank = (1, 0.0) if math.isnan(value) else (0, value)
    sign = math.copysign(1, value) if value == 0 else 0
    key = (*rank, sign)
    return (1, *(-part for part in key)) if descends else (1, *key)


@pytest.mark.parametrize("descends", [True, False])
@pytest.mark.parametrize("nulls_first", [True, False])
@given(
    values=st.lists(st.none() | st.floats(allow_nan=True, width=32).map(abs) | st.floats(allow_nan=False), min_size=1)
)
def test_rows_are_sorted_with_nulls_where_they_are_wanted(
    descends: bool, nulls_first: bool, values: list[float | None]
) -> None:
    words = f"x {'desc' if descends else 'asc'} nulls {'first' if nulls_first else 'last'}"
    ((_, order),) = arrange(wanted(sort_by=(words,)), pa.table({"x": pa.array(values, pa.float64())}))
    expected = sorted(range(len(values)), key=lambda i: _first(values[i], descends=descends, nulls_first=nulls_first))
    assert order.tolist() == expected


def test_the_second_term_decides_where_the_first_does_not() -> None:
    rows = pa.table({"s": ["b", "a", "b", "a"], "n": pa.array([1, 2, 3, 4], pa.int32()),
                     "t": [True, True, False, False]})  # fmt: skip
    found = arrange(wanted("t", sort_by=("s", "n desc")), rows)
    assert {values: order.tolist() for values, order in found} == {(True,): [1, 0], (False,): [3, 2]}
