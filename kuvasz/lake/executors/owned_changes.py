"""Changes of several sources in one chunk, on executors: applied together, and told apart where one of them fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from kuvasz.errors import DecodeError
from kuvasz.model import UInt32s
from kuvasz.modes import dispatch
from kuvasz.modes.clone import ChunkOutcome
from kuvasz.modes.owners import Owner
from kuvasz.modes.shape import RefusedValue, Shape
from kuvasz.modes.transaction_facts import Facts


class RefusedOwner(Exception):
    """What one of several sources brought cannot be applied: `error`, that of the owner with this number."""

    def __init__(self, error: DecodeError, owner: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.owner = owner
        self.row = error.row if isinstance(error, RefusedValue) else -1  #: among the owner's messages


def apply_together(
    shape: Shape, owners: Sequence[Owner], data: np.ndarray, lengths: UInt32s, facts: Facts | None
) -> ChunkOutcome:
    """Do what `dispatch.apply_changes` does for messages of several sources whose columns are alike.

    Args:
        shape: The shape of one of these sources.
        owners: Whose the messages are.
        data: The messages, one after another.
        lengths: Bytes of each.
        facts: What the rows have of their transactions, for table types that want them.

    Raises:
        RefusedOwner: What one source brought cannot be applied.
    """
    try:
        return dispatch.apply_changes(dataclasses.replace(shape, owners=tuple(owners)), data, lengths, facts)
    except DecodeError:
        _find_refused(shape, owners, data, lengths, facts)
        raise


def _find_refused(
    shape: Shape, owners: Sequence[Owner], data: np.ndarray, lengths: UInt32s, facts: Facts | None
) -> None:
    """Apply each source's messages alone, so that the error names whose they are."""
    begin, byte = 0, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    for number, owner in enumerate(owners):
        alone = dataclasses.replace(shape, source=owner.source, table=owner.table, sid=owner.sid)
        mine = None if facts is None else facts.part(begin, owner.end)
        try:
            dispatch.apply_changes(alone, data[byte[begin] : byte[owner.end]], lengths[begin : owner.end], mine)
        except DecodeError as error:
            raise RefusedOwner(error, number) from error
        begin = owner.end


__all__ = ["RefusedOwner", "apply_together"]
