"""Whole columns against PyIceberg's scalar transforms."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import transforms as oracle
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from kuvasz.lake.format.layout import TAKES, Term
from kuvasz.lake.format.partition_transforms import apply
from kuvasz.model import LakeType
from tests.support.examples import examples

_DATES = st.integers(-719162, 2932896)  # the years 1 to 9999
_TIMES = st.integers(-719162 * 86400_000_000, 2932896 * 86400_000_000)
_TEXTS = st.text(max_size=12)

#: kind -> Arrow type, Iceberg type, values
KINDS: dict[LakeType, tuple[pa.DataType, IcebergType, st.SearchStrategy]] = {
    LakeType.INT: (pa.int32(), IntegerType(), st.integers(-(2**31) + 2000, 2**31 - 1)),
    LakeType.LONG: (pa.int64(), LongType(), st.integers(-(2**63) + 2000, 2**63 - 1)),
    LakeType.DECIMAL: (pa.decimal128(38, 3), DecimalType(38, 3), st.integers(-(10**38) + 2000, 10**38 - 1)),
    LakeType.STRING: (pa.string(), StringType(), _TEXTS),
    LakeType.BINARY: (pa.binary(), BinaryType(), st.binary(max_size=12)),
    LakeType.UUID: (pa.binary(16), UUIDType(), st.uuids()),
    LakeType.DATE: (pa.date32(), DateType(), _DATES),
    LakeType.TIMESTAMP: (pa.timestamp("us"), TimestampType(), _TIMES),
    LakeType.TIMESTAMPTZ: (pa.timestamp("us", tz="UTC"), TimestamptzType(), _TIMES),
}
_WIDE = decimal.Context(prec=60)
ORACLES = {"year": oracle.YearTransform, "month": oracle.MonthTransform, "day": oracle.DayTransform,
           "hour": oracle.HourTransform}  # fmt: skip
CASES = [
    (kind, name)
    for name, kinds in TAKES.items()
    for kind in sorted(kinds & KINDS.keys(), key=str)
    if name != "identity"
]


def _array(kind: LakeType, values: Sequence[Any]) -> pa.Array:
    if kind is LakeType.DECIMAL:
        values = [None if v is None else decimal.Decimal(v).scaleb(-3, _WIDE) for v in values]
    if kind is LakeType.UUID:
        values = [None if v is None else v.bytes for v in values]
    # A slice: offsets must count.
    return pa.array([values[0], *values, None] if values else [None, None], KINDS[kind][0]).slice(1, len(values))


def _scalar(kind: LakeType, name: str, width: int) -> Callable[[Any], Any]:
    """Return PyIceberg's transform of one value."""
    kinds = {"bucket": oracle.BucketTransform, "truncate": oracle.TruncateTransform}
    made = kinds[name](width) if name in kinds else ORACLES[name]()
    transform = made.transform(KINDS[kind][1])
    if kind is LakeType.DECIMAL:
        return lambda value: transform(decimal.Decimal(value).scaleb(-3, _WIDE))
    return transform


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_columns_are_what_the_scalars_are(kind: LakeType, name: str) -> None:
    widths = (1, 3, 16, 1000) if name in {"bucket", "truncate"} else (0,)
    scalars = {width: _scalar(kind, name, width) for width in widths}

    @settings(max_examples=examples(40 * len(widths)))
    @given(st.lists(st.none() | KINDS[kind][2], max_size=20), st.sampled_from(widths))
    def agree(values: list, width: int) -> None:
        scalar = scalars[width]
        got = apply(Term(transform=name, column="c", width=width), _array(kind, values))
        if pa.types.is_date32(got.type):
            got = got.cast(pa.int32())
        assert got.to_pylist() == [None if value is None else scalar(value) for value in values]

    agree()


def test_the_specs_own_hashes() -> None:
    """Iceberg spec, appendix B."""

    def bucket(array: pa.Array) -> int:
        return apply(Term(transform="bucket", column="c", width=2**31 - 1), array).to_pylist()[0]

    def least(value: int) -> int:
        return (value & 0x7FFFFFFF) % (2**31 - 1)

    assert bucket(pa.array([34], pa.int32())) == least(2017239379)
    assert bucket(pa.array([34], pa.int64())) == least(2017239379)
    assert bucket(pa.array([decimal.Decimal("14.20")], pa.decimal128(9, 2))) == least(-500754589)
    assert bucket(pa.array([datetime.date(2017, 11, 16)])) == least(-653330422)
    at = datetime.datetime(2017, 11, 16, 22, 31, 8, tzinfo=datetime.UTC)
    assert bucket(pa.array([at], pa.timestamp("us", tz="UTC"))) == least(-2047944441)
    assert bucket(pa.array(["iceberg"])) == least(1210000089)
    unique = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    assert bucket(pa.array([unique.bytes], pa.binary(16))) == least(1488055340)
    assert bucket(pa.array([b"\x00\x01\x02\x03"])) == least(-188683207)
