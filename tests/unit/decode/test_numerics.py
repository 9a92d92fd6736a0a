from __future__ import annotations

import dataclasses
import math
from decimal import Decimal

import numpy as np
import pytest

from kuvasz.decode.columns import column
from kuvasz.decode.refusals import ValueRefused
from kuvasz.model import REAL_BITS
from tests.support import wires
from tests.support.wires import one_column


def test_the_ends_of_the_integer_ranges_fit_and_their_neighbours_do_not() -> None:
    for value_type, bits in ((wires.INT, 31), (wires.LONG, 63)):
        ends = [-(1 << bits), (1 << bits) - 1]
        assert column(one_column([b"%d" % end for end in ends]), 0, value_type).to_pylist() == ends
        for outside in (ends[0] - 1, ends[1] + 1):
            with pytest.raises(ValueRefused, match="is too large"):
                column(one_column([b"%d" % outside]), 0, value_type)


@pytest.mark.parametrize("text", [b"", b"-", b"+1", b" 1", b"1 ", b"1.0", b"0x1", b"1_0", b"\xd9\xa1"])
def test_what_is_no_integer_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.LONG)


@pytest.mark.parametrize(
    ("text", "precision", "scale", "value"),
    [
        (b"9" * 38, 38, 0, "9" * 38),
        (b"-" + b"9" * 38, 38, 0, "-" + "9" * 38),
        (b"0." + b"0" * 37 + b"1", 38, 38, "1E-38"),
        (b"1.50", 3, 1, "1.5"),
        (b"-0.00", 3, 2, "0.00"),
        (b"18446744073709551616", 20, 0, "18446744073709551616"),
        (b"9999999999999999999.9", 21, 2, "9999999999999999999.90"),
        (b"1", 38, 37, "1." + "0" * 37),
        (b"000123.4", 4, 1, "123.4"),
    ],
)
def test_decimals_are_exact(text: bytes, precision: int, scale: int, value: str) -> None:
    array = column(one_column([text]), 0, wires.decimal(precision, scale))
    assert str(array[0].as_py()) == str(Decimal(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"10.00", "has more digits than its decimal type"),
        (b"1" * 60, "has more digits than its decimal type"),
        (b"1.005", "has more fractional digits than its decimal type"),
        (b"NaN", "is no finite number, which a decimal cannot hold"),
        (b"-Infinity", "is no finite number, which a decimal cannot hold"),
        (b"1e2", "is not the text form of its type"),
        (b"1.", "is not the text form of its type"),
        (b"1.2.3", "is not the text form of its type"),
    ],
)
def test_decimals_that_do_not_fit_are_refused(text: bytes, said: str) -> None:
    for policy in ("error", "clamp"):
        with pytest.raises(ValueRefused) as refused:
            column(one_column([b"1.00", text]), 0, wires.decimal(3, 2), out_of_range=policy)
        assert (refused.value.row, refused.value.reason) == (1, said)


def test_null_policy_is_for_what_is_not_finite_only() -> None:
    cells = one_column([b"NaN", b"Infinity", b"-Infinity", b"1"])
    taken = column(cells, 0, wires.decimal(3, 2), out_of_range="null").to_pylist()
    assert taken == [None, None, None, Decimal(1)]
    with pytest.raises(ValueRefused, match="more digits"):
        column(one_column([b"99"]), 0, wires.decimal(3, 2), out_of_range="null")


def test_a_short_float_is_rounded_once() -> None:
    # Halfway between two 32-bit floats and a bit: by way of a 64-bit float the bit is lost and the tie goes down.
    text = b"1.000000059604644775390625000000000000001"
    assert np.float32(float(text)) == np.float32(1)
    assert column(one_column([text]), 0, wires.FLOAT).to_pylist() == [
        float(np.nextafter(np.float32(1), np.float32(2)))
    ]


def test_a_real_stays_the_number_it_is_as_a_double() -> None:
    widened = dataclasses.replace(wires.DOUBLE, precision=REAL_BITS)
    found = column(one_column([b"0.1", b"NaN", b"-Infinity"]), 0, widened)
    assert found.type == "double"
    assert found.to_pylist()[0] == float(np.float32("0.1")) != 0.1
    with pytest.raises(ValueRefused, match="is too large"):
        column(one_column([b"3.5e38"]), 0, widened)


def test_floats_keep_their_special_values() -> None:
    nan, negative_zero, infinity, smallest = column(
        one_column([b"NaN", b"-0", b"-Infinity", b"5e-324"]), 0, wires.DOUBLE
    ).to_pylist()
    assert math.isnan(nan)
    assert math.copysign(1, negative_zero) == -1
    assert (infinity, smallest) == (-math.inf, 5e-324)


@pytest.mark.parametrize(("value_type", "text"), [(wires.DOUBLE, b"1e309"), (wires.FLOAT, b"3.5e38")])
def test_a_float_too_large_is_refused_not_infinite(value_type, text: bytes) -> None:
    with pytest.raises(ValueRefused, match="is too large") as refused:
        column(one_column([b"Infinity", text]), 0, value_type)
    assert refused.value.row == 1


@pytest.mark.parametrize("text", [b"", b"-", b".5", b"1.", b"1e", b"1e+", b"+1", b"nan", b"inf", b"-NaN", b"1 "])
def test_what_is_no_float_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.DOUBLE)


@pytest.mark.parametrize("text", [b"", b"true", b"T", b"1"])
def test_what_is_no_boolean_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.BOOLEAN)
