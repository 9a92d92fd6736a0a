"""What a repair makes of deleted rows where they stay: those that the source lacks are deleted as of its snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kuvasz.fold.difference import Difference, DifferenceKind
from kuvasz.index.positions import ABSENT
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.executors.tasks import CompleteRows, CompleteTask, to_ipc
from kuvasz.lake.format import naming
from kuvasz.modes import soft

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.copies.order import Order
    from kuvasz.lake.files.files import Changeset
    from kuvasz.model import Int32s

#: Rows that one task writes.
_TASK_ROWS = 1 << 17


class SoftDeletions:
    """The deleted rows of one repair, under the lock of its table.

    Args:
        order: What is repaired.
        changeset: Takes the outcome.
        at_us: When the source's snapshot was taken, in µs since 1970.
    """

    def __init__(self, order: Order, changeset: Changeset, at_us: int) -> None:
        self._order = order
        self._table = order.table
        self._changeset = changeset
        self._at_us = at_us

    def keep(self, difference: Difference) -> None:
        """Have the rows that the source lacks stay as deleted ones; those that live go.

        Raises:
            KuvaszError: They could not be written.
        """
        table, order = self._table, self._order
        gone = np.flatnonzero(difference.kinds[difference.owner] == DifferenceKind.EXTRA)
        gone = gone[np.unique(difference.owner[gone], return_index=True)[1]]
        gone = gone[np.lexsort((difference.places[gone], difference.files[gone]))]  # of few files each
        parts = [gone[begin : begin + _TASK_ROWS].astype(np.int32) for begin in range(0, len(gone), _TASK_ROWS)]
        tasks = [(number, self._task(difference, part)) for number, part in enumerate(parts)]
        if not tasks:
            return
        done = dict(order.jobs.run(CompleteRows(properties=order.properties), tasks, [1] * len(tasks)))
        numbered = {
            number: [(table.index.files.reserve(), file) for file in one.files] for number, one in done.items()
        }
        for files in numbered.values():
            for number, file in files:
                self._changeset.add(number, file, order.sid)
        for number, part in enumerate(parts):
            one = done[number]
            if one.error is not None:
                raise one.error
            keys = difference.keys.take(difference.owner[part])
            ordered = keys if one.written is None else keys.take(np.argsort(one.written).astype(np.int32))
            ends = np.cumsum([file.rows for file in one.files]).tolist()
            of_each = [ordered.take(slice(begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]
            Resolution(table.rows, self._changeset).adopt(numbered[number], of_each, order.sid)

    def let_go(self, keys: Keys) -> None:
        """Have the rows go that stand, deleted, under keys that the source has."""
        index = self._table.index
        files, rows = index.files.alive(*index.places.lookup(keys))
        found = files != ABSENT
        self._changeset.delete(files[found], rows[found])

    def _task(self, difference: Difference, part: Int32s) -> CompleteTask:
        table = self._table
        schema = table.definition.schema.arrow()
        numbers, file_of = np.unique(difference.files[part], return_inverse=True)
        nothing = [pa.nulls(len(part), field.type) for field in schema]
        at = schema.get_field_index(soft.DELETED_AT)
        nothing[at] = soft.deleted_at(np.full(len(part), self._at_us, np.int64), np.zeros(len(part), np.bool_))
        return CompleteTask(
            aside=to_ipc(pa.Table.from_arrays(nothing, schema=schema)),
            unchanged=tuple(np.ones(len(part), np.bool_) for _ in schema),
            files=tuple(table.index.files[int(number)].path for number in numbers),
            file_of=file_of.astype(np.int32),
            position_of=difference.places[part].astype(np.int32),
            path=naming.fresh(table.definition.location, self._order.feed.source),
            bounded=table.definition.bounded,
            layout=table.definition.layout,
            is_soft=True,
        )


__all__ = ["SoftDeletions"]
