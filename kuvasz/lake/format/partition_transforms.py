"""Iceberg's transforms of whole columns (Iceberg spec, "Partition Transforms" and appendix B "32-bit Hash").

Arrow in, Arrow out; a NULL stays NULL. What a transform gives for a type, and which types it takes, is the spec's:
`PyIceberg`'s scalar transforms are the oracle of the tests. Pure; runs on executors.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.errors import InternalError
from kuvasz.lake.format.layout import Term
from kuvasz.model import Int32s, Int64s

_Array: TypeAlias = "pa.Array[Any]"

_HOUR_US: Final = 3_600_000_000


def apply(term: Term, array: _Array) -> _Array:
    """Return a term's values.

    Args:
        term: What to compute.
        array: The column, of a type that the transform takes.

    Returns:
        Integers for bucket, year, month and hour, dates for day, the array's own type otherwise.
    """
    if term.transform == "identity":
        return array
    if term.transform == "bucket":
        return _int32((hashes(array) & 0x7FFFFFFF) % term.width, array)
    if term.transform == "truncate":
        return _truncate(array, term.width)
    if term.transform == "hour":
        return _int32(np.floor_divide(_integers(array), _HOUR_US), array)
    days = _days(array)
    if term.transform == "day":
        return _int32(days, array).cast(pa.date32())
    unit = "M" if term.transform == "month" else "Y"
    return _int32(days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64), array)


def _int32(values: np.ndarray[Any, Any], array: _Array) -> _Array:
    return pa.array(values.astype(np.int32), mask=_nulls(array))


def _nulls(array: _Array) -> np.ndarray[Any, Any] | None:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None


def _integers(array: _Array) -> Int64s:
    """Return integers, days of dates or microseconds of timestamps; 0 for NULL."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return np.asarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False)).astype(np.int64)


def _days(array: _Array) -> Int64s:
    values = _integers(array)
    return values if pa.types.is_date32(array.type) else np.floor_divide(values, 24 * _HOUR_US)


def _truncate(array: _Array, width: int) -> _Array:
    kind = array.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(array, 0, width)  # Arrow's code units are code points
    if pa.types.is_binary(kind):
        return pc.binary_slice(array, 0, width)
    if pa.types.is_integer(kind):
        values = _integers(array)
        # As in Java, the least values wrap around.
        return pa.array((values - np.mod(values, width)).astype(kind.to_pandas_dtype()), mask=_nulls(array))
    if pa.types.is_decimal(kind):
        return _truncate_decimals(array, width)
    raise InternalError(f"truncate of {kind}")


def _truncate_decimals(array: _Array, width: int) -> _Array:
    """Truncate the distinct values: there is no 128-bit integer to do it with."""
    encoded = array.dictionary_encode()
    scale = array.type.scale
    cut = []
    for value in encoded.dictionary.to_pylist():
        unscaled = _unscaled(value, scale)
        cut.append((unscaled - unscaled % width).to_bytes(16, "little", signed=True))
    values = pa.Array.from_buffers(array.type, len(cut), [None, pa.py_buffer(b"".join(cut))])
    return values.take(encoded.indices)


def _unscaled(value: Any, scale: int) -> int:  # noqa: ANN401 (a Decimal)
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -number if sign else number


# --- Hashes


def hashes(array: _Array) -> Int32s:
    """Return the 32-bit hash of each value, anything for NULL."""
    from kuvasz.fold import murmur  # and numba with it, which who only plans a layout does without

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return murmur.of_longs(_integers(array))
    if pa.types.is_decimal(kind):
        return murmur.of_decimals(_fixed(array))
    if pa.types.is_fixed_size_binary(kind):
        return murmur.of_rows(_fixed(array))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        return murmur.of_texts(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), ends)
    raise InternalError(f"no hash of {kind}")


def _fixed(array: _Array) -> np.ndarray[Any, Any]:
    """Return the 16 bytes of each value as a row."""
    data = np.frombuffer(array.buffers()[1], np.uint8)
    return data[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)


__all__ = ["apply", "hashes"]
