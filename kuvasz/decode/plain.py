"""The plain twin of the column kernels: one value at a time, in ordinary Python.

Slow and obvious; the tests hold the kernels against it. What it returns equals what ``to_pylist`` gives for the
Arrow array the kernels build.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import re
import struct
import uuid
from typing import TYPE_CHECKING, TypeVar

from kuvasz.decode.refusals import (
    MALFORMED,
    NOT_FINITE,
    NOT_UTF8,
    OUT_OF_RANGE,
    SEVERAL_DIMENSIONS,
    TOO_LARGE,
    TOO_MANY_DIGITS,
    TOO_MUCH_SCALE,
    refusal,
)
from kuvasz.model import REAL_BITS, LakeType, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kuvasz.decode.refusals import ValueRefused
    from kuvasz.model import ValueType

_INTEGER = re.compile(rb"-?[0-9]+")
_FLOAT = re.compile(rb"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|NaN|-?Infinity")
_NUMERIC = re.compile(rb"-?[0-9]+(\.[0-9]+)?")
_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(rb"([0-9a-fA-F]{2})*")
_DATE = re.compile(rb"([0-9]{4,7})-([0-9]{2})-([0-9]{2})( BC)?")
_TIMESTAMP = re.compile(
    rb"([0-9]{4,7}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?"
    rb"(?:([+-])([0-9]{2})(?::([0-5][0-9]))?(?::([0-5][0-9]))?)?( BC)?"
)
_QUOTED = rb'"((?:[^"\\]|\\.)*)"'
_PAIR = re.compile(_QUOTED + rb"=>(?:" + _QUOTED + rb"|([Nn][Uu][Ll][Ll]))", re.DOTALL)
_BOUNDS = re.compile(rb"\[[-0-9:\[\]]*=")

Moment = TypeVar("Moment", bound=datetime.date)

_FIRST_DAY = datetime.date.min.toordinal()
_LAST_DAY = datetime.date.max.toordinal()


def value(text: bytes, value_type: ValueType, out_of_range: str = "error") -> object:
    """Return one value as Python has it, None where the policy says NULL.

    Raises:
        ValueRefused: As the kernels do, with row 0.
    """
    return _READERS[value_type.kind](text, value_type, out_of_range)


def _refuse(text: bytes, reason: int) -> ValueRefused:
    return refusal(0, text, reason)


def _match(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes]:
    match = pattern.fullmatch(text)
    if match is None:
        raise _refuse(text, MALFORMED)
    return match


def _boolean(text: bytes, _type: ValueType, _policy: str) -> bool:
    if text not in (b"t", b"f"):
        raise _refuse(text, MALFORMED)
    return text == b"t"


def _integer(text: bytes, value_type: ValueType, _policy: str) -> int:
    _match(_INTEGER, text)
    number = int(text)
    bits = 31 if value_type.kind is LakeType.INT else 63
    if len(text.lstrip(b"-")) > 19 or not -(1 << bits) <= number < 1 << bits:
        raise _refuse(text, TOO_LARGE)
    return number


def _float(text: bytes, value_type: ValueType, _policy: str) -> float:
    _match(_FLOAT, text)
    number = float(text)
    is_real = value_type.kind is LakeType.FLOAT or value_type.precision == REAL_BITS
    if is_real and math.isfinite(number) and number:  # 1e-999999999999 is 0, and would be a fraction of that size
        number = _nearest_float32(text)
    if math.isinf(number) and not text.endswith(b"Infinity"):
        raise _refuse(text, TOO_LARGE)
    return number


def _nearest_float32(text: bytes) -> float:
    """Return the 32-bit float nearest to the text, ties to even, by exact arithmetic."""
    exact = fractions.Fraction(text.decode())
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", float(text)))
    except OverflowError:
        bits = 0x7F800000 | (0x80000000 if text.startswith(b"-") else 0)
    # Rounding twice misses by one unit at most; what lies beyond the largest float counts as 2**128.
    candidates = [bits + step for step in (-1, 0, 1) if (bits + step) & 0x7FFFFFFF <= 0x7F800000 and bits + step >= 0]
    distance = {candidate: abs(_float32_as_fraction(candidate) - exact) for candidate in candidates}
    best = min(candidates, key=lambda candidate: (distance[candidate], candidate & 1))
    return float(struct.unpack("<f", struct.pack("<I", best))[0])


def _float32_as_fraction(bits: int) -> fractions.Fraction:
    if bits & 0x7FFFFFFF == 0x7F800000:
        return fractions.Fraction(-(2**128) if bits >> 31 else 2**128)
    return fractions.Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def _decimal(text: bytes, value_type: ValueType, policy: str) -> decimal.Decimal | None:
    if text in (b"NaN", b"Infinity", b"-Infinity"):
        if policy == "null":
            return None
        raise _refuse(text, NOT_FINITE)
    _match(_NUMERIC, text)
    exact = fractions.Fraction(text.decode())
    unscaled = exact * 10**value_type.scale
    if unscaled.denominator != 1:
        raise _refuse(text, TOO_MUCH_SCALE)
    if abs(unscaled) >= 10**value_type.precision:
        raise _refuse(text, TOO_MANY_DIGITS)
    return decimal.Decimal(unscaled.numerator).scaleb(-value_type.scale, decimal.Context(prec=38))


def _string(text: bytes, _type: ValueType, _policy: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _refuse(text, NOT_UTF8) from error


def _binary(text: bytes, value_type: ValueType, _policy: str) -> bytes:
    digits = text
    if value_type.wire is Wire.HEX:
        if not text.startswith(b"\\x"):
            raise _refuse(text, MALFORMED)
        digits = text[2:]
    if _HEX.fullmatch(digits) is None:
        raise _refuse(text, MALFORMED)
    return bytes.fromhex(digits.decode())


def _uuid(text: bytes, _type: ValueType, _policy: str) -> bytes:
    return uuid.UUID(_match(_UUID, text)[0].decode()).bytes


def _ordinal(text: bytes, match: re.Match[bytes], *, is_bc: bool) -> int:
    """Return the day's number, 1 being 0001-01-01, of a date in any year."""
    year, month, day = (int(part) for part in match.group(1, 2, 3))
    if year == 0:
        raise _refuse(text, MALFORMED)
    year = 1 - year if is_bc else year
    # The calendar repeats after 400 years of 146097 days: count from a year Python has.
    cycles, within = divmod(year - 2000, 400)
    try:
        return datetime.date(2000 + within, month, day).toordinal() + cycles * 146097
    except ValueError as error:
        raise _refuse(text, MALFORMED) from error


def _date(text: bytes, _type: ValueType, policy: str) -> datetime.date | None:
    if text in (b"infinity", b"-infinity"):
        day = _LAST_DAY + 1 if text == b"infinity" else _FIRST_DAY - 1
    else:
        match = _match(_DATE, text)
        day = _ordinal(text, match, is_bc=match[4] is not None)
    if _FIRST_DAY <= day <= _LAST_DAY:
        return datetime.date.fromordinal(day)
    return _outside(text, policy, datetime.date.min if day < _FIRST_DAY else datetime.date.max)


def _timestamp(text: bytes, value_type: ValueType, policy: str) -> datetime.datetime | None:
    zone = datetime.UTC if value_type.wire is Wire.TIMESTAMPTZ else None
    day, micros = _instant(text, has_zone=zone is not None)
    day += micros // 86_400_000_000
    if not _FIRST_DAY <= day <= _LAST_DAY:
        edge = (datetime.date.min, datetime.time.min) if day < _FIRST_DAY else (datetime.date.max, datetime.time.max)
        return _outside(text, policy, datetime.datetime.combine(*edge, tzinfo=zone))
    midnight = datetime.datetime.combine(datetime.date.fromordinal(day), datetime.time.min, tzinfo=zone)
    return midnight + datetime.timedelta(microseconds=micros % 86_400_000_000)


def _instant(text: bytes, *, has_zone: bool) -> tuple[int, int]:
    """Return the day's number and the microseconds since it began, which an offset may carry beyond it."""
    if text in (b"infinity", b"-infinity"):
        return (_LAST_DAY + 1 if text == b"infinity" else _FIRST_DAY - 1), 0
    match = _match(_TIMESTAMP, text)
    if (match[6] is not None) != has_zone:
        raise _refuse(text, MALFORMED)
    day = _ordinal(text, _match(_DATE, match[1]), is_bc=match[10] is not None)
    hour, minute, second = (int(part) for part in match.group(2, 3, 4))
    if hour > 23:
        raise _refuse(text, MALFORMED)
    seconds = (hour * 60 + minute) * 60 + second
    offset = sum(int(match[group] or 0) * unit for group, unit in ((7, 3600), (8, 60), (9, 1)))
    seconds += offset if match[6] == b"-" else -offset
    return day, seconds * 1_000_000 + int((match[5] or b"0").ljust(6, b"0"))


def _outside(text: bytes, policy: str, limit: Moment) -> Moment | None:
    if policy == "error":
        raise _refuse(text, OUT_OF_RANGE)
    return None if policy == "null" else limit


def _unescaped(text: bytes) -> bytes:
    return re.sub(rb"\\(.)", rb"\1", text, flags=re.DOTALL)


def _list(text: bytes, value_type: ValueType, policy: str) -> list[object]:
    if value_type.element is None:
        raise _refuse(text, MALFORMED)
    is_array = value_type.wire is Wire.ARRAY
    body = text
    if is_array and text.startswith(b"["):
        bounds = _BOUNDS.match(text)
        body = text[bounds.end() :] if bounds else b""
    braces = (b"{", b"}") if is_array else (b"[", b"]")
    if len(body) < 2 or not body.startswith(braces[0]) or not body.endswith(braces[1]):
        raise _refuse(text, MALFORMED)
    taken = _elements(text, body[1:-1], value_type.delimiter.encode(), is_array=is_array)
    return [None if element is None else value(element, value_type.element, policy) for element in taken]


def _elements(text: bytes, body: bytes, delimiter: bytes, *, is_array: bool) -> list[bytes | None]:
    """Take the text between the braces apart."""
    taken: list[bytes | None] = []
    while body or taken:
        quoted = re.match(_QUOTED, body, re.DOTALL) if is_array else None
        if quoted is not None:
            taken.append(_unescaped(quoted[1]))
            body = body[quoted.end() :]
        else:
            bare = body.split(delimiter, 1)[0]
            if is_array and b"{" in bare and not re.search(rb'["\\}]', bare[: bare.index(b"{")]):
                raise _refuse(text, SEVERAL_DIMENSIONS)
            if not bare or re.search(rb'["\\}]', bare):
                raise _refuse(text, MALFORMED)
            taken.append(None if is_array and bare.lower() == b"null" else bare)
            body = body[len(bare) :]
        if not body:
            break
        if not body.startswith(delimiter):
            raise _refuse(text, MALFORMED)
        body = body[1:]
    return taken


def _map(text: bytes, _type: ValueType, _policy: str) -> list[tuple[str, str | None]]:
    taken: list[tuple[bytes, bytes | None]] = []
    at = 0
    while text:
        pair = _PAIR.match(text, at)
        if pair is None:
            raise _refuse(text, MALFORMED)
        taken.append((_unescaped(pair[1]), None if pair[2] is None else _unescaped(pair[2])))
        at = pair.end()
        if at == len(text):
            break
        if text[at : at + 2] != b", ":
            raise _refuse(text, MALFORMED)
        at += 2
    return [
        (_string(key, _type, _policy), None if item is None else _string(item, _type, _policy)) for key, item in taken
    ]


_READERS: Mapping[LakeType, Callable[[bytes, ValueType, str], object]] = {
    LakeType.BOOLEAN: _boolean,
    LakeType.INT: _integer,
    LakeType.LONG: _integer,
    LakeType.FLOAT: _float,
    LakeType.DOUBLE: _float,
    LakeType.DECIMAL: _decimal,
    LakeType.STRING: _string,
    LakeType.BINARY: _binary,
    LakeType.DATE: _date,
    LakeType.TIMESTAMP: _timestamp,
    LakeType.TIMESTAMPTZ: _timestamp,
    LakeType.UUID: _uuid,
    LakeType.LIST: _list,
    LakeType.MAP: _map,
}
