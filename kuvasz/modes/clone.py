"""The table type `clone`: the lake table is the source table.

A chunk of row messages becomes the rows to write and the keys whose earlier version must go. Rows of which a large
column was not sent, because it did not change (manual, section 55.9 "TupleData", kind u), are put aside with the key
under which the lake holds their earlier version; `complete` joins the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from kuvasz.decode import copytext, tuples
from kuvasz.decode.cells import Cells
from kuvasz.decode.tuples import RowChanges
from kuvasz.errors import DecodeError, place_of
from kuvasz.fold import fold
from kuvasz.fold.keys import Keys
from kuvasz.model import Int32s, Int64s, TableType, UInt32s
from kuvasz.modes import owners, soft
from kuvasz.modes.row_rules import Evaluated, attach_copied
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Rows that wait for their earlier version: what is known of them, and where to look."""

    rows: pa.Table  #: unchanged cells are NULL
    unchanged: tuple[np.ndarray, ...]  #: per lake field a boolean array, or an empty one where no cell is missing
    sources: Keys  #: key under which the lake holds the earlier version, one per row that waits
    waits: Int32s | None = None  #: the rows that wait, the others are only kept in order with them; None: all
    messages: Int32s | None = None  #: of a clone, per row: which of the chunk's messages it is of
    #: per lake field whether a cell that is missing cannot be NULL; none: nothing is said. Clones are copied again
    #: when a column gets another field, so their rows have what they had.
    is_value: tuple[bool, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Closings:
    """What a chunk of a history does to versions that were there before it; n keys, as in `ChunkOutcome.keys`."""

    us: Int64s  #: per key: when its first change of the chunk was, in µs since 1970-01-01 UTC
    is_gone: npt.NDArray[np.bool_]  #: per key: that change took it away
    first_start: Int64s  #: per key: start of its first version of the chunk, or the largest number if there is none
    key_of: Int32s  #: per row written: index of its key; those of `ChunkOutcome.rows`, then those of `Aside.rows`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutcome:
    """What one chunk of changes comes to."""

    rows: pa.Table  #: to be written, in this order
    keys: Keys  #: every key touched, once
    written: Int32s  #: per key: its row in `rows`, or len(rows) + its row in `aside`, or -1: deleted
    aside: Aside | None
    deleted: int  #: keys that end deleted
    closings: Closings | None = None  #: of a history
    delta: Int32s | None = (
        None  #: per key, of a table without one: how many copies of the row there are more or fewer
    )
    whose: Int32s | None = None  #: per key: its owner, if the chunk is of several sources
    rejected: pa.Table | None = None  #: what was left out of it: see `kuvasz.modes.rejects.RECORD`
    waiting: pa.Table | None = None  #: of rows that wait and may be left out: see `kuvasz.modes.rejects.origins`


def apply_changes(
    shape: Shape, data: np.ndarray, lengths: UInt32s, evaluated: Evaluated | None = None
) -> ChunkOutcome:
    """Decode and fold row messages of one relation version.

    Args:
        shape: The shape of the relation.
        data: The messages, one after another.
        lengths: Bytes of each.
        evaluated: What Spark made of them, if the shape has expressions.

    Raises:
        DecodeError: The bytes are not what the protocol says, or a value does not fit.
    """
    return apply_split(shape, shape.split(data, lengths, evaluated))


def apply_split(shape: Shape, changes: RowChanges, facts: Facts | None = None) -> ChunkOutcome:
    """Fold messages that were split, and decode what stays.

    Args:
        shape: The shape of the relation.
        changes: The messages.
        facts: What they have of their transactions, where deleted rows stay.

    Raises:
        DecodeError: A value does not fit.
    """
    take_key_from_old(shape, changes)
    folded = fold.fold(changes.tag, shape.keys(changes.new), shape.keys(changes.old), changes.old_row)
    unresolved = tuples.fill_unchanged(changes, folded.previous)
    keep = folded.keep
    if shape.transform is not None and len(unresolved):
        unresolved = shape.waiting(changes.new, unresolved)
    if shape.is_soft:
        return _softly(shape, changes, folded, soft.SoftOutcome(shape, changes, folded, unresolved, facts))
    if len(unresolved) == 0 or len(keep) == 0:
        return ChunkOutcome(
            rows=shape.rows(changes.new, keep),
            keys=folded.keys,
            written=folded.written,
            aside=None,
            deleted=int(np.count_nonzero(folded.written < 0)),
            whose=owners.of_keys(changes, folded),
        )
    waits = np.isin(keep, unresolved)
    order = np.empty(len(keep), np.int32)
    order[~waits] = np.arange(np.count_nonzero(~waits), dtype=np.int32)
    order[waits] = np.arange(np.count_nonzero(~waits), len(keep), dtype=np.int32)
    written = np.where(folded.written < 0, np.int32(-1), order[folded.written])
    return ChunkOutcome(
        rows=shape.rows(changes.new, keep[~waits]),
        keys=folded.keys,
        written=written.astype(np.int32),
        aside=_aside(shape, changes, folded, keep[waits]) if waits.any() else None,
        deleted=int(np.count_nonzero(written < 0)),
        whose=owners.of_keys(changes, folded),
    )


def _softly(shape: Shape, changes: RowChanges, folded: fold.Folded, made: soft.SoftOutcome) -> ChunkOutcome:
    """Return what a chunk comes to where deleted rows stay."""
    written = np.full(len(folded.keys), -1, np.int32)
    written[made.key] = np.arange(len(made.key), dtype=np.int32)
    root = made.root[made.whole :]
    if (root < 0).any():
        raise never_sent(shape, int(made.messages()[np.argmin(root)]))
    aside = None
    if len(root):
        aside = Aside(rows=made.waiting(), unchanged=made.unchanged(), sources=folded.keys.take(root))
    return ChunkOutcome(
        rows=made.rows(),
        keys=folded.keys,
        written=written,
        aside=aside,
        deleted=int(np.count_nonzero(folded.gone_by >= 0)),
        whose=owners.of_keys(changes, folded),
    )


def never_sent(shape: Shape, row: int) -> DecodeError:
    """Return the error of a row that leaves out a value which no row before it has."""
    message = f"{place_of(shape.source, shape.table)}: row message {row} leaves out a value that was never sent"
    if shape.transform is not None and shape.transform.filter is not None:
        return DecodeError(
            message,
            hint="a row entered the filter, and large values that did not change are sent with the old row alone:"
            " ALTER TABLE … REPLICA IDENTITY FULL, and copy the table again",
        )
    return DecodeError(message, hint="this breaks the replication protocol: report it with the table's definition")


def _aside(shape: Shape, changes: RowChanges, folded: fold.Folded, rows: Int32s) -> Aside:
    root = folded.root[rows]
    if (root < 0).any():
        # An INSERT carries every value, so its row always has a chain of updates that starts outside the chunk.
        raise never_sent(shape, int(rows[np.argmin(root)]))
    unchanged = [shape.unchanged(changes.new, index, rows) for index in range(len(shape.bindings))]
    return Aside(
        rows=shape.rows(changes.new, rows),
        unchanged=tuple(mask if mask.any() else np.empty(0, np.bool_) for mask in unchanged),
        sources=folded.keys.take(root),
        messages=rows,
    )


def take_key_from_old(shape: Shape, changes: RowChanges) -> None:
    """Fill key cells that are unchanged and stored out of line from the old key.

    PostgreSQL logs the old key whenever a key column is stored out of line (heapam, ExtractReplicaIdentity), so the
    value is at hand although the new tuple leaves it out.
    """
    for index in shape.key:
        column = shape.bindings[index].column
        if column >= 0 and tuples.take_from_old(changes, column):
            message = f"{place_of(shape.source, shape.table)}: an update carries neither its key nor the old one"
            raise DecodeError(message, hint="check the table's replica identity")


def complete(
    aside: pa.Table,
    unchanged: tuple[np.ndarray, ...],
    earlier: pa.Table,
    waits: Int32s | None = None,
    *,
    is_soft: bool = False,
    is_value: Sequence[bool] = (),
    table_type: TableType = TableType.CLONE,
) -> pa.Table:
    """Fill the cells that were not sent from the rows' earlier versions.

    Args:
        aside: n rows.
        unchanged: As in `Aside`.
        earlier: One row for each that waits, in the same order; at least the columns that have unchanged cells, and
            what says of the table's type that a row went.
        waits: As in `Aside`.
        is_soft: Whether rows that are deleted stay.
        is_value: As in `Aside`.
        table_type: The table's.

    Raises:
        EarlierDeleted: A row that lives waits for one that is deleted, where these stay.
        EarlierLost: An earlier version has NULL for what cannot be NULL.
    """
    soft.refuse_gone(earlier, table_type)
    place = np.arange(len(aside), dtype=np.int32)
    if waits is not None:
        place = np.zeros(len(aside), np.int32)
        place[waits] = np.arange(len(waits), dtype=np.int32)
        earlier = earlier.take(pa.array(place))
    columns = []
    for index, field in enumerate(aside.schema):
        mask = unchanged[index]
        if len(mask) == 0:
            columns.append(aside.column(index))
            continue
        if is_soft and field.name == soft.DELETED_AT:
            columns.append(soft.settled(mask, aside.column(index), earlier.column(field.name)))
            continue
        old = earlier.column(field.name).cast(field.type)
        if is_value and is_value[index] and old.null_count:
            unset = np.flatnonzero(mask & old.is_null().combine_chunks().to_numpy(zero_copy_only=False))
            if unset.size:
                raise EarlierLost(int(place[unset[0]]), field.name)
        columns.append(_choose(mask, old, aside.column(index)))
    return pa.Table.from_arrays(columns, schema=aside.schema)


class EarlierLost(DecodeError):
    """An updated row leaves out a large value of a field, of which its earlier version has none.

    Args:
        row: Which of the rows that wait.
        field: The field's name.
    """

    def __init__(self, row: int, field: str) -> None:
        super().__init__(f"an updated row leaves out a large value, and its earlier version has none in {field}")
        self.row = row
        self.field = field

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return EarlierLost, (self.row, self.field)


def _choose(mask: np.ndarray, old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    # Not pc.if_else: it has no kernel for lists and maps. take() has one for every type.
    both = pa.chunked_array([*old.chunks, *new.chunks], type=new.type)
    count = len(mask)
    return pc.take(both, pa.array(np.where(mask, np.arange(count), np.arange(count, 2 * count))))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What one chunk of a copy comes to."""

    rows: pa.Table
    keys: Keys
    rejected: pa.Table | None = None  #: what was left out of it: see `kuvasz.modes.rejects.RECORD`
    stale: Keys | None = None  #: of what was left out; only where its earlier versions stay


def apply_copy(shape: Shape, data: bytes | bytearray | memoryview, evaluated: Evaluated | None = None) -> Copied:
    """Decode COPY text; `evaluated` as in `apply_changes`."""
    return copied_of(shape, *split_copied(shape, data, evaluated))


def split_copied(
    shape: Shape, data: bytes | bytearray | memoryview, evaluated: Evaluated | None
) -> tuple[Cells, Int32s | None]:
    """Return the rows of COPY text, and which of them pass the filter; None: all."""
    cells = copytext.split_copy(data, shape.column_count)
    if shape.transform is None or evaluated is None:
        return cells, None
    return attach_copied(shape.transform, cells, evaluated)


def copied_of(shape: Shape, cells: Cells, kept: Int32s | None) -> Copied:
    """Decode some copied rows; None: all."""
    rows = shape.rows(cells, kept)
    return Copied(rows=rows, keys=shape.row_keys(rows))
