"""Dates and timestamps in ISO form (``datestyle=ISO``; manual, section 8.5.2), into days and microseconds.

PostgreSQL's calendar runs from 4713 BC to AD 5874897 (dates) or 294276 (timestamps) and has infinities. Iceberg's
numbers hold nearly as much, but Spark and Python show the years 0001 to 9999 only: that is the range here, in UTC,
and the caller says what becomes of a value outside it.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

import numba
import numpy as np
import pyarrow as pa

from kuvasz.decode import texts
from kuvasz.decode.cells import wide
from kuvasz.decode.refusals import FINE, MALFORMED, OUT_OF_RANGE, refusal
from kuvasz.errors import InternalError
from kuvasz.model import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kuvasz.decode.cells import Strip
    from kuvasz.model import Int32s, Int64s, UInt8s, ValueType

_EPOCH: Final = datetime.date(1970, 1, 1)
#: Days since 1970-01-01 of the first and the last day of the range.
FIRST_DAY: Final = (datetime.date.min - _EPOCH).days
LAST_DAY: Final = (datetime.date.max - _EPOCH).days

_DAY_US: Final = 86_400_000_000
#: Microseconds since 1970-01-01 00:00:00 of the first and the last instant of the range.
FIRST_US: Final = FIRST_DAY * _DAY_US
LAST_US: Final = (LAST_DAY + 1) * _DAY_US - 1

_ERROR: Final = 0
_NULL: Final = 1
_CLAMP: Final = 2
_POLICIES: Mapping[str, int] = {"error": _ERROR, "null": _NULL, "clamp": _CLAMP}

_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_INFINITY = b"infinity"
#: More years than this would overflow 64 bits of microseconds; PostgreSQL's own limit has seven digits.
_YEAR_DIGITS: Final = 7


def dates(strip: Strip, *, out_of_range: str) -> texts.ArrowArray:
    """Decode ``YYYY-MM-DD[ BC]``, ``infinity``, ``-infinity`` into date32.

    Args:
        strip: The texts.
        out_of_range: ``error``, ``null`` or ``clamp`` (to 0001-01-01 or 9999-12-31).

    Raises:
        ValueRefused: A value is no date, or outside the years 0001 to 9999 under ``error``.
    """
    values = np.empty(strip.row_count, np.int32)
    present = strip.present()
    row, reason = _dates(strip.data, strip.start, strip.length, _policy(out_of_range), values, present)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return texts.fixed_width(pa.date32(), values, present)


def timestamps(strip: Strip, value_type: ValueType, *, out_of_range: str) -> texts.ArrowArray:
    """Decode ``YYYY-MM-DD HH:MM:SS[.ffffff][±HH[:MM[:SS]]][ BC]`` and the infinities into microseconds.

    Args:
        strip: The texts.
        value_type: TIMESTAMP, without an offset, or TIMESTAMPTZ, with one.
        out_of_range: ``error``, ``null`` or ``clamp`` (to 0001-01-01 00:00:00 or 9999-12-31 23:59:59.999999 UTC).

    Raises:
        ValueRefused: A value is no timestamp, or outside the years 0001 to 9999 in UTC under ``error``.
    """
    has_zone = value_type.wire is Wire.TIMESTAMPTZ
    values = np.empty(strip.row_count, np.int64)
    present = strip.present()
    row, reason = _timestamps(
        strip.data, strip.start, strip.length, has_zone, _policy(out_of_range), values, present
    )  # fmt: skip
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return texts.fixed_width(pa.timestamp("us", tz="UTC" if has_zone else None), values, present)


def _policy(out_of_range: str) -> int:
    if out_of_range not in _POLICIES:
        message = f"out_of_range is {out_of_range!r}, not one of {', '.join(_POLICIES)}"
        raise InternalError(message)
    return _POLICIES[out_of_range]


@numba.njit(cache=True, nogil=True)
def _number(data: UInt8s, at: int, end: int, digits: int) -> int:
    """Return the number of exactly `digits` digits at `at`, or -1."""
    if at + digits > end:
        return -1
    total = 0
    for step in range(at, at + digits):
        digit = wide(data[step]) - 48
        if digit < 0 or digit > 9:
            return -1
        total = total * 10 + digit
    return total


@numba.njit(cache=True, nogil=True)
def _infinity(data: UInt8s, at: int, end: int) -> int:
    """Return 1 for infinity, -1 for -infinity, else 0."""
    sign = 1
    if at < end and data[at] == 45:  # -
        sign = -1
        at += 1
    if end - at != len(_INFINITY):
        return 0
    for step in range(len(_INFINITY)):
        if data[at + step] != _INFINITY[step]:
            return 0
    return sign


@numba.njit(cache=True, nogil=True)
def _calendar(data: UInt8s, at: int, end: int) -> tuple[int, int, int, int]:
    """Return year, month, day of ``YYYY-MM-DD`` and the place behind it; -1 for the place if malformed."""
    digits = 4
    while digits < _YEAR_DIGITS and at + digits < end and data[at + digits] != 45:  # -
        digits += 1
    year = _number(data, at, end, digits)
    at += digits
    if year < 1 or end - at < 6 or data[at] != 45 or data[at + 3] != 45:
        return 0, 0, 0, -1
    month = _number(data, at + 1, end, 2)
    day = _number(data, at + 4, end, 2)
    if month < 1 or month > 12 or day < 1 or day > 31:
        return 0, 0, 0, -1
    return year, month, day, at + 6


@numba.njit(cache=True, nogil=True)
def _days(year: int, month: int, day: int) -> tuple[bool, int]:
    """Return whether the day exists, and its number since 1970-01-01, in the proleptic Gregorian calendar.

    Years are astronomical: 0 is 1 BC. The sum is days_from_civil of Howard Hinnant, "chrono-Compatible Low-Level
    Date Algorithms".
    """
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = _MONTH_DAYS[month] + (1 if leap and month == 2 else 0)
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return day <= last, era * 146097 + day_of_era - 719468


@numba.njit(cache=True, nogil=True)
def _is_bc(data: UInt8s, at: int, end: int) -> bool:
    return end - at == 3 and data[at] == 32 and data[at + 1] == 66 and data[at + 2] == 67


@numba.njit(cache=True, nogil=True)
def _dates(
    data: UInt8s, start: Int64s, length: Int32s, policy: int, values: Int32s, present: npt.NDArray[np.bool_]
) -> tuple[int, int]:
    for row in range(len(length)):
        values[row] = 0
        if length[row] < 0:
            continue
        at = start[row]
        end = at + length[row]
        sign = _infinity(data, at, end)
        if sign != 0:
            days = sign * (1 << 40)
        else:
            year, month, day, at = _calendar(data, at, end)
            if at < 0:
                return row, MALFORMED
            if at != end:
                if not _is_bc(data, at, end):
                    return row, MALFORMED
                year = 1 - year
            exists, days = _days(year, month, day)
            if not exists:
                return row, MALFORMED
        if days < FIRST_DAY or days > LAST_DAY:
            if policy == _ERROR:
                return row, OUT_OF_RANGE
            if policy == _NULL:
                present[row] = False
                continue
            days = FIRST_DAY if days < 0 else LAST_DAY
        values[row] = days
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _clock(data: UInt8s, at: int, end: int) -> tuple[int, int]:
    """Return the microseconds of `` HH:MM:SS[.f]`` and the place behind it; -1 for the place if malformed."""
    if end - at < 9 or data[at] != 32 or data[at + 3] != 58 or data[at + 6] != 58:
        return 0, -1
    hour = _number(data, at + 1, end, 2)
    minute = _number(data, at + 4, end, 2)
    second = _number(data, at + 7, end, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, -1
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000
    at += 9
    if at < end and data[at] == 46:  # .
        at += 1
        unit = 100_000
        first = at
        while at < end and 48 <= data[at] <= 57:
            if unit == 0:
                return 0, -1
            micros += (wide(data[at]) - 48) * unit
            unit //= 10
            at += 1
        if at == first:
            return 0, -1
    return micros, at


@numba.njit(cache=True, nogil=True)
def _offset(data: UInt8s, at: int, end: int) -> tuple[int, int]:
    """Return the seconds of ``±HH[:MM[:SS]]`` and the place behind it; -1 for the place if malformed."""
    if at >= end or (data[at] != 43 and data[at] != 45):  # + -
        return 0, -1
    negative = data[at] == 45
    hours = _number(data, at + 1, end, 2)
    if hours < 0:
        return 0, -1
    seconds = hours * 3600
    at += 3
    for unit in (60, 1):
        if at < end and data[at] == 58:  # :
            part = _number(data, at + 1, end, 2)
            if part < 0 or part > 59:
                return 0, -1
            seconds += part * unit
            at += 3
        else:
            break
    return (-seconds if negative else seconds), at


@numba.njit(cache=True, nogil=True)
def _timestamps(
    data: UInt8s,
    start: Int64s,
    length: Int32s,
    has_zone: bool,  # noqa: FBT001 (kernels take no keywords)
    policy: int,
    values: Int64s,
    present: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    for row in range(len(length)):
        values[row] = 0
        if length[row] < 0:
            continue
        at = start[row]
        end = at + length[row]
        sign = _infinity(data, at, end)
        if sign != 0:
            instant = sign * (LAST_US + 1)
        else:
            year, month, day, at = _calendar(data, at, end)
            if at < 0:
                return row, MALFORMED
            micros, at = _clock(data, at, end)
            if at < 0:
                return row, MALFORMED
            seconds = 0
            if has_zone:
                seconds, at = _offset(data, at, end)
                if at < 0:
                    return row, MALFORMED
            if at != end:
                if not _is_bc(data, at, end):
                    return row, MALFORMED
                year = 1 - year
            exists, days = _days(year, month, day)
            if not exists:
                return row, MALFORMED
            # Seven digits of years are 3e20 microseconds: too many, so days are cut before they are multiplied.
            # An offset has at most 99 hours, which leaves the days at the edge to the exact test below.
            days = min(max(days, FIRST_DAY - 9), LAST_DAY + 9)
            instant = days * _DAY_US + micros - seconds * 1_000_000
        if instant < FIRST_US or instant > LAST_US:
            if policy == _ERROR:
                return row, OUT_OF_RANGE
            if policy == _NULL:
                present[row] = False
                continue
            instant = FIRST_US if instant < 0 else LAST_US
        values[row] = instant
    return -1, FINE
