"""The table type `append`: what was ever inserted or updated; nothing goes.

Every INSERT and UPDATE is a row, in stream order; DELETE and TRUNCATE leave no trace. Rows of which a large
unchanged value is neither in the old tuple nor in an earlier row of the chunk wait for the newest version in the
lake. The whole chunk then waits with them, so that a file still has its rows in stream order: of the rows of one key
in a file the last is the newest, which is how a lost index is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kuvasz.decode import tuples
from kuvasz.decode.tuples import DELETE, RowChanges
from kuvasz.errors import DecodeError, place_of
from kuvasz.fold import fold
from kuvasz.fold.keys import Keys
from kuvasz.model import Int32s
from kuvasz.modes import owners
from kuvasz.modes.clone import Aside, ChunkOutcome, never_sent, take_key_from_old
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts

#: Of both: what was sent by then stays without the value.
CARRY_ALL = "ALTER TABLE … REPLICA IDENTITY FULL makes updates carry it; for those that came, copy it again"


def apply_changes(shape: Shape, changes: RowChanges, facts: Facts | None = None) -> ChunkOutcome:
    """Decode changes of one relation version.

    Raises:
        DecodeError: A value does not fit.
    """
    del facts
    kept = np.flatnonzero(changes.tag != DELETE).astype(np.int32)
    return versions(shape, changes, kept)


def versions(shape: Shape, changes: RowChanges, kept: Int32s) -> ChunkOutcome:
    """Return some of a chunk's rows as they are to be written, and where the newest of each key is.

    Args:
        shape: The shape of the chunk.
        changes: The chunk; its unchanged cells are filled here.
        kept: The rows to write, ascending.
    """
    if not shape.key:
        return _without_key(shape, changes, kept)
    take_key_from_old(shape, changes)
    folded = fold.fold(changes.tag, shape.keys(changes.new), shape.keys(changes.old), changes.old_row)
    unresolved = unresolved_of(shape, changes, folded, kept)
    place = np.full(len(changes.tag) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    # Of a key that ends deleted its deletion is the newest, where that is written.
    gone_by = np.where(np.append(changes.tag, 0)[folded.gone_by] == DELETE, folded.gone_by, len(changes.tag))
    holder = np.where(folded.written < 0, gone_by, np.append(folded.keep, 0)[folded.written])
    rows = shape.rows(changes.new, kept)
    return ChunkOutcome(
        rows=rows if len(unresolved) == 0 else rows.slice(0, 0),
        keys=folded.keys,
        written=place[holder],
        aside=None if len(unresolved) == 0 else aside_of(shape, changes, folded, kept, place[unresolved], rows),
        deleted=int(np.count_nonzero(folded.written < 0)),
        whose=owners.of_keys(changes, folded),
    )


def unresolved_of(shape: Shape, changes: RowChanges, folded: fold.Folded, kept: Int32s) -> Int32s:
    """Fill unchanged cells; return those of the rows that still have some."""
    unresolved = tuples.fill_unchanged(changes, folded.previous)
    if shape.transform is not None and len(unresolved):
        unresolved = shape.waiting(changes.new, unresolved)
    return unresolved[np.isin(unresolved, kept)] if len(unresolved) else unresolved


def aside_of(
    shape: Shape, changes: RowChanges, folded: fold.Folded, kept: Int32s, waits: Int32s, rows: pa.Table
) -> Aside:
    """Return rows of which some wait for their earlier version.

    Args:
        shape: The shape of the chunk.
        changes: The chunk.
        folded: Its fold.
        kept: The chunk's rows that were decoded.
        waits: The decoded rows that wait.
        rows: The decoded rows.
    """
    root = folded.root[kept[waits]]
    if (root < 0).any():
        raise never_sent(shape, int(kept[waits][np.argmin(root)]))
    unchanged = [shape.unchanged(changes.new, index, kept) for index in range(len(shape.bindings))]
    _refuse_unproved(shape, unchanged)
    return Aside(
        rows=rows,
        unchanged=tuple(mask if mask.any() else np.empty(0, np.bool_) for mask in unchanged),
        sources=folded.keys.take(root),
        waits=waits,
        is_value=tuple(map(shape.is_value, range(len(shape.bindings)))),
    )


def _refuse_unproved(shape: Shape, unchanged: Sequence[np.ndarray]) -> None:
    """Refuse rows whose values would be those of a row before them that need not have what did not change."""
    for binding, mask in zip(shape.bindings, unchanged, strict=True):
        if not (binding.is_past or binding.is_mixed) or not mask.any():
            continue
        place = f"{shape.place}, column {binding.name}"
        if binding.is_past:
            message = (
                f"{place}: updated rows leave out a large value that did not change, and"
                " the last row before them may be missing here: rejected, or lost in a gap"
            )
        else:
            message = (
                f"{place}: updated rows leave out a large value that did not change, and"
                " another rule of the map made what the lake has of it"
            )
        raise DecodeError(message, hint=CARRY_ALL)


def _without_key(shape: Shape, changes: RowChanges, kept: Int32s) -> ChunkOutcome:
    """Return rows that nothing tells apart: with REPLICA IDENTITY FULL an old tuple has what is unchanged."""
    unresolved = tuples.fill_unchanged(changes, np.full(len(changes.tag), -1, np.int32))
    if len(unresolved):
        message = f"{place_of(shape.source, shape.table)}: an update leaves out a value and has no old row"
        raise DecodeError(message, hint="give the table REPLICA IDENTITY FULL or a primary key")
    return ChunkOutcome(
        rows=shape.rows(changes.new, kept), keys=Keys.empty(), written=np.empty(0, np.int32), aside=None, deleted=0
    )
