"""Constants of columns that were added after rows."""

from __future__ import annotations

import datetime
import decimal
import uuid

import pyarrow as pa
import pytest

from kuvasz import typemap
from kuvasz.model import PgType
from kuvasz.modes import defaults
from kuvasz.typemap import BUILTIN

UTC = datetime.UTC
NUMERIC_8_2 = ((8 << 16) | 2) + 4
NUMERIC_38_20 = ((38 << 16) | 20) + 4


@pytest.mark.parametrize(
    ("oid", "typmod", "text", "value"),
    [
        (16, -1, "t", True), (16, -1, "f", False), (23, -1, "-5", -5), (20, -1, "9223372036854775807", 2**63 - 1),
        (700, -1, "1.5", 1.5), (701, -1, "1e+300", 1e300), (25, -1, "", ""), (1043, 9, "a 'b'\"", "a 'b'\""),
        (1700, NUMERIC_8_2, "12.3", decimal.Decimal("12.30")), (1700, -1, "12.30", "12.30"),
        (1700, NUMERIC_38_20, "1000000000", decimal.Decimal("1000000000.00000000000000000000")),
        (1700, NUMERIC_38_20, "9" * 18 + "." + "9" * 20, decimal.Decimal("9" * 18 + "." + "9" * 20)),
        (1700, NUMERIC_38_20, "-" + "9" * 18 + "." + "9" * 20, decimal.Decimal("-" + "9" * 18 + "." + "9" * 20)),
        (1082, -1, "2024-02-29", datetime.date(2024, 2, 29)),
        (1114, -1, "2024-02-29 01:02:03.4", datetime.datetime(2024, 2, 29, 1, 2, 3, 400000)),  # noqa: DTZ001
        (1184, -1, "2024-02-29 01:02:03+00", datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        (2950, -1, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").bytes),
        (3802, -1, '{"a": 1}', '{"a": 1}'),
    ],
)  # fmt: skip
def test_a_constant_comes_back_as_a_column(oid: int, typmod: int, text: str, value: object) -> None:
    kind = typemap.value_type(BUILTIN[oid], typmod)
    default = defaults.of_text(BUILTIN[oid], kind, text)
    field = pa.field("c", typemap.arrow_type(kind), metadata={b"other": b"1"} | defaults.metadata(default))
    assert defaults.column(field, 2).to_pylist() == [value, value]
    assert defaults.column(field, 0).type == field.type


@pytest.mark.parametrize(("oid", "typmod", "text"), [
    (700, -1, "NaN"), (701, -1, "-Infinity"), (1700, NUMERIC_8_2, "NaN"), (1082, -1, "infinity"),
    (1082, -1, "0044-03-15 BC"), (1082, -1, "20000-01-01"), (1114, -1, "infinity"), (603, -1, "(1,1),(0,0)"),
    (1007, -1, "{1}"), (17, -1, "\\x00"),
])  # fmt: skip
def test_what_iceberg_has_no_constant_for_is_left_to_a_copy(oid: int, typmod: int, text: str) -> None:
    assert defaults.of_text(BUILTIN[oid], typemap.value_type(BUILTIN[oid], typmod), text) is None


@pytest.mark.parametrize("text", ["1.005", "1234567.5", "1" * 40])
def test_a_number_that_would_be_rounded_or_does_not_fit_is_left_to_a_copy(text: str) -> None:
    kind = typemap.value_type(BUILTIN[1700], NUMERIC_8_2)
    assert defaults.of_text(BUILTIN[1700], kind, text) is None


def test_types_of_one_database_are_left_to_a_copy() -> None:
    mood = PgType(oid=90000, name="text", schema="public", category="e")
    assert defaults.of_text(mood, typemap.value_type(mood, -1), "sad") is None


def test_without_a_default_it_is_null() -> None:
    assert defaults.metadata(None) == {}
    assert defaults.column(pa.field("c", pa.int32()), 2).to_pylist() == [None, None]
