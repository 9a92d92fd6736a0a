"""Row messages of pgoutput into cells: Insert, Update and Delete, with their old rows.

Enters: the messages of one relation, one after another, each from its tag byte on. Leaves: `RowChanges`. Formats:
manual, section "Logical Replication Message Formats", protocol version 1. Every bound is checked: bytes that are
not what the protocol says end in a DecodeError and are never read past.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numba
import numpy as np

from kuvasz.decode.cells import CUT, NULL, UNCHANGED, Cells, byte_array, empty_cells, wide
from kuvasz.decode.messages import DELETE, INSERT, UPDATE
from kuvasz.errors import DecodeError
from kuvasz.model import Operations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from kuvasz.model import Int32s, Int64s, UInt8s, UInt32s

#: Old tuple of the key columns alone; the others are NULL in it.
KEY: Final = ord("K")
#: Old tuple of all columns (REPLICA IDENTITY FULL).
OLD: Final = ord("O")
_NEW: Final = ord("N")

#: What stands in the place of a value that was cut away: no kind of the protocol's.
CUT_KIND: Final = ord("x")

#: Bytes before a value: its kind and its length.
VALUE_FRAME: Final = 5

#: Tag, relation OID, tuple tag, number of columns: what the shortest message has, of a table without columns.
_HEADER_BYTES: Final = 8

#: Of a row message, what errors show: the first value begins behind its header, its kind and its length.
HEAD_BYTES: Final = _HEADER_BYTES + 5

_FINE: Final = 0
_TRUNCATED: Final = 1
_WRONG_COUNT: Final = 2
_BAD_TAG: Final = 3
_BAD_KIND: Final = 4
_BINARY: Final = 5
_TRAILING: Final = 6
_MISPLACED: Final = 7
_ENTERED: Final = 8  #: an INSERT that the server made of an UPDATE, for a row filter's sake

_SAID: Mapping[int, str] = {
    _TRUNCATED: "ends in the middle of a value",
    _WRONG_COUNT: "has another number of columns than its relation",
    _BAD_TAG: "has a tag that no row message has",
    _BAD_KIND: "has a column of unknown kind",
    _BINARY: "has a column in binary form, which was not asked for",
    _TRAILING: "has bytes behind its end",
    _MISPLACED: "has an unchanged value outside the new row of an update",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """n row messages; m of them carry an old row."""

    tag: UInt8s  #: n: INSERT, UPDATE or DELETE
    new: Cells  #: n rows; all NULL for a DELETE
    old: Cells  #: m rows, in the order of their messages
    old_row: Int32s  #: n: row in `old`, or -1
    old_tag: UInt8s  #: n: KEY, OLD, or 0
    outside: npt.NDArray[np.bool_] | None = None  #: n: never passed the filter, as far as is known; None: no filter
    old_outside: npt.NDArray[np.bool_] | None = None  #: m: the old row, if it is whole, did not pass it


def operations(data: UInt8s, lengths: UInt32s) -> Operations:
    """Count row messages by their tags."""
    (counted,) = operations_of(data, lengths, (len(lengths),))
    return counted


def operations_of(data: UInt8s, lengths: UInt32s, ends: Sequence[int]) -> tuple[Operations, ...]:
    """Count row messages by their tags, those of each of several sources.

    Args:
        data: The messages, one after another.
        lengths: Bytes of each.
        ends: Per source: the number of messages up to its last one, ascending.
    """
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    whose = np.repeat(np.arange(len(ends)), np.diff(np.array(ends), prepend=0))
    counts = np.bincount(whose * 256 + data[begins], minlength=256 * len(ends)).reshape(-1, 256)
    return tuple(map(Operations._make, counts[:, [INSERT, UPDATE, DELETE]].tolist()))


def split_changes(data: bytes | bytearray | UInt8s, lengths: UInt32s, column_count: int) -> RowChanges:
    """Take row messages apart, in one pass over the bytes.

    Args:
        data: The messages, without anything between them. The cells refer to it, so it must not change.
        lengths: Bytes of each message.
        column_count: Columns of the relation.

    Raises:
        DecodeError: The bytes are not row messages of such a relation.
    """
    array = byte_array(data)
    ends = np.cumsum(lengths, dtype=np.int64)
    row_count = len(lengths)
    _check_frame(array, lengths, ends, column_count)
    begins = ends - lengths
    tag = array[begins]
    old_tag = array[begins + 5]
    # The byte behind the OID says whether an old row comes first; a wrong one is found when the tuple is read.
    has_old = (tag == DELETE) | ((tag == UPDATE) & (old_tag != _NEW))
    new = empty_cells(column_count, row_count, array)
    old = empty_cells(column_count, int(np.count_nonzero(has_old)), array)
    old_row = np.where(has_old, np.cumsum(has_old, dtype=np.int32) - 1, -1).astype(np.int32)
    old_tag = np.where(has_old, old_tag, 0).astype(np.uint8)
    message, reason = _split(array, begins, ends, old_row, new.start, new.length, old.start, old.length)
    if reason == _ENTERED:
        raise DecodeError(
            f"row message {message} inserts a row without a large value: an update that left it out, because it did"
            " not change, has brought the row into the row filter of the publication",
            hint="ALTER TABLE … REPLICA IDENTITY FULL makes updates carry it; then copy the table again:"
            " kuvasz resync --table …",
        )
    if reason != _FINE:
        raise _broken(array, int(begins[message]), int(ends[message]), message, _SAID[reason])
    return RowChanges(tag=tag, new=new, old=old, old_row=old_row, old_tag=old_tag)


def _check_frame(array: UInt8s, lengths: UInt32s, ends: Int64s, column_count: int) -> None:
    """Refuse what would make the arrays below wrong or, from hostile bytes, enormous."""
    total = int(ends[-1]) if len(ends) else 0
    if total != len(array):
        message = f"{len(lengths)} row messages have {total} bytes by their lengths, but {len(array)} are there"
        raise DecodeError(message, hint="this is a defect of kuvasz or of the server: please report it")
    # Every message has at least one byte for each column in each row it carries.
    if len(lengths) and int(lengths.min()) < _HEADER_BYTES + column_count:
        index = int(lengths.argmin())
        end = int(ends[index])
        raise _broken(array, end - int(lengths[index]), end, index, f"is too short for {column_count} columns")


def _broken(array: UInt8s, begin: int, end: int, index: int, said: str) -> DecodeError:
    shown = array[begin : min(end, begin + HEAD_BYTES)].tobytes().hex(" ")
    return DecodeError(
        f"row message {index} of {end - begin} bytes {said}; it begins {shown}",
        hint="check that nothing between source and kuvasz alters the stream; `kuvasz retry` reads it again",
    )


@numba.njit(cache=True, nogil=True)
def _split(  # noqa: PLR0911
    data: UInt8s,
    begins: Int64s,
    ends: Int64s,
    old_row: Int32s,
    new_start: Int64s,
    new_length: Int32s,
    old_start: Int64s,
    old_length: Int32s,
) -> tuple[int, int]:
    columns = new_length.shape[0]
    for row in range(len(begins)):
        at = begins[row]
        end = ends[row]
        tag = data[at]
        if tag != INSERT and tag != UPDATE and tag != DELETE:
            return row, _BAD_TAG
        at += 5
        if old_row[row] >= 0:
            if data[at] != KEY and data[at] != OLD:
                return row, _BAD_TAG
            at, reason = _tuple(data, at + 1, end, False, old_start, old_length, old_row[row])  # noqa: FBT003
            if reason != _FINE:
                return row, reason
        if tag == DELETE:
            for column in range(columns):
                new_start[column, row] = 0
                new_length[column, row] = NULL
        else:
            if at >= end:
                return row, _TRUNCATED
            if data[at] != _NEW:
                return row, _BAD_TAG
            at, reason = _tuple(data, at + 1, end, tag == UPDATE, new_start, new_length, row)
            if reason != _FINE:
                return row, _ENTERED if reason == _MISPLACED else reason
        if at != end:
            return row, _TRAILING
    return -1, _FINE


@numba.njit(cache=True, nogil=True)
def _tuple(  # noqa: PLR0911
    data: UInt8s,
    at: int,
    end: int,
    may_be_unchanged: bool,  # noqa: FBT001 (kernels take no keywords)
    start: Int64s,
    length: Int32s,
    row: int,
) -> tuple[int, int]:
    """Read one TupleData; return the place behind it and a reason."""
    columns = length.shape[0]
    if end - at < 2:
        return at, _TRUNCATED
    if (wide(data[at]) << 8 | wide(data[at + 1])) != columns:
        return at, _WRONG_COUNT
    at += 2
    for column in range(columns):
        if at >= end:
            return at, _TRUNCATED
        kind = data[at]
        at += 1
        if kind == 116:  # t
            if end - at < 4:
                return at, _TRUNCATED
            size = wide(data[at]) << 24 | wide(data[at + 1]) << 16 | wide(data[at + 2]) << 8 | wide(data[at + 3])
            at += 4
            # A negative length reads as 2 GiB or more here; no message is that long.
            if size > end - at or size > 0x7FFFFFFF:
                return at, _TRUNCATED
            start[column, row] = at
            length[column, row] = size
            at += size
        elif kind == 110:  # n
            start[column, row] = 0
            length[column, row] = NULL
        elif kind == 117:  # u
            if not may_be_unchanged:
                return at, _MISPLACED
            start[column, row] = 0
            length[column, row] = UNCHANGED
        elif kind == CUT_KIND:
            start[column, row] = 0
            length[column, row] = CUT
        elif kind == 98:  # b
            return at, _BINARY
        else:
            return at, _BAD_KIND
    return at, _FINE


def take_from_old(changes: RowChanges, column: int) -> int:
    """Give unchanged cells of a column, in place, what the row's old tuple has; return how many have no old tuple.

    Args:
        changes: From `split_changes`.
        column: One that old tuples carry: of the replica identity.
    """
    missing = np.flatnonzero(changes.new.length[column] == UNCHANGED)
    old = changes.old_row[missing]
    missing, old = missing[old >= 0], old[old >= 0]
    changes.new.start[column, missing] = changes.old.start[column, old]
    changes.new.length[column, missing] = changes.old.length[column, old]
    return int(np.count_nonzero(changes.new.length[column] == UNCHANGED))


def fill_unchanged(changes: RowChanges, previous: Int32s) -> Int32s:
    """Give every unchanged cell the text it has in the row's earlier version, as far as that is at hand.

    In place, in `changes.new`. An update takes the value from its old row if that is whole (OLD), else from
    ``previous``, which may have been filled itself.

    Args:
        changes: From `split_changes`.
        previous: n: index, below the row's own, of the message that left the row's earlier version, or -1.

    Returns:
        The rows, in order, that still have an unchanged cell.
    """
    new, old = changes.new, changes.old
    is_open = np.zeros(new.row_count, np.bool_)
    whole_row = np.where(changes.old_tag == OLD, changes.old_row, -1).astype(np.int32)
    before = np.ascontiguousarray(previous, np.int32)  # of another width, the kernel would be compiled again
    _fill(new.start, new.length, old.start, old.length, changes.tag, whole_row, before, is_open)
    return np.flatnonzero(is_open).astype(np.int32)


@numba.njit(cache=True, nogil=True)
def _fill(
    start: Int64s,
    length: Int32s,
    old_start: Int64s,
    old_length: Int32s,
    tag: UInt8s,
    whole_row: Int32s,
    previous: Int32s,
    is_open: npt.NDArray[np.bool_],
) -> None:
    # Column by column, as memory lies: a cell depends on cells of its own column alone.
    for column in range(length.shape[0]):
        for row in range(length.shape[1]):
            if length[column, row] != UNCHANGED:
                continue
            before = previous[row]
            if whole_row[row] >= 0:
                start[column, row] = old_start[column, whole_row[row]]
                length[column, row] = old_length[column, whole_row[row]]
            elif 0 <= before < row and tag[before] != DELETE:
                start[column, row] = start[column, before]
                length[column, row] = length[column, before]
            if length[column, row] == UNCHANGED:
                is_open[row] = True


__all__ = [
    "CUT_KIND", "DELETE", "INSERT", "KEY", "NULL", "OLD", "UNCHANGED", "UPDATE", "VALUE_FRAME",
    "Cells", "RowChanges", "fill_unchanged", "operations", "operations_of", "split_changes",
]  # fmt: skip
