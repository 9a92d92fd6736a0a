"""Each table type's way with a chunk, chosen by the shape. Pure; runs on executors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from kuvasz.decode.tuples import RowChanges
from kuvasz.errors import DecodeError
from kuvasz.model import TableType, UInt32s
from kuvasz.modes import append, changelog, clone, history, keyless, rejects
from kuvasz.modes.clone import ChunkOutcome, Copied
from kuvasz.modes.row_rules import Evaluated
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts

_CHANGES: Mapping[TableType, Callable[[Shape, RowChanges, Facts | None], ChunkOutcome]] = {
    TableType.APPEND: append.apply_changes,
    TableType.HISTORY: history.apply_changes,
    TableType.CHANGELOG: changelog.apply_changes,
}

#: How a table goes on of which rows were rejected.
_STOP = "ALTER TABLE … REPLICA IDENTITY FULL has updates carry all values; or `on_bad_value: stop`, then retry"
#: What becomes of copied rows; they stay as they are for other types.
_COPIED: Mapping[TableType, Callable[[Shape, pa.Table, int], pa.Table]] = {
    TableType.HISTORY: history.copied,
    TableType.CHANGELOG: changelog.copied,
}


def apply_changes(
    shape: Shape,
    data: np.ndarray,
    lengths: UInt32s,
    facts: Facts | None = None,
    evaluated: Evaluated | None = None,
) -> ChunkOutcome:
    """Decode row messages of one relation version and make of them what the shape's table type wants.

    Args:
        shape: The shape of the relation.
        data: The messages, one after another.
        lengths: Bytes of each.
        facts: What the rows have of their transactions, for table types that want them.
        evaluated: What Spark made of them, if the shape has expressions.

    Raises:
        DecodeError: The bytes are not what the protocol says, or a value does not fit.
    """
    if _is_whole(evaluated):
        try:
            return _with_origins(shape, _apply(shape, shape.split(data, lengths, evaluated), facts), facts)
        except DecodeError:
            if not shape.rejects:
                raise
    sifted = rejects.sift(shape, shape.split(data, lengths, evaluated), facts)
    applied = _with_origins(shape, _apply(shape, sifted.changes, sifted.facts), sifted.facts)
    return dataclasses.replace(applied, rejected=sifted.rejected)


def _is_whole(evaluated: Evaluated | None) -> bool:
    """Whether expressions have values for all rows."""
    return evaluated is None or evaluated.failures is None


def _with_origins(shape: Shape, applied: ChunkOutcome, facts: Facts | None) -> ChunkOutcome:
    """Return what came of a chunk with what is to be written down if a row waits in vain."""
    aside = applied.aside
    if not shape.rejects or facts is None or aside is None or aside.messages is None:
        return applied
    return dataclasses.replace(applied, waiting=rejects.origins(facts, aside.messages))


def _apply(shape: Shape, changes: RowChanges, facts: Facts | None) -> ChunkOutcome:
    if shape.is_bag:
        return keyless.apply_changes(shape, changes, facts)
    if shape.mode is TableType.CLONE:
        applied = clone.apply_split(shape, changes, facts)
        may_be_old = shape.keeps_earlier or any(binding.is_past for binding in shape.bindings)
    else:
        applied = _CHANGES[shape.mode](shape, changes, facts)
        may_be_old = shape.rejects
    if may_be_old and applied.aside is not None:
        # The newest version that is here need not be the one before: that may have been rejected.
        message = f"{shape.place}: an update leaves out a large value, and a row before it may have been rejected"
        raise DecodeError(message, hint=append.CARRY_ALL if shape.mode is TableType.CLONE else _STOP)
    return applied


def read_copy(
    shape: Shape, data: bytes | bytearray | memoryview, evaluated: Evaluated | None = None, lsn: int = 0
) -> Copied:
    """Decode COPY text as it is; what does not fit is left out where the shape rejects it.

    Raises:
        DecodeError: A value does not fit.
    """
    if _is_whole(evaluated):
        try:
            return clone.apply_copy(shape, data, evaluated)
        except DecodeError:
            if not shape.rejects:
                raise
    cells, kept = clone.split_copied(shape, data, evaluated)
    sifted = rejects.sift_copied(shape, cells, kept, lsn)
    copied = clone.copied_of(shape, cells, sifted.kept)
    return dataclasses.replace(copied, rejected=sifted.rejected, stale=sifted.keys)


def apply_copy(
    shape: Shape, data: bytes | bytearray | memoryview, lsn: int, evaluated: Evaluated | None = None
) -> Copied:
    """Decode COPY text read at an LSN.

    Raises:
        DecodeError: A value does not fit.
    """
    copied = read_copy(shape, data, evaluated, lsn)
    if shape.is_bag:
        return dataclasses.replace(copied, keys=keyless.row_keys(shape, copied.rows))
    if shape.mode in _COPIED:
        return dataclasses.replace(copied, rows=_COPIED[shape.mode](shape, copied.rows, lsn))
    return copied
