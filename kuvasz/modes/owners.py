"""Whose the rows of a chunk are that holds several sources' changes. Pure; travels to executors with each task.

Rows of small sources are decoded, folded and written together, for what that costs is a matter of chunks and not of
rows. Their columns are alike; each message keeps its owner, whose sid is part of the row and of its key, so that one
source's changes never meet another's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kuvasz.decode.cells import Cells
from kuvasz.decode.tuples import RowChanges
from kuvasz.fold.fold import Folded
from kuvasz.fold.keys import Sids
from kuvasz.model import Int32s, TableName


class Owner(NamedTuple):
    """One of the sources whose changes make up a chunk; a tuple, for hundreds travel with each task of a fleet."""

    source: str
    table: TableName
    sid: str | None
    end: int  #: index one past its last message in the chunk


def attach(owners: Sequence[Owner], changes: RowChanges) -> RowChanges:
    """Return changes of which every row, old ones too, knows its owner."""
    ends = np.array([owner.end for owner in owners])
    whose = np.repeat(np.arange(len(owners), dtype=np.int32), np.diff(ends, prepend=0))
    return dataclasses.replace(
        changes,
        new=dataclasses.replace(changes.new, whose=whose),
        old=dataclasses.replace(changes.old, whose=whose[changes.old_row >= 0]),
    )


def sids(owners: Sequence[Owner], cells: Cells, rows: Int32s | None = None) -> Sids | None:
    """Return the sids of the given rows; None if the cells are of one source."""
    if cells.whose is None:
        return None
    return Sids(names=tuple(owner.sid for owner in owners), of=cells.whose if rows is None else cells.whose[rows])


def column(found: Sids) -> pa.Array:
    """Return the column that holds them."""
    return pa.array(found.names, pa.string()).take(pa.array(found.of))


def of_keys(changes: RowChanges, folded: Folded) -> Int32s | None:
    """Return the owner of each key that a fold touched; None if all are of one source."""
    whose = changes.new.whose
    if whose is None:
        return None
    found = np.zeros(len(folded.keys), np.int32)
    for key in (folded.taken, folded.given_up):
        rows = np.flatnonzero(key >= 0)
        found[key[rows]] = whose[rows]
    return found


__all__ = ["Owner", "attach", "column", "of_keys", "sids"]
