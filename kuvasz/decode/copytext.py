r"""COPY's text format into cells.

Enters: complete lines as COPY TO STDOUT sends them. Leaves: `Cells` over the plain bytes of the values. Format:
manual, COPY, "Text Format": fields between tabs, rows between newlines, ``\N`` for NULL, backslash escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from kuvasz.decode.cells import NULL, Cells, byte_array, empty_cells, wide
from kuvasz.decode.texts import HEX_VALUES
from kuvasz.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.model import Int32s, Int64s, UInt8s

_TAB: Final = 9
_NEWLINE: Final = 10
_BACKSLASH: Final = 92

#: A field's bytes that are looked at one by one before its words are.
_NEAR_BYTES: Final = 48
_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_TABS = _ONES * np.uint64(_TAB)
_NEWLINES = _ONES * np.uint64(_NEWLINE)
_BACKSLASHES = _ONES * np.uint64(_BACKSLASH)

_FINE: Final = 0
_TRUNCATED: Final = 1
_TOO_FEW: Final = 2
_TOO_MANY: Final = 3
_TOO_LONG: Final = 4

_SAID: Mapping[int, str] = {
    _TRUNCATED: "has no newline at its end",
    _TOO_FEW: "has too few fields",
    _TOO_MANY: "has too many fields",
    _TOO_LONG: "has a field of 2 GiB or more",
}


def _escapes() -> UInt8s:
    values = np.arange(256, dtype=np.uint8)
    for letter, byte in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
        values[letter] = byte
    return values


#: Byte behind a backslash -> the byte meant; octal and hexadecimal escapes apart.
_ESCAPES = _escapes()


def split_copy(data: bytes | bytearray | memoryview | UInt8s, column_count: int) -> Cells:
    """Take lines of COPY apart and their escapes out.

    Args:
        data: Whole lines; it is not changed. Cells refer to it, or to a copy of it if there are backslashes in it or
            it is read-only.
        column_count: Fields of each line, 1 or more.

    Raises:
        DecodeError: A line has another number of fields, or the last one no end.
    """
    if column_count < 1:
        raise DecodeError(
            "a copy without columns has no rows to read",
            hint="a table without columns cannot be replicated: take it out of the map",
        )
    array = byte_array(data)
    row_limit, escapes = _survey(array)
    # A line has at least a byte for each field, its tab or newline: keeps wrong bytes from asking for much memory.
    if row_limit * column_count > len(array):
        message = f"{len(array)} bytes of copy are too few for {row_limit} lines of {column_count} fields"
        raise DecodeError(message, hint="this is a defect of kuvasz or of the server: please report it")
    # Unescaped text is never longer: it is written over the escaped one, in a copy of the bytes.
    own = np.frombuffer(data, np.uint8)
    if escapes or not own.flags.writeable:
        own = array.copy()
    cells = empty_cells(column_count, row_limit, byte_array(own))
    rows, reason = _split(own, cells.start, cells.length)
    if reason != _FINE:
        message = f"line {rows} of a copy of {column_count} columns {_SAID[reason]}"
        raise DecodeError(message, hint="this is a defect of kuvasz or of the server: please report it")
    if rows == row_limit:
        return cells
    # Newlines behind a backslash are part of a value.
    return Cells(data=cells.data, start=cells.start[:, :rows].copy(), length=cells.length[:, :rows].copy())


@numba.njit(cache=True, nogil=True)
def _survey(data: UInt8s) -> tuple[int, int]:
    """Return how many newlines and backslashes there are."""
    newlines = 0
    backslashes = 0
    for byte in data:
        newlines += byte == _NEWLINE
        backslashes += byte == _BACKSLASH
    return newlines, backslashes


@numba.njit(cache=True, nogil=True)
def _split(data: UInt8s, start: Int64s, length: Int32s) -> tuple[int, int]:
    """Return the number of rows, or the row that is wrong, and a reason."""
    columns, limit = length.shape
    end = len(data)
    words = data[: end & ~7].view(np.uint64)
    at = 0
    row = 0
    while at < end:
        if row == limit:
            return row, _TRUNCATED
        for column in range(columns):
            begin = at
            # Long texts are passed eight bytes at a time: half the time for 1000 bytes. Short ones took a third
            # longer by it, so the first bytes go one by one (benchmarks/micro_decode.py, 2 cores, November 2026).
            near = min(end, (begin + _NEAR_BYTES) & ~7)
            while at < near and not _is_special(data[at]):
                at += 1
            if at == near:
                while at + 8 <= end and not _has_special(words[at >> 3]):
                    at += 8
                while at < end and not _is_special(data[at]):
                    at += 1
            size = at - begin
            if at < end and data[at] == _BACKSLASH:
                if size == 0 and at + 2 < end and data[at + 1] == 78 and _is_mark(data[at + 2]):  # N
                    size = NULL
                    at += 2
                else:
                    size, at = _unescape(data, at, end)
                    size -= begin
            if at >= end:
                return row, _TRUNCATED
            if size > 0x7FFFFFFF:
                return row, _TOO_LONG
            is_last = column == columns - 1
            if is_last and data[at] == _TAB:
                return row, _TOO_MANY
            if not is_last and data[at] == _NEWLINE:
                return row, _TOO_FEW
            start[column, row] = begin if size >= 0 else 0
            length[column, row] = size
            at += 1
        row += 1
    return row, _FINE


@numba.njit(cache=True, nogil=True)
def _has_special(word: np.uint64) -> bool:
    """Return whether one of the eight bytes is a tab, a newline or a backslash.

    A byte that is zero after the exclusive or borrows into its top bit (Bit Twiddling Hacks, "Determine if a word
    has a zero byte").
    """
    tab = word ^ _TABS
    newline = word ^ _NEWLINES
    backslash = word ^ _BACKSLASHES
    found = ((tab - _ONES) & ~tab) | ((newline - _ONES) & ~newline) | ((backslash - _ONES) & ~backslash)
    return bool(found & _TOPS)


@numba.njit(cache=True, nogil=True)
def _is_special(byte: int) -> bool:
    return byte in (_TAB, _NEWLINE, _BACKSLASH)


@numba.njit(cache=True, nogil=True)
def _is_mark(byte: int) -> bool:
    return byte in (_TAB, _NEWLINE)


@numba.njit(cache=True, nogil=True)
def _unescape(data: UInt8s, at: int, end: int) -> tuple[int, int]:
    """Take the escapes out of the field from `at` on; return where its text ends now, and where the field did."""
    write = at
    while at < end:
        byte = data[at]
        if byte in (_TAB, _NEWLINE):
            break
        at += 1
        if byte == _BACKSLASH:
            if at == end:
                break
            byte = data[at]
            at += 1
            if 48 <= byte <= 55:  # octal: up to three digits
                value = wide(byte) - 48
                for _ in range(2):
                    if at < end and 48 <= data[at] <= 55:
                        value = value * 8 + wide(data[at]) - 48
                        at += 1
                byte = np.uint8(value & 255)
            elif byte == 120 and at < end and HEX_VALUES[data[at]] < 16:  # x: one or two digits
                byte = HEX_VALUES[data[at]]
                at += 1
                if at < end and HEX_VALUES[data[at]] < 16:
                    byte = np.uint8((byte << 4) | HEX_VALUES[data[at]])
                    at += 1
            else:
                byte = _ESCAPES[byte]
        data[write] = byte
        write += 1
    return write, at


__all__ = ["Cells", "split_copy"]
