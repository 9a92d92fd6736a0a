"""Arrays, vectors and hstores: one cell taken apart into the cells of its elements.

The elements are then decoded by the same column kernels as any other value. Syntax: manual, sections 8.15.6 "Array
Input and Output Syntax" and F.17 "hstore"; pgvector writes ``[1,2.5]``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from kuvasz.decode import texts
from kuvasz.decode.cells import NULL, Strip, byte_array, wide
from kuvasz.decode.refusals import FINE, MALFORMED, SEVERAL_DIMENSIONS, refusal
from kuvasz.model import Wire

if TYPE_CHECKING:
    from kuvasz.model import Int32s, Int64s, UInt8s, ValueType

_QUOTE: Final = 34
_BACKSLASH: Final = 92
_OPEN: Final = 123  # {
_CLOSE: Final = 125  # }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """The elements of n lists, one after another; of maps, the `keys` beside them."""

    offsets: Int32s  #: n + 1: list i has the elements offsets[i] to offsets[i + 1]
    values: Strip
    keys: Strip | None = None

    def list_of(self, element: int) -> int:
        """Return the number of the list an element stands in."""
        return int(np.searchsorted(self.offsets, element, side="right")) - 1


def elements(strip: Strip, value_type: ValueType) -> Elements:
    """Take arrays (``{1,NULL,"a b"}``) or vectors (``[1,2]``) apart.

    A prefix of bounds, ``[0:2]={…}``, is passed over: a list has no lower bound.

    Raises:
        ValueRefused: A value is not of that form, or an array of several dimensions.
    """
    delimiter = ord(value_type.delimiter)
    opening, closing = (ord("["), ord("]")) if value_type.wire is Wire.VECTOR else (_OPEN, _CLOSE)
    begins, text = _gathered(strip)
    # An array of k elements has k - 1 delimiters.
    capacity = int(np.count_nonzero(text == delimiter)) + strip.row_count
    offsets = np.empty(strip.row_count + 1, np.int32)
    start, length = np.empty(capacity, np.int64), np.empty(capacity, np.int32)
    row, reason = _elements(text, begins, strip.length, (opening, closing, delimiter), offsets, start, length)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return Elements(offsets=offsets, values=_strip(text, start, length, int(offsets[-1])))


def pairs(strip: Strip) -> Elements:
    """Take hstores (``"a"=>"1", "b"=>NULL``) apart.

    Raises:
        ValueRefused: A value is not of that form.
    """
    begins, text = _gathered(strip)
    capacity = int(np.count_nonzero(text == ord(">")))
    offsets = np.empty(strip.row_count + 1, np.int32)
    places = np.empty((2, capacity), np.int64)
    lengths = np.empty((2, capacity), np.int32)
    row, reason = _pairs(text, begins, strip.length, offsets, places, lengths)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    keys, values = (_strip(text, places[side], lengths[side], int(offsets[-1])) for side in (0, 1))
    return Elements(offsets=offsets, keys=keys, values=values)


def _gathered(strip: Strip) -> tuple[Int32s, UInt8s]:
    """Return the texts copied together: backslash escapes are taken out in place, so the bytes must be our own."""
    begins, text, _ = texts.gather(strip)
    return begins, text


def _strip(text: UInt8s, start: Int64s, length: Int32s, count: int) -> Strip:
    return Strip(data=byte_array(text), start=start[:count], length=length[:count])


@numba.njit(cache=True, nogil=True)
def _quoted(text: UInt8s, at: int, stop: int) -> tuple[int, int]:
    """Take the backslashes out of the quoted text whose first byte behind the quote is at `at`.

    Returns:
        Where it ends now, and the place behind the closing quote; -1 for the place if there is none.
    """
    write = at
    while at < stop:
        byte = text[at]
        if byte == _QUOTE:
            return write, at + 1
        if byte == _BACKSLASH:
            at += 1
            if at == stop:
                break
            byte = text[at]
        text[write] = byte
        write += 1
        at += 1
    return write, -1


@numba.njit(cache=True, nogil=True)
def _is_null(text: UInt8s, at: int, end: int) -> bool:
    # | 32: in either case.
    return (
        end - at == 4
        and text[at] | 32 == 110
        and text[at + 1] | 32 == 117
        and text[at + 2] | 32 == 108
        and text[at + 3] | 32 == 108
    )


@numba.njit(cache=True, nogil=True)
def _behind_bounds(text: UInt8s, at: int, stop: int) -> int:
    """Return the place behind ``[1:2][0:3]=``, or `stop` if it has no end."""
    while at < stop and text[at] != 61:  # =
        byte = text[at]
        if not (48 <= byte <= 58 or byte == 45 or byte == 91 or byte == 93):  # digits : - [ ]
            return stop
        at += 1
    return min(at + 1, stop)


@numba.njit(cache=True, nogil=True)
def _elements(
    text: UInt8s,
    begins: Int32s,
    present: Int32s,
    marks: tuple[int, int, int],
    offsets: Int32s,
    start: Int64s,
    length: Int32s,
) -> tuple[int, int]:
    opening, closing, delimiter = marks
    is_array = opening == _OPEN
    count = 0
    for row in range(len(present)):
        offsets[row] = count
        if present[row] < 0:
            continue
        at = wide(begins[row])
        stop = wide(begins[row + 1])
        if is_array and at < stop and text[at] == 91:  # [
            at = _behind_bounds(text, at, stop)
        if stop - at < 2 or text[at] != opening or text[stop - 1] != closing:
            return row, MALFORMED
        at += 1
        stop -= 1
        if at == stop:
            continue
        while True:
            if at < stop and is_array and text[at] == _QUOTE:
                start[count] = at + 1
                end, at = _quoted(text, at + 1, stop)
                if at < 0:
                    return row, MALFORMED
                length[count] = end - start[count]
            else:
                first = at
                while at < stop and text[at] != delimiter:
                    byte = text[at]
                    if is_array and byte == _OPEN:
                        return row, SEVERAL_DIMENSIONS
                    if byte in (_QUOTE, _BACKSLASH, _CLOSE):
                        return row, MALFORMED
                    at += 1
                if at == first:
                    return row, MALFORMED
                start[count] = first
                length[count] = at - first
                if is_array and _is_null(text, first, at):
                    length[count] = NULL
            count += 1
            if at == stop:
                break
            if text[at] != delimiter:
                return row, MALFORMED
            at += 1
    offsets[len(present)] = count
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _pairs(
    text: UInt8s, begins: Int32s, present: Int32s, offsets: Int32s, places: Int64s, lengths: Int32s
) -> tuple[int, int]:
    count = 0
    for row in range(len(present)):
        offsets[row] = count
        at = wide(begins[row])
        stop = wide(begins[row + 1])
        if present[row] < 0 or at == stop:
            continue
        while True:
            if at >= stop or text[at] != _QUOTE:
                return row, MALFORMED
            first = at + 1
            end, at = _quoted(text, first, stop)
            if at < 0 or stop - at < 3 or text[at] != 61 or text[at + 1] != 62:  # =>
                return row, MALFORMED
            places[0, count] = first
            lengths[0, count] = end - first
            at += 2
            if text[at] == _QUOTE:
                first = at + 1
                end, at = _quoted(text, first, stop)
                if at < 0:
                    return row, MALFORMED
                places[1, count] = first
                lengths[1, count] = end - first
            elif at + 4 <= stop and _is_null(text, at, at + 4):
                places[1, count] = at
                lengths[1, count] = NULL
                at += 4
            else:
                return row, MALFORMED
            count += 1
            if at == stop:
                break
            if stop - at < 2 or text[at] != 44 or text[at + 1] != 32:  # comma, space
                return row, MALFORMED
            at += 2
    offsets[len(present)] = count
    return -1, FINE
