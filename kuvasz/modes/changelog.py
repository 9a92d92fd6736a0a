"""The table type `changelog`: every change is a row, with what it was and when, in stream order.

A D row has the values of the old tuple: the key, or with REPLICA IDENTITY FULL the whole row. A U row that changes
its key has the old one, as PostgreSQL's text; without a key the whole old row is it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kuvasz.decode import columns as decoding
from kuvasz.decode import texts
from kuvasz.decode.cells import NULL, Cells, byte_array
from kuvasz.decode.refusals import ValueRefused
from kuvasz.decode.tuples import DELETE, INSERT, KEY, UPDATE, RowChanges
from kuvasz.errors import DecodeError, InternalError, place_of
from kuvasz.fold.keys import Keys
from kuvasz.model import POSTGRES_EPOCH_US, Int32s, ValueType
from kuvasz.modes import append, system_columns
from kuvasz.modes.clone import ChunkOutcome, take_key_from_old
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts

TRUNCATE = ord("T")
_COPIED = "R"


def apply_changes(shape: Shape, changes: RowChanges, facts: Facts | None = None) -> ChunkOutcome:
    """Decode changes of one relation version.

    Raises:
        DecodeError: A value does not fit.
    """
    if facts is None:
        raise InternalError(f"a chunk of {shape.table} came without the facts of its transactions")
    if shape.key:
        take_key_from_old(shape, changes)
    columns = _columns(changes.tag, facts) | {system_columns.OLD_KEY: _old_keys(shape, changes)}
    kept = np.arange(len(changes.tag), dtype=np.int32)
    if changes.outside is not None:  # what never passed the filter is no event here
        kept = np.flatnonzero(~changes.outside).astype(np.int32)
        columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
    applied = append.versions(shape, _with_old_rows(shape, changes), kept)
    aside = applied.aside
    if aside is not None:
        aside = dataclasses.replace(aside, rows=shape.with_own(aside.rows, columns))
        return dataclasses.replace(applied, aside=aside)
    return dataclasses.replace(applied, rows=shape.with_own(applied.rows, columns))


def apply_truncations(shape: Shape, facts: Facts) -> pa.Table:
    """Return the rows of TRUNCATEs."""
    count = int(facts.row_end[-1])
    rows = shape.empty_rows(count)
    return shape.with_own(rows, _columns(np.full(count, TRUNCATE, np.uint8), facts))


def copied(shape: Shape, rows: pa.Table, lsn: int) -> pa.Table:
    """Return copied rows; `lsn` is that of the snapshot."""
    columns = {
        system_columns.OP: pa.repeat(pa.scalar(_COPIED), rows.num_rows),
        system_columns.LSN: pa.repeat(pa.scalar(lsn, pa.int64()), rows.num_rows),
    }
    return shape.with_own(rows, columns)


def old_keys(shape: Shape, maps: pa.ChunkedArray) -> Keys:
    """Return the keys that the maps of `_old_key` name, none of which is NULL.

    Raises:
        DecodeError: They are not of the shape's key.
    """
    array = maps.combine_chunks()
    width = len(shape.key)
    if (np.diff(array.offsets.to_numpy()) != width).any():
        message = (
            f"{place_of(shape.source, shape.table)}: {system_columns.OLD_KEY} names other columns than the key's"
        )
        raise DecodeError(message, hint="copy the table again: its key changed")
    texts_of = array.items.slice(int(array.offsets[0].as_py()), len(array) * width)
    columns = []
    for number, index in enumerate(shape.key):
        mine = texts_of.take(pa.array(np.arange(number, len(texts_of), width)))
        binding = shape.bindings[index]
        if binding.computed is not None or binding.mask is not None:
            columns.append(mine.cast(shape.schema.field(index).type))
        else:
            columns.append(_of_texts(mine, binding.type))
    return shape.hash(columns, len(array))


def _of_texts(array: pa.StringArray, kind: ValueType) -> pa.Array:
    """Decode PostgreSQL's texts."""
    values = [None if text is None else text.encode() for text in array.to_pylist()]
    lengths = np.array([NULL if value is None else len(value) for value in values], np.int32)
    sizes = np.maximum(lengths, 0)
    data = byte_array(b"".join(value for value in values if value is not None))
    start = (np.cumsum(sizes) - sizes).astype(np.int64)
    return decoding.column(Cells(data=data, start=start[None], length=lengths[None]), 0, kind)


def _columns(tag: np.ndarray, facts: Facts) -> dict[str, pa.Array]:
    runs = facts.runs()
    tags = pa.array(["I", "U", "D", "T"])
    codes = np.select([tag == INSERT, tag == UPDATE, tag == DELETE], [0, 1, 2], 3)
    return {
        system_columns.OP: tags.take(pa.array(codes)),
        system_columns.LSN: pa.array(facts.commit_lsn[runs]),
        system_columns.ORDINAL: pa.array(facts.ordinals()),
        system_columns.XID: pa.array(facts.xid[runs]),
        system_columns.COMMIT_TS: pa.array(facts.commit_us[runs] + POSTGRES_EPOCH_US).cast(pa.timestamp("us", "UTC")),
    }


def _text(shape: Shape, changes: RowChanges, index: int, old: Int32s) -> pa.Array:
    """Return a column of old rows as PostgreSQL's text, or that of what the map makes of it."""
    binding = shape.bindings[index]
    if binding.computed is None and binding.mask is None:
        try:
            return texts.strings(decoding.checked(changes.old.strip(binding.column, old)))
        except ValueRefused as refused:
            raise shape.refusal(index, refused) from refused
    return shape.read(changes.old, index, old).cast(pa.string())


def _with_old_rows(shape: Shape, changes: RowChanges) -> RowChanges:
    """Give D rows the values of their old tuples.

    Of a key alone they have nothing else: a row that left the filter has new values there, which nobody is to see.
    """
    rows = np.flatnonzero(changes.tag == DELETE)
    old = changes.old_row[rows]
    bare = rows[changes.old_tag[rows] == KEY] if shape.key else rows[:0]
    key = [shape.bindings[index] for index in shape.key]
    others = np.setdiff1d(np.arange(changes.new.column_count), [binding.column for binding in key])
    changes.new.start[:, rows] = changes.old.start[:, old]
    changes.new.length[:, rows] = changes.old.length[:, old]
    changes.new.length[np.ix_(others, bare)] = NULL
    if not changes.new.computed or len(rows) == 0:
        return changes
    place = np.arange(len(changes.tag))
    place[rows] = len(changes.tag) + old
    is_bare = np.zeros(len(changes.tag), np.bool_)
    is_bare[bare] = True
    told = {binding.computed for binding in key}
    computed = tuple(
        pa.concat_arrays([new, before]).take(pa.array(place, mask=None if number in told else is_bare))
        for number, (new, before) in enumerate(zip(changes.new.computed, changes.old.computed, strict=True))
    )
    return dataclasses.replace(changes, new=dataclasses.replace(changes.new, computed=computed))


def _old_keys(shape: Shape, changes: RowChanges) -> pa.Array:
    """Return the old key of each U row that changed it, else NULL."""
    count = len(changes.tag)
    rows = np.flatnonzero((changes.tag == UPDATE) & (changes.old_row >= 0))
    old = changes.old_row[rows].astype(np.int32)
    indices = shape.key or tuple(
        index for index, one in enumerate(shape.bindings) if one.column >= 0 or one.computed is not None
    )
    is_moved = np.ones(len(rows), np.bool_)
    if shape.key:
        before, now = shape.keys(changes.old, old), shape.keys(changes.new, rows.astype(np.int32))
        is_moved = (before.hi != now.hi) | (before.lo != now.lo)
    rows, old = rows[is_moved], old[is_moved]
    values = [_text(shape, changes, index, old) for index in indices]
    width = len(indices)
    # Column by column as decoded, row by row in the map.
    order = np.arange(len(rows) * width).reshape(width, len(rows)).T.reshape(-1)
    items = pc.take(pa.concat_arrays(values), pa.array(order)) if len(rows) else pa.array([], pa.string())
    names = pa.array([shape.bindings[index].name for index in indices] * len(rows), pa.string())
    sizes = np.zeros(count + 1, np.int32)
    sizes[rows + 1] = width
    has_map = np.zeros(count + 1, np.bool_)
    has_map[rows] = True
    has_map[count] = True
    offsets = pa.array(np.cumsum(sizes, dtype=np.int32), mask=~has_map)
    return pa.MapArray.from_arrays(offsets, names, items)
