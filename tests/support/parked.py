"""What a parking log gives back, in a form that can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kuvasz.model import Truncation
from kuvasz.parking.ports import TransactionGroup
from kuvasz.route.parts import Change


def facts(change: Change) -> tuple:
    """Return a change as plain values."""
    if isinstance(change, Truncation):
        return dataclasses.astuple(change)
    runs = change.transactions
    arrays = change.lengths, runs.commit_lsn, runs.end_lsn, runs.commit_us, runs.xid, runs.row_end
    return change.source, change.relation, bytes(change.data), *(array.tolist() for array in arrays)


def rows(groups: Sequence[TransactionGroup]) -> list[tuple]:
    """Return the changes of groups as plain values."""
    return [facts(change) for group in groups for change in group.changes]
