"""Deleted rows stay in a clone (`deletes: soft`): they are written as they were, with the time of their deletion.

A DELETE brings the key alone, so what the row was is taken as an unsent large value is: from an earlier row of the
chunk, or else from the version in the lake. A row that the lake does not have, or that was deleted there before, is
deleted no further: a row may leave a filter that it never passed, or more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from kuvasz.errors import DecodeError, InternalError
from kuvasz.model import POSTGRES_EPOCH_US, TableType
from kuvasz.modes import system_columns

if TYPE_CHECKING:
    from kuvasz.decode.tuples import RowChanges
    from kuvasz.fold.fold import Folded
    from kuvasz.model import Int32s, Int64s
    from kuvasz.modes.shape import Shape
    from kuvasz.modes.transaction_facts import Facts

DELETED_AT = system_columns.DELETED_AT

#: What says of a row that it went, in tables that keep what was.
GONE_BY: Final = {TableType.HISTORY: system_columns.DELETED, TableType.CHANGELOG: system_columns.OP}

_DELETION: Final = "D"

_INSTANT = pa.timestamp("us", "UTC")


class SoftOutcome:
    """The rows that a chunk comes to, those that it deletes among them: first what is known as a whole.

    Args:
        shape: The shape of the chunk.
        changes: Its changes, with all unsent values that the chunk itself has.
        folded: What remains of them.
        unresolved: The rows of the chunk with values that it does not have.
        facts: What its rows have of their transactions.
    """

    def __init__(
        self, shape: Shape, changes: RowChanges, folded: Folded, unresolved: Int32s, facts: Facts | None
    ) -> None:
        if facts is None:
            raise InternalError(f"a chunk of {shape.table} came without the facts of its transactions")
        self._shape = shape
        self._changes = changes
        lives = np.flatnonzero(folded.written >= 0)
        gone = np.flatnonzero(folded.gone_by >= 0)
        row = np.concatenate((folded.keep[folded.written[lives]], folded.gone_from[gone])).astype(np.int32)
        us = np.zeros(len(row), np.int64)
        us[len(lives) :] = facts.commit_us[facts.runs()[folded.gone_by[gone]]] + POSTGRES_EPOCH_US
        is_gone = np.arange(len(row)) >= len(lives)
        # Those that wait are last, and of these the ones of which the chunk has nothing.
        rank = np.where(row < 0, 2, np.isin(row, unresolved))
        order = np.argsort(rank, kind="stable")
        self.key = np.concatenate((lives, gone))[order].astype(np.int32)  #: per row: which of the keys it is of
        self._row, self._us, self._is_gone = row[order], us[order], is_gone[order]
        self.whole = int(np.count_nonzero(rank == 0))  #: rows that are known as a whole
        self._known = int(np.count_nonzero(rank < 2))  #: and with those that lack values
        self.root = np.where(self._row < 0, self.key, folded.root[np.maximum(self._row, 0)])

    def rows(self) -> pa.Table:
        """Return the rows that are known as a whole."""
        return self._made(0, self.whole)

    def waiting(self) -> pa.Table:
        """Return those that wait for their earlier version."""
        unknown = self._shape.empty_rows(len(self._row) - self._known)
        times = self._times(self._known, len(self._row))
        return pa.concat_tables(
            [self._made(self.whole, self._known), unknown.set_column(*self._column(unknown, times))]
        )

    def messages(self) -> Int32s:
        """Return the rows of the chunk that lack values."""
        return self._row[self.whole : self._known]

    def unchanged(self) -> tuple[np.ndarray, ...]:
        """Say per field which of those that wait take its value from their earlier version."""
        shape, rows = self._shape, self.messages()
        unknown = np.ones(len(self._row) - self._known, np.bool_)
        masks = [
            np.concatenate((shape.unchanged(self._changes.new, index, rows), unknown))
            for index in range(len(shape.bindings))
        ]
        own = [binding.name == DELETED_AT for binding in shape.bindings]
        return tuple(
            mask if is_own or mask.any() else np.empty(0, np.bool_) for mask, is_own in zip(masks, own, strict=True)
        )

    def _made(self, begin: int, end: int) -> pa.Table:
        made = self._shape.rows(self._changes.new, self._row[begin:end])
        return made.set_column(*self._column(made, self._times(begin, end)))

    def _times(self, begin: int, end: int) -> pa.Array:
        return deleted_at(self._us[begin:end], ~self._is_gone[begin:end])

    @staticmethod
    def _column(rows: pa.Table, times: pa.Array) -> tuple[int, pa.Field, pa.Array]:
        index = rows.schema.get_field_index(DELETED_AT)
        return index, rows.schema.field(index), times


def deleted_at(us: Int64s, lives: np.ndarray) -> pa.Array:
    """Return times in µs since 1970 as the column has them; NULL for rows that live."""
    return pa.array(us, mask=lives).cast(_INSTANT)


def is_live(rows: pa.Table) -> np.ndarray:
    """Return which rows live."""
    mask: np.ndarray = rows.column(DELETED_AT).combine_chunks().is_null().to_numpy(zero_copy_only=False)
    return mask


def deleted(rows: pa.Table, us: int, which: np.ndarray) -> pa.Table:
    """Return rows of which some are deleted from a time on, in µs since 1970; those that were keep their time."""
    index = rows.schema.get_field_index(DELETED_AT)
    now = deleted_at(np.full(rows.num_rows, us, np.int64), ~which)
    times = pc.coalesce(rows.column(index).cast(_INSTANT), now)
    return rows.set_column(index, rows.schema.field(index), times)


def settled(unknown: np.ndarray, mine: pa.ChunkedArray, earlier: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return when rows that waited were deleted.

    Args:
        unknown: Which of them the chunk knows nothing of but that they are gone.
        mine: When, as far as the chunk says.
        earlier: When their earlier versions were.

    Raises:
        EarlierDeleted: A row leaves out a value that only a deleted one has, which may have been another by then.
    """
    before = earlier.cast(_INSTANT)
    was_deleted = before.combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    if (lost := np.flatnonzero(was_deleted & ~unknown)).size:
        raise EarlierDeleted(int(lost[0]))
    return pc.coalesce(before, mine)


def refuse_gone(earlier: pa.Table, table_type: TableType) -> None:
    """Refuse earlier versions of a table that keeps what was, if the newest says that the row went.

    It comes back by a message that brings all of it, unless it only left the filter, or one of its versions was
    rejected: then it may have changed since.

    Args:
        earlier: The newest versions of rows that wait for them.
        table_type: The table's.

    Raises:
        EarlierDeleted: A row is gone since.
    """
    column = GONE_BY.get(table_type)
    if column is None:
        return
    found = earlier.column(column).combine_chunks()
    mask = found if table_type is TableType.HISTORY else pc.equal(found, _DELETION)
    gone = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if gone.size:
        raise EarlierDeleted(int(gone[0]))


class EarlierDeleted(DecodeError):
    """An updated row leaves out a large value, and its earlier version is a deleted row; `row` is which of those."""

    def __init__(self, row: int) -> None:
        super().__init__("an updated row leaves out a large value, and its earlier version is a deleted row")
        self.row = row

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return EarlierDeleted, (self.row,)


__all__ = [
    "DELETED_AT",
    "GONE_BY",
    "EarlierDeleted",
    "SoftOutcome",
    "deleted",
    "deleted_at",
    "is_live",
    "refuse_gone",
    "settled",
]
