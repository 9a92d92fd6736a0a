"""A column of cells into an Arrow array: the one value path of stream and COPY.

Enters: cells, and the `ValueType` the type map gave. Leaves: an array of `kuvasz.typemap.arrow_type`. Dispatch is
once per column; what runs per value is a kernel (`numbers`, `times`, `texts`, `arrays`). Nothing is rounded,
defaulted or turned into NULL to make it fit, but where the user chose a policy. `plain` is the twin the tests
compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kuvasz.decode import arrays, numerics, texts, times
from kuvasz.decode.cells import CUT
from kuvasz.decode.refusals import CUT_AWAY, ValueRefused
from kuvasz.errors import InternalError
from kuvasz.model import LakeType
from kuvasz.typemap import arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kuvasz.decode.cells import Cells, Strip
    from kuvasz.model import Int32s, ValueType


def column(
    cells: Cells, index: int, value_type: ValueType, rows: Int32s | None = None, *, out_of_range: str = "error"
) -> texts.ArrowArray:
    """Decode one column of the given rows, or of all.

    Args:
        cells: From `split_changes` or `split_copy`.
        index: The column.
        value_type: What it becomes.
        rows: Row numbers in the order wanted; a row may come more than once.
        out_of_range: What becomes of dates and timestamps that are infinite or outside the years 0001 to 9999:
            ``error``, ``null``, or ``clamp`` to the nearest that is inside. ``null`` also makes NULL of decimals
            that are NaN or infinite.

    Returns:
        One value per row; NULL for NULL cells and for unchanged ones, which are the caller's to fill before.

    Raises:
        ValueRefused: A value does not fit; `ValueRefused.row` is its row in `cells`.
        DecodeError: One array cannot hold so much text (2 GiB).
    """
    try:
        return _decode(checked(cells.strip(index, rows)), value_type, out_of_range)
    except ValueRefused as refused:
        if rows is None:
            raise
        raise refused.moved_to(int(rows[refused.row])) from None


def checked(strip: Strip) -> Strip:
    """Return values all of which are at hand.

    Raises:
        ValueRefused: One was cut away.
    """
    if strip.length.min(initial=0) == CUT:
        raise ValueRefused(int(np.argmax(strip.length == CUT)), "…", CUT_AWAY)
    return strip


def refusals(read: Callable[[Int32s], object], rows: Int32s) -> Iterator[ValueRefused]:
    """Yield the refusal of each row that has one, in order.

    What is read at a time is halved at each refusal and doubled where there is none, so that few of many cost about
    as much as none, and all of them a look each.

    Args:
        read: Decodes some rows; refuses the first that does not fit.
        rows: All rows.
    """
    at, size = 0, max(len(rows), 1)
    while at < len(rows):
        block = rows[at : at + size]
        try:
            read(block)
        except ValueRefused as refused:
            yield refused
            at += int(np.flatnonzero(block == refused.row)[0]) + 1
            size = max(size // 2, 1)
        else:
            at += len(block)
            size *= 2


def _decode(strip: Strip, value_type: ValueType, out_of_range: str) -> texts.ArrowArray:
    return _BUILDERS[value_type.kind](strip, value_type, out_of_range)


def _list(strip: Strip, value_type: ValueType, out_of_range: str) -> texts.ArrowArray:
    if value_type.element is None:
        raise InternalError("a list type without an element type")
    taken = arrays.elements(strip, value_type)
    try:
        values = _decode(taken.values, value_type.element, out_of_range)
    except ValueRefused as refused:
        raise refused.moved_to(taken.list_of(refused.row)) from None
    return _nested(strip, value_type, taken.offsets, values)


def _map(strip: Strip, value_type: ValueType, _out_of_range: str) -> texts.ArrowArray:
    taken = arrays.pairs(strip)
    if taken.keys is None:
        raise InternalError("pairs without keys")
    try:
        keys, values = texts.strings(taken.keys), texts.strings(taken.values)
    except ValueRefused as refused:
        raise refused.moved_to(taken.list_of(refused.row)) from None
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
    return _nested(strip, value_type, taken.offsets, pa.StructArray.from_arrays([keys, values], fields=fields))


def _nested(strip: Strip, value_type: ValueType, offsets: Int32s, values: texts.ArrowArray) -> texts.ArrowArray:
    bitmap, nulls = texts.validity(strip.present())
    buffers = [bitmap, texts.arrow_buffer(offsets)]
    return pa.Array.from_buffers(arrow_type(value_type), strip.row_count, buffers, nulls, children=[values])


_BUILDERS: Mapping[LakeType, Callable[[Strip, ValueType, str], texts.ArrowArray]] = {
    LakeType.BOOLEAN: lambda strip, _type, _policy: numerics.booleans(strip),
    LakeType.INT: lambda strip, value_type, _policy: numerics.integers(strip, value_type),
    LakeType.LONG: lambda strip, value_type, _policy: numerics.integers(strip, value_type),
    LakeType.FLOAT: lambda strip, value_type, _policy: numerics.floats(strip, value_type),
    LakeType.DOUBLE: lambda strip, value_type, _policy: numerics.floats(strip, value_type),
    LakeType.DECIMAL: lambda strip, value_type, policy: numerics.decimals(
        strip, value_type, null_if_not_finite=policy == "null"
    ),
    LakeType.STRING: lambda strip, _type, _policy: texts.strings(strip),
    LakeType.BINARY: lambda strip, value_type, _policy: texts.binaries(strip, value_type),
    LakeType.DATE: lambda strip, _type, policy: times.dates(strip, out_of_range=policy),
    LakeType.TIMESTAMP: lambda strip, value_type, policy: times.timestamps(strip, value_type, out_of_range=policy),
    LakeType.TIMESTAMPTZ: lambda strip, value_type, policy: times.timestamps(strip, value_type, out_of_range=policy),
    LakeType.UUID: lambda strip, _type, _policy: texts.uuids(strip),
    LakeType.LIST: _list,
    LakeType.MAP: _map,
}

__all__ = ["ValueRefused", "checked", "column", "refusals"]
