"""Each table type's way with a chunk, chosen by the shape. Pure; runs on executors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from kuvasz.decode.tuples import RowChanges
from kuvasz.model import TableType, UInt32s
from kuvasz.modes import append, changelog, clone, history, keyless
from kuvasz.modes.clone import ChunkOutcome, Copied
from kuvasz.modes.row_rules import Evaluated
from kuvasz.modes.shape import Shape
from kuvasz.modes.transaction_facts import Facts

_CHANGES: Mapping[TableType, Callable[[Shape, RowChanges, Facts | None], ChunkOutcome]] = {
    TableType.APPEND: append.apply_changes,
    TableType.HISTORY: history.apply_changes,
    TableType.CHANGELOG: changelog.apply_changes,
}

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
    if shape.mode is TableType.CLONE and not shape.is_bag:
        return clone.apply_changes(shape, data, lengths, evaluated)
    apply = keyless.apply_changes if shape.is_bag else _CHANGES[shape.mode]
    return apply(shape, shape.split(data, lengths, evaluated), facts)


def apply_copy(
    shape: Shape, data: bytes | bytearray | memoryview, lsn: int, evaluated: Evaluated | None = None
) -> Copied:
    """Decode COPY text read at an LSN.

    Raises:
        DecodeError: A value does not fit.
    """
    copied = clone.apply_copy(shape, data, evaluated)
    if shape.is_bag:
        return dataclasses.replace(copied, keys=keyless.row_keys(shape, copied.rows))
    if shape.mode in _COPIED:
        return dataclasses.replace(copied, rows=_COPIED[shape.mode](shape, copied.rows, lsn))
    return copied
