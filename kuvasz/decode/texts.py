"""Texts, bytes and UUIDs: gathering cells into Arrow's variable-width and fixed-width buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numba
import numpy as np
import pyarrow as pa

from kuvasz.decode.cells import wide
from kuvasz.decode.refusals import FINE, MALFORMED, NOT_UTF8, refusal
from kuvasz.errors import DecodeError
from kuvasz.model import Wire

if TYPE_CHECKING:
    import numpy.typing as npt

    from kuvasz.decode.cells import Strip
    from kuvasz.model import Int32s, Int64s, UInt8s, ValueType

#: pyarrow is generic in its stubs and not at run time.
ArrowArray: TypeAlias = "pa.Array[Any]"

_NO_DIGIT: Final = 255


def _hex_values() -> UInt8s:
    values = np.full(256, _NO_DIGIT, np.uint8)
    for digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
        values[np.frombuffer(digits, np.uint8)] = np.arange(16)
    return values


#: Byte -> value of the hexadecimal digit it is.
HEX_VALUES = _hex_values()


def validity(present: npt.NDArray[np.bool_]) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap (none if all are present) and the number of NULLs."""
    nulls = len(present) - int(np.count_nonzero(present))
    return (arrow_buffer(np.packbits(present, bitorder="little")), nulls) if nulls else (None, 0)


def arrow_buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    """Return an Arrow buffer over the array's memory, without a copy."""
    return pa.py_buffer(values)


def fixed_width(arrow_type: pa.DataType, values: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> ArrowArray:
    """Return an Arrow array over a buffer of one value a row."""
    bitmap, nulls = validity(present)
    return pa.Array.from_buffers(arrow_type, len(present), [bitmap, arrow_buffer(values)], nulls)


def strings(strip: Strip) -> ArrowArray:
    """Gather a strip into a string array.

    Raises:
        ValueRefused: A value is not UTF-8. PostgreSQL promises it but for databases of encoding SQL_ASCII (manual,
            section 24.3.1), and a Parquet file with other bytes in a string column cannot be read.
        DecodeError: More text than one Arrow array holds.
    """
    offsets, text, has_high_bytes = gather(strip)
    array = variable_width(pa.string(), strip, offsets, text)
    if has_high_bytes:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _first_not_utf8(strip) from error
    return array


def variable_width(arrow_type: pa.DataType, strip: Strip, offsets: Int32s, content: UInt8s) -> ArrowArray:
    """Return an Arrow array over offsets and content, NULL where the strip is."""
    bitmap, nulls = validity(strip.present())
    buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(content)]
    return pa.Array.from_buffers(arrow_type, strip.row_count, buffers, nulls)


def gather(strip: Strip) -> tuple[Int32s, UInt8s, bool]:
    """Copy a strip's texts one after another.

    Returns:
        Offsets (n + 1), the bytes, and whether any of them is outside ASCII.

    Raises:
        DecodeError: The texts have 2 GiB or more, which Arrow's 32-bit offsets cannot count.
    """
    total = int(np.maximum(strip.length, 0).sum(dtype=np.int64))
    if total > np.iinfo(np.int32).max:
        message = f"{strip.row_count} values of one column have {total} bytes of text, the limit is 2147483647"
        raise DecodeError(message, hint="make the batches smaller: pipeline.commit_bytes")
    offsets = np.empty(strip.row_count + 1, np.int32)
    text = np.empty(total, np.uint8)
    high = _gather(strip.data, strip.start, strip.length, offsets, text)
    return offsets, text, high >= 0x80


def _first_not_utf8(strip: Strip) -> DecodeError:
    for row in range(strip.row_count):
        value = strip.text(row)
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return refusal(row, value or b"", NOT_UTF8)
    return DecodeError("a column has text that is not valid UTF-8")


def binaries(strip: Strip, value_type: ValueType) -> ArrowArray:
    r"""Decode hexadecimal text into a binary array: ``\x00ff`` for bytea, bare digits for PostGIS.

    Raises:
        ValueRefused: A value is not hexadecimal (``bytea_output`` must be hex; manual, section 8.4.1).
    """
    prefix = 2 if value_type.wire is Wire.HEX else 0
    sizes = np.maximum((strip.length.astype(np.int64) - prefix) // 2, 0)
    total = int(sizes.sum())
    # Half of the bytes of cells that lie in one buffer; the texts of one column in it stay below 4 GiB.
    if total > np.iinfo(np.int32).max:
        message = f"{strip.row_count} values of one column have {total} bytes, the limit is 2147483647"
        raise DecodeError(message, hint="make the batches smaller: pipeline.commit_bytes")
    offsets = np.empty(strip.row_count + 1, np.int32)
    content = np.empty(total, np.uint8)
    row, reason = _unhex(strip.data, strip.start, strip.length, prefix, offsets, content)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return variable_width(pa.binary(), strip, offsets, content)


def uuids(strip: Strip) -> ArrowArray:
    """Decode UUIDs into 16 bytes each.

    Raises:
        ValueRefused: A value is not of the form ``8-4-4-4-12`` hexadecimal digits (manual, section 8.12).
    """
    content = np.zeros((strip.row_count, 16), np.uint8)
    row, reason = _uuids(strip.data, strip.start, strip.length, content)
    if reason != FINE:
        raise refusal(row, strip.text(row) or b"", reason)
    return fixed_width(pa.binary(16), content, strip.present())


@numba.njit(cache=True, nogil=True)
def _gather(data: UInt8s, start: Int64s, length: Int32s, offsets: Int32s, text: UInt8s) -> int:
    """Copy the texts and write the offsets; return all bytes or-ed together."""
    at = 0
    for row in range(len(length)):
        offsets[row] = at
        size = wide(length[row])
        if size > 0:
            # Through views, whose indices cannot be negative: over data[begin + step] the loop is not vectorised
            # and takes 33 ns for 40 bytes instead of 8 (benchmarks/micro_decode.py, 2 cores, November 2026).
            source = data[start[row] : start[row] + size]
            target = text[at : at + size]
            for step in range(size):
                target[step] = source[step]
            at += size
    offsets[len(length)] = at
    high = np.uint8(0)
    for step in range(at):
        high |= text[step]
    return int(high)


@numba.njit(cache=True, nogil=True)
def _unhex(
    data: UInt8s, start: Int64s, length: Int32s, prefix: int, offsets: Int32s, content: UInt8s
) -> tuple[int, int]:
    at = 0
    for row in range(len(length)):
        offsets[row] = at
        size = wide(length[row])
        if size < 0:
            continue
        begin = start[row]
        if size < prefix or (size - prefix) % 2 != 0:
            return row, MALFORMED
        if prefix == 2 and (data[begin] != 92 or data[begin + 1] != 120):  # \x
            return row, MALFORMED
        for step in range(begin + prefix, begin + size, 2):
            high = HEX_VALUES[data[step]]
            low = HEX_VALUES[data[step + 1]]
            if high == _NO_DIGIT or low == _NO_DIGIT:
                return row, MALFORMED
            content[at] = (high << 4) | low
            at += 1
    offsets[len(length)] = at
    return -1, FINE


@numba.njit(cache=True, nogil=True)
def _uuids(data: UInt8s, start: Int64s, length: Int32s, content: UInt8s) -> tuple[int, int]:
    for row in range(len(length)):
        if length[row] < 0:
            continue
        if length[row] != 36:
            return row, MALFORMED
        at = start[row]
        for byte in range(16):
            if byte in (4, 6, 8, 10):
                if data[at] != 45:  # -
                    return row, MALFORMED
                at += 1
            high = HEX_VALUES[data[at]]
            low = HEX_VALUES[data[at + 1]]
            if high == _NO_DIGIT or low == _NO_DIGIT:
                return row, MALFORMED
            content[row, byte] = (high << 4) | low
            at += 2
    return -1, FINE
