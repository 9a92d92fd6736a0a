"""The twin is itself held against values written by hand: two equal mistakes would pass for agreement."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pytest

from kuvasz.decode.plain import value
from kuvasz.decode.refusals import ValueRefused
from tests.support import wires


@pytest.mark.parametrize(
    ("text", "value_type", "wanted"),
    [
        (b"t", wires.BOOLEAN, True),
        (b"-12", wires.INT, -12),
        (b"1.10", wires.decimal(5, 3), Decimal("1.100")),
        (b"2.5", wires.DOUBLE, 2.5),
        (b"0.1", wires.FLOAT, float(np.float32("0.1"))),
        (b"16777217", wires.FLOAT, 16777216.0),
        ("ä".encode(), wires.STRING, "ä"),
        (b"\\x00ff", wires.BYTEA, b"\x00\xff"),
        (b"00FF", wires.GEOMETRY, b"\x00\xff"),
        (b"2024-02-29", wires.DATE, datetime.date(2024, 2, 29)),
        (b"2024-02-29 01:02:03.04", wires.TIMESTAMP, datetime.datetime(2024, 2, 29, 1, 2, 3, 40000)),  # noqa: DTZ001
        (b"2024-02-29 01:00:00+02", wires.TIMESTAMPTZ, datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.UTC)),
        (b"00000000-0000-0000-0000-0000000000ff", wires.UUID, bytes(15) + b"\xff"),
        (b'{1,NULL,"2"}', wires.array(wires.INT), [1, None, 2]),
        (b'"a"=>NULL', wires.HSTORE, [("a", None)]),
        (b"[1,2]", wires.VECTOR, [1.0, 2.0]),
    ],
)
def test_values(text: bytes, value_type, wanted: object) -> None:
    assert value(text, value_type) == wanted


def test_policies() -> None:
    assert value(b"infinity", wires.DATE, "clamp") == datetime.date.max
    assert value(b"0002-01-01 BC", wires.DATE, "clamp") == datetime.date.min
    assert value(b"infinity", wires.TIMESTAMP, "null") is None
    assert value(b"NaN", wires.decimal(3, 0), "null") is None
    with pytest.raises(ValueRefused, match="outside the years"):
        value(b"infinity", wires.TIMESTAMP)


def test_refusals() -> None:
    for text, value_type in (
        (b"x", wires.INT),
        (b"3000000000", wires.INT),
        (b"1e39", wires.FLOAT),
        (b"{", wires.VECTOR),
    ):
        with pytest.raises(ValueRefused):
            value(text, value_type)
