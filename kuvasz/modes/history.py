"""The table type `history`: every version of every row, with the time it was the row.

A chunk becomes the versions it opens, each with its end if the chunk knows it, and `Closings`: when the version that
a key had before the chunk, if there is one, ends. Per key and transaction the last change counts.

Times are the commit times of the source, whose clock may stand or be set back. Versions of a key never overlap all
the same, and none is empty: one that would end at or before its start is replaced by the next, which takes its start;
one that is deleted then ends a microsecond after its start; one that begins anew begins no earlier than the last one
ended.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.decode.tuples import RowChanges
from kuvasz.errors import InternalError
from kuvasz.fold import fold
from kuvasz.model import POSTGRES_EPOCH_US, Int32s, Int64s
from kuvasz.modes import append, system_columns
from kuvasz.modes.clone import ChunkOutcome, Closings, take_key_from_old
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts

START, END, DELETED = system_columns.START, system_columns.END, system_columns.DELETED

#: Starts of copied versions and ends of open ones: 1900-01-01 and 9999-01-01 UTC, in µs since 1970.
FIRST_US: Final = -2_208_988_800_000_000
FOREVER_US: Final = 253_370_764_800_000_000

NEVER_US: Final = -(1 << 62)
_NO_START: Final = 1 << 62
_INSTANT = pa.timestamp("us", "UTC")


def apply_changes(shape: Shape, changes: RowChanges, facts: Facts | None = None) -> ChunkOutcome:
    """Decode changes of one relation version.

    Raises:
        DecodeError: A value does not fit.
    """
    if facts is None:
        raise InternalError(f"a chunk of {shape.table} came without the facts of its transactions")
    take_key_from_old(shape, changes)
    folded = fold.fold(changes.tag, shape.keys(changes.new), shape.keys(changes.old), changes.old_row)
    unresolved = append.unresolved_of(shape, changes, folded, np.arange(len(changes.tag), dtype=np.int32))
    key, row, us = _states(folded, facts)
    start, end, is_deleted, is_version = _settle(key, row, us, np.full(len(folded.keys), NEVER_US, np.int64))
    kept = np.flatnonzero(is_version)
    waits = np.isin(row[kept], unresolved)
    kept = np.concatenate((kept[~waits], kept[waits]))
    main = len(kept) - int(np.count_nonzero(waits))
    rows = shape.with_own(shape.rows(changes.new, row[kept]), _columns(start[kept], end[kept], is_deleted[kept]))
    written = np.full(len(folded.keys), -1, np.int32)
    newest = np.argsort(kept, kind="stable")  # of a key's versions the last one stays
    written[key[kept][newest]] = newest
    aside = None
    if main < len(kept):
        waiting = np.arange(len(kept) - main, dtype=np.int32)
        aside = append.aside_of(shape, changes, folded, row[kept[main:]], waiting, rows.slice(main))
    return ChunkOutcome(
        rows=rows.slice(0, main),
        keys=folded.keys,
        written=written,
        aside=aside,
        deleted=int(np.count_nonzero(written < 0)),
        closings=_closings(len(folded.keys), key, row, us, (kept, start)),
    )


def copied(shape: Shape, rows: pa.Table, lsn: int) -> pa.Table:
    """Return copied rows as versions that have always been there, or that begin where the shape says."""
    del lsn
    return opened(shape, rows, FIRST_US if shape.copied_us is None else shape.copied_us)


def opened(shape: Shape, rows: pa.Table, us: int) -> pa.Table:
    """Return rows as open versions that begin at a time, µs since 1970."""
    count = rows.num_rows
    columns = _columns(np.full(count, us), np.full(count, FOREVER_US), np.zeros(count, np.bool_))
    return shape.with_own(rows, columns)


def is_open(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which versions are open."""
    mask: npt.NDArray[np.bool_] = micros(rows, system_columns.END) == FOREVER_US
    return mask


def _columns(start: Int64s, end: Int64s, is_deleted: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    return {
        system_columns.START: pa.array(start).cast(_INSTANT),
        system_columns.END: pa.array(end).cast(_INSTANT),
        system_columns.DELETED: pa.array(is_deleted),
    }


def _states(folded: fold.Folded, facts: Facts) -> tuple[Int32s, Int32s, Int64s]:
    """Return what each key is after each transaction that touches it, ordered by key, then in stream order.

    Returns:
        Key numbers, rows (-1: the key is gone), commit times in µs since 1970.
    """
    gone, taken = np.flatnonzero(folded.given_up >= 0), np.flatnonzero(folded.taken >= 0)
    key = np.concatenate((folded.given_up[gone], folded.taken[taken]))
    # A row gives its old key up before it takes the new one.
    at = np.concatenate((2 * gone, 2 * taken + 1))
    order = np.lexsort((at, key))
    key, at = key[order], at[order]
    run = facts.runs()[at // 2]
    lsn = facts.commit_lsn[run]
    is_last = np.ones(len(key), np.bool_)
    is_last[:-1] = (key[1:] != key[:-1]) | (lsn[1:] != lsn[:-1])
    key, at, run = key[is_last], at[is_last], run[is_last]
    row = np.where(at % 2 == 1, at // 2, -1).astype(np.int32)
    return key, row, facts.commit_us[run] + POSTGRES_EPOCH_US


def _closings(
    count: int, key: Int32s, row: Int32s, us: Int64s, versions: tuple[npt.NDArray[np.intp], Int64s]
) -> Closings:
    kept, start = versions
    first = np.flatnonzero(np.diff(key, prepend=-1) != 0)
    first_start = np.full(count, _NO_START, np.int64)
    np.minimum.at(first_start, key[kept], start[kept])
    return Closings(us=us[first], is_gone=row[first] < 0, first_start=first_start, key_of=key[kept])


@numba.njit(cache=True, nogil=True)
def _settle(
    key: Int32s, row: Int32s, us: Int64s, floors: Int64s
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:  # pragma: no cover
    """Return start, end, whether it ends deleted, and whether there is a version of each state.

    Args:
        key: n key numbers, ascending.
        row: n rows, -1 where the key is gone.
        us: n times.
        floors: Per key the time before which no version may begin.
    """
    count = len(key)
    start, end = np.zeros(count, np.int64), np.full(count, FOREVER_US, np.int64)
    is_deleted, is_version = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    open_at, floor = -1, np.int64(NEVER_US)
    for at in range(count):
        if at == 0 or key[at] != key[at - 1]:
            open_at, floor = -1, floors[key[at]]
        if row[at] < 0:
            if open_at >= 0:
                end[open_at] = floor = max(us[at], start[open_at] + 1)
                is_deleted[open_at] = True
                open_at = -1
            continue
        is_version[at] = True
        if open_at < 0:
            start[at] = max(us[at], floor)
        elif us[at] <= start[open_at]:
            is_version[open_at] = False
            start[at] = start[open_at]
        else:
            end[open_at] = start[at] = us[at]
        open_at = at
    return start, end, is_deleted, is_version


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What becomes of n versions that were there before a change of their key."""

    is_replaced: npt.NDArray[np.bool_]  #: the row in the lake goes
    is_copied: npt.NDArray[np.bool_]  #: and comes back with its end
    end: Int64s
    floor: Int64s  #: per version: the time before which the key's next one may not begin


def close(start: Int64s, end: Int64s, us: Int64s, is_gone: npt.NDArray[np.bool_]) -> Closed:
    """Decide how versions end.

    Args:
        start: n starts, in µs since 1970.
        end: n ends; `FOREVER_US` of an open version.
        us: When the key changed.
        is_gone: It was taken away, else it has another version from then on.
    """
    is_open = end == FOREVER_US
    is_copied = is_open & (is_gone | (us > start))
    ends = np.where(is_gone, np.maximum(us, start + 1), us)
    floor = np.where(is_copied, ends, start)
    return Closed(
        is_replaced=is_open, is_copied=is_copied, end=ends, floor=np.where(is_open, floor, end).astype(np.int64)
    )


def closed_rows(rows: pa.Table, end: Int64s, is_gone: npt.NDArray[np.bool_]) -> pa.Table:
    """Return versions with their ends."""
    columns = _columns(np.zeros(len(end), np.int64), end, is_gone)
    for name in (system_columns.END, system_columns.DELETED):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), columns[name])
    return rows


def micros(rows: pa.Table, name: str) -> Int64s:
    """Return a column of instants in µs since 1970; 0 for rows without one, of a type that the table had before."""
    values: Int64s = pc.fill_null(rows.column(name).combine_chunks().cast(pa.int64()), 0).to_numpy()
    return values


def moved(rows: pa.Table, key: Int32s, floors: Int64s) -> tuple[pa.Table, Int32s]:
    """Return versions again, none of which begins before the floor of its key.

    Args:
        rows: Versions of some keys.
        key: Their key numbers, from 0.
        floors: Per key the floor.

    Returns:
        The versions, and per key the row of its newest one.
    """
    start, end = micros(rows, system_columns.START), micros(rows, system_columns.END)
    is_deleted = rows.column(system_columns.DELETED).combine_chunks().to_numpy(zero_copy_only=False)
    number = np.arange(len(key), dtype=np.int32)
    # A version that ends deleted is two events: the row comes, and goes.
    keys = np.concatenate((key, key[is_deleted]))
    us = np.concatenate((start, end[is_deleted]))
    row = np.concatenate((number, np.full(np.count_nonzero(is_deleted), -1, np.int32)))
    order = np.lexsort((row >= 0, us, keys))
    keys, us, row = keys[order], us[order], row[order]
    start, end, is_gone, is_version = _settle(keys, row, us, floors)
    kept = np.flatnonzero(is_version)
    found = rows.take(pa.array(row[kept]))
    columns = _columns(start[kept], end[kept], is_gone[kept])
    for name, column in columns.items():
        index = found.schema.get_field_index(name)
        found = found.set_column(index, found.schema.field(index), column)
    newest = np.zeros(len(floors), np.int32)
    newest[keys[kept]] = np.arange(len(kept), dtype=np.int32)
    return found, newest


def truncated(rows: pa.Table, us: int, ends_now: npt.NDArray[np.bool_]) -> pa.Table:
    """Return versions of which some, that are open, end deleted."""
    start, end = micros(rows, system_columns.START), micros(rows, system_columns.END)
    is_deleted = rows.column(system_columns.DELETED).combine_chunks().to_numpy(zero_copy_only=False)
    ends = np.where(ends_now, np.maximum(us, start + 1), end)
    return closed_rows(rows, ends, is_deleted | ends_now)
