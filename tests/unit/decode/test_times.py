from __future__ import annotations

import datetime

import pytest

from kuvasz.decode.columns import column
from kuvasz.decode.refusals import ValueRefused
from tests.support import wires
from tests.support.wires import one_column

UTC = datetime.UTC


def instant(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"2024-02-29 12:34:56.789+00", instant(2024, 2, 29, 12, 34, 56, 789000)),
        (b"2024-02-29 12:34:56.000001+05:30", instant(2024, 2, 29, 7, 4, 56, 1)),
        (b"1900-01-01 00:00:00-00:19:32", instant(1900, 1, 1, 0, 19, 32)),
        (b"0001-01-01 00:00:00+00", instant(1, 1, 1)),
        (b"0001-01-01 15:00:00+15", instant(1, 1, 1)),
        (b"0001-12-31 23:00:00-01 BC", instant(1, 1, 1)),
        (b"10000-01-01 01:00:00+02", instant(9999, 12, 31, 23)),
        (b"9999-12-31 23:59:59.999999+00", instant(9999, 12, 31, 23, 59, 59, 999999)),
    ],
)
def test_offsets_are_exact_and_the_range_is_that_of_utc(text: bytes, value: datetime.datetime) -> None:
    assert column(one_column([text]), 0, wires.TIMESTAMPTZ).to_pylist() == [value]


@pytest.mark.parametrize(
    "text",
    [
        b"infinity", b"-infinity", b"0044-03-15 BC", b"4713-01-01 BC", b"10000-01-01", b"5874897-12-31",
        b"0001-12-31 BC",
    ],
)  # fmt: skip
def test_dates_outside_are_refused_nulled_or_clamped(text: bytes) -> None:
    cells = one_column([b"2024-01-01", text])
    with pytest.raises(ValueRefused, match="outside the years 0001 to 9999") as refused:
        column(cells, 0, wires.DATE)
    assert (refused.value.row, refused.value.text) == (1, text.decode())
    assert column(cells, 0, wires.DATE, out_of_range="null").to_pylist()[1] is None
    is_early = b"BC" in text or text.startswith(b"-")
    clamped = datetime.date.min if is_early else datetime.date.max
    assert column(cells, 0, wires.DATE, out_of_range="clamp").to_pylist()[1] == clamped


@pytest.mark.parametrize(
    ("text", "clamped"),
    [
        (b"infinity", instant(9999, 12, 31, 23, 59, 59, 999999)),
        (b"294276-12-31 23:59:59.999999+00", instant(9999, 12, 31, 23, 59, 59, 999999)),
        (b"9999-12-31 23:59:59.999999-00:00:01", instant(9999, 12, 31, 23, 59, 59, 999999)),
        (b"-infinity", instant(1, 1, 1)),
        (b"4714-11-24 00:00:00+00 BC", instant(1, 1, 1)),
        (b"0001-01-01 00:00:00+00:00:01", instant(1, 1, 1)),
    ],
)
def test_instants_outside_are_refused_nulled_or_clamped(text: bytes, clamped: datetime.datetime) -> None:
    cells = one_column([text])
    with pytest.raises(ValueRefused, match="outside the years 0001 to 9999"):
        column(cells, 0, wires.TIMESTAMPTZ)
    assert column(cells, 0, wires.TIMESTAMPTZ, out_of_range="null").to_pylist() == [None]
    assert column(cells, 0, wires.TIMESTAMPTZ, out_of_range="clamp").to_pylist() == [clamped]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"2023-02-29", b"1900-02-29", b"2024-13-01", b"2024-00-01", b"2024-01-00",
        b"2024-04-31", b"0000-01-01",
        b"24-01-01", b"2024-1-01", b"2024/01/01",
        b"2024-01-01 ", b"2024-01-01 AD", b"12345678-01-01", b"Infinity",
    ],
)  # fmt: skip
def test_what_is_no_date_is_refused_under_any_policy(text: bytes) -> None:
    for policy in ("error", "null", "clamp"):
        with pytest.raises(ValueRefused, match="not the text form"):
            column(one_column([text]), 0, wires.DATE, out_of_range=policy)


@pytest.mark.parametrize(
    "text",
    [
        b"2024-01-01", b"2024-01-01 24:00:00", b"2024-01-01 00:60:00", b"2024-01-01 00:00:60",
        b"2024-01-01T00:00:00",
        b"2024-01-01 00:00:00.", b"2024-01-01 00:00:00.1234567", b"2024-01-01 00:00:00+00", b"2024-01-01 00:00",
    ],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.TIMESTAMP)


@pytest.mark.parametrize("zone", [b"", b"+", b"+1", b"+01:", b"+01:60", b"Z", b" +00", b"+00:00:00:00"])
def test_an_instant_needs_an_offset(zone: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([b"2024-01-01 00:00:00" + zone]), 0, wires.TIMESTAMPTZ)


def test_every_day_of_the_range_is_itself() -> None:
    days = [datetime.date.fromordinal(number) for number in range(1, datetime.date.max.toordinal() + 1, 97)]
    assert column(one_column([day.isoformat().encode() for day in days]), 0, wires.DATE).to_pylist() == days
