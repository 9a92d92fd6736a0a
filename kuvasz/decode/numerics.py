"""Numbers and booleans: exact or refused, never rounded but for floats, and those once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np
import pyarrow as pa

from kuvasz.decode import texts
from kuvasz.decode.cells import wide
from kuvasz.decode.refusals import (
    FINE,
    MALFORMED,
    NOT_FINITE,
    TOO_LARGE,
    TOO_MANY_DIGITS,
    TOO_MUCH_SCALE,
    refusal,
)
from kuvasz.errors import DecodeError
from kuvasz.model import REAL_BITS, LakeType

if TYPE_CHECKING:
    import numpy.typing as npt

    from kuvasz.decode.cells import Strip
    from kuvasz.model import Int32s, Int64s, UInt8s, UInt64s, ValueType

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_TEN = np.uint64(10)
#: Decimal digits that always fit 64 bits without sign.
_WORD_DIGITS = 19
_POWERS = np.array([10**exponent for exponent in range(_WORD_DIGITS + 1)], np.uint64)


def booleans(strip: Strip) -> texts.ArrowArray:
    """Decode ``t`` and ``f``.

    Raises:
        ValueRefused: Anything else.
    """
    values = np.empty(strip.row_count, np.bool_)
    row, reason = _booleans(strip.data, strip.start, strip.length, values)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return texts.fixed_width(pa.bool_(), np.packbits(values, bitorder="little"), strip.present())


def integers(strip: Strip, value_type: ValueType) -> texts.ArrowArray:
    """Decode integers of 32 or 64 bits.

    Raises:
        ValueRefused: A value is no integer, or outside the range of the type.
    """
    dtype = np.int32 if value_type.kind is LakeType.INT else np.int64
    bounds = np.iinfo(dtype)
    values = np.empty(strip.row_count, np.int64)
    row, reason = _integers(strip.data, strip.start, strip.length, bounds.min, bounds.max, values)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    arrow_type = pa.int32() if value_type.kind is LakeType.INT else pa.int64()
    return texts.fixed_width(arrow_type, values.astype(dtype, copy=False), strip.present())


def floats(strip: Strip, value_type: ValueType) -> texts.ArrowArray:
    """Decode floats, correctly rounded; a 32-bit float is rounded once, from the text.

    The grammar is checked here and the conversion left to Arrow (fast_float): a 32-bit float read by way of a
    64-bit one would be rounded twice.

    Raises:
        ValueRefused: A value is no number, or too large for the type.
    """
    row, reason, infinities = _float_grammar(strip.data, strip.start, strip.length)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    offsets, text, _ = texts.gather(strip)
    is_real = value_type.kind is LakeType.FLOAT or value_type.precision == REAL_BITS
    arrow_type = pa.float32() if is_real else pa.float64()
    array = texts.variable_width(pa.string(), strip, offsets, text).cast(arrow_type)
    # fast_float turns what is too large into an infinity.
    are_infinite = np.isinf(array.fill_null(0).to_numpy())
    if np.count_nonzero(are_infinite) != infinities:
        raise _first_too_large(strip, np.flatnonzero(are_infinite).tolist())
    return array.cast(pa.float64()) if value_type.kind is LakeType.DOUBLE else array


def _first_too_large(strip: Strip, rows: list[int]) -> DecodeError:
    for row in rows:
        value = strip.text(row) or b""
        if not value.endswith(b"Infinity"):
            return refusal(row, value, TOO_LARGE)
    return DecodeError("a column of floats has a value that is too large")


def decimals(strip: Strip, value_type: ValueType, *, null_if_not_finite: bool) -> texts.ArrowArray:
    """Decode numerics into decimals of the type's precision and scale, exactly.

    Args:
        strip: The texts, as ``numeric_out`` writes them: no exponent.
        value_type: A DECIMAL.
        null_if_not_finite: Take NaN, Infinity and -Infinity as NULL instead of refusing them.

    Raises:
        ValueRefused: A value has too many digits, or a fraction of more digits than the scale that are not zeros,
            or is no finite number.
    """
    words = np.empty((strip.row_count, 2), np.uint64)
    present = strip.present()
    row, reason = _decimals(
        strip.data, strip.start, strip.length, value_type.precision, value_type.scale, null_if_not_finite, words,
        present,
    )  # fmt: skip
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return texts.fixed_width(pa.decimal128(value_type.precision, value_type.scale), words, present)


@numba.njit(cache=True, nogil=True)
def _booleans(data: UInt8s, start: Int64s, length: Int32s, values: npt.NDArray[np.bool_]) -> tuple[int, int]:
    for row in range(len(length)):
        values[row] = False
        if length[row] < 0:
            continue
        if length[row] != 1:
            return row, MALFORMED
        byte = data[start[row]]
        if byte == 116:  # t
            values[row] = True
        elif byte != 102:  # f
            return row, MALFORMED
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _integers(
    data: UInt8s, start: Int64s, length: Int32s, lowest: int, highest: int, values: Int64s
) -> tuple[int, int]:
    for row in range(len(length)):
        values[row] = 0
        size = wide(length[row])
        if size < 0:
            continue
        at = start[row]
        end = at + size
        negative = size > 0 and data[at] == 45  # -
        if negative:
            at += 1
        if at == end:
            return row, MALFORMED
        # Nineteen digits cannot overflow 64 bits without sign; more are read for the grammar only.
        total = np.uint64(0)
        digits = end - at
        for step in range(at, end):
            digit = wide(data[step]) - 48
            if digit < 0 or digit > 9:
                return row, MALFORMED
            total = total * _TEN + np.uint64(digit)
        limit = np.uint64(highest)
        if negative:
            limit = np.uint64(-(lowest + 1)) + _ONE
        if digits > _WORD_DIGITS or total > limit:
            return row, TOO_LARGE
        values[row] = -np.int64(total) if negative else np.int64(total)
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _is_word(data: UInt8s, at: int, end: int, word: bytes) -> bool:
    """Return whether the bytes from `at` to `end` are `word`."""
    if end - at != len(word):
        return False
    for step in range(len(word)):  # noqa: SIM110 (numba compiles no generators)
        if data[at + step] != word[step]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _float_grammar(data: UInt8s, start: Int64s, length: Int32s) -> tuple[int, int, int]:
    """Check ``[-]digits[.digits][e[+-]digits]``, ``NaN``, ``[-]Infinity``; count the infinities."""
    infinities = 0
    for row in range(len(length)):
        size = wide(length[row])
        if size < 0:
            continue
        at = start[row]
        end = at + size
        if at < end and data[at] == 45:  # -
            at += 1
        elif _is_word(data, at, end, b"NaN"):
            continue
        if _is_word(data, at, end, b"Infinity"):
            infinities += 1
            continue
        digits = 0
        state = 0  # 0 before the point, 1 after it, 2 in the exponent
        while at < end:
            byte = data[at]
            if 48 <= byte <= 57:
                digits += 1
            elif digits == 0:
                return row, MALFORMED, infinities
            elif byte == 46 and state == 0:  # .
                state, digits = 1, 0
            elif byte == 101 and state < 2:  # e
                state, digits = 2, 0
                if at + 1 < end and (data[at + 1] == 43 or data[at + 1] == 45):  # + -
                    at += 1
            else:
                return row, MALFORMED, infinities
            at += 1
        if digits == 0:
            return row, MALFORMED, infinities
    return -1, FINE, infinities


@numba.njit(cache=True, nogil=True)
def _decimals(
    data: UInt8s,
    start: Int64s,
    length: Int32s,
    precision: int,
    scale: int,
    null_if_not_finite: bool,  # noqa: FBT001 (kernels take no keywords)
    words: UInt64s,
    present: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Write each value as 128 bits of two's complement, low word first (Arrow columnar format, "Decimal")."""
    for row in range(len(length)):
        words[row, 0] = 0
        words[row, 1] = 0
        size = wide(length[row])
        if size < 0:
            continue
        at = start[row]
        end = at + size
        negative = size > 0 and data[at] == 45  # -
        if (size == 3 and _is_word(data, at, end, b"NaN")) or _is_word(data, at + negative, end, b"Infinity"):
            if not null_if_not_finite:
                return row, NOT_FINITE
            present[row] = False
            continue
        if negative:
            at += 1
        # `first` takes the first 19 significant digits, `second` the rest of at most 38.
        first = np.uint64(0)
        second = np.uint64(0)
        count = 0
        fraction = -1
        has_excess = False
        for step in range(at, end):
            digit = wide(data[step]) - 48
            if digit < 0 or digit > 9:
                if digit != -2 or fraction >= 0 or step == at:  # a point, once, after a digit
                    return row, MALFORMED
                fraction = 0
                continue
            if fraction >= 0:
                fraction += 1
                if fraction > scale:
                    has_excess |= digit != 0
                    continue
            if count > 0 or digit > 0:
                count += 1
                if count <= _WORD_DIGITS:
                    first = first * _TEN + np.uint64(digit)
                else:
                    second = second * _TEN + np.uint64(digit)
        if at == end or fraction == 0:
            return row, MALFORMED
        if has_excess:
            return row, TOO_MUCH_SCALE
        if count > 0:
            for _ in range(scale - max(fraction, 0)):
                count += 1
                if count <= _WORD_DIGITS:
                    first *= _TEN
                else:
                    second *= _TEN
        if count > precision:
            return row, TOO_MANY_DIGITS
        low = first
        high = np.uint64(0)
        if count > _WORD_DIGITS:
            low, high = _times_plus(first, _POWERS[count - _WORD_DIGITS], second)
        if negative:
            low = ~low + _ONE
            high = ~high
            if low == np.uint64(0):
                high += _ONE
        words[row, 0] = low
        words[row, 1] = high
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _times_plus(factor: np.uint64, power: np.uint64, addend: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the low and the high word of factor * power + addend."""
    factor_low = factor & _MASK
    factor_high = factor >> _HALF
    power_low = power & _MASK
    power_high = power >> _HALF
    low = factor_low * power_low
    cross = factor_low * power_high
    other = factor_high * power_low
    middle = (low >> _HALF) + (cross & _MASK) + (other & _MASK)
    high = factor_high * power_high + (cross >> _HALF) + (other >> _HALF) + (middle >> _HALF)
    total = ((low & _MASK) | (middle << _HALF)) + addend
    if total < addend:
        high += _ONE
    return total, high
