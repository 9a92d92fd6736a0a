"""Rows of a clone without a key, while a commit is worked out: of equal rows the last copies go, others follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kuvasz.errors import TableError, place_of, resync_of
from kuvasz.lake.files.data_file import place_in
from kuvasz.lake.table.row_counts import RowCounts
from kuvasz.modes.keyless import RowCopies, copy_keys

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.lake.executors.tasks import ChunkDone
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.open_transactions import OpenTransaction
    from kuvasz.lake.table.table_index import TableIndex


class KeylessRows:
    """The rows of one table while one commit is worked out.

    Args:
        name: The name of the table.
        index: Its index.
        layers: What the commit has changed so far, with the open transaction's part if there is one.
        pending: The open transaction.
    """

    def __init__(
        self, name: str, index: TableIndex, layers: Sequence[Changeset], pending: OpenTransaction | None
    ) -> None:
        self._name = name
        self._index = index
        self._layers = layers
        self._pending = pending
        self._counts = RowCounts(lambda keys: index.lookup(keys, pending), index.files, layers)

    def apply(self, done: ChunkDone, source_of: Callable[[Keys], str], sid: str | None) -> None:
        """Apply the results of a chunk.

        Args:
            done: The results.
            source_of: Says of one of its keys whose it is.
            sid: The sid of the chunk's rows; None if they are of several sources.

        Raises:
            TableError: A row that goes is not there.
        """
        assert done.keys is not None
        assert done.written is not None
        assert done.delta is not None
        layer = self._layers[-1]
        before = self._counts.of(done.keys)
        after = before + done.delta
        if (after < 0).any():
            source = source_of(done.keys.take(np.flatnonzero(after < 0)[:1]))
            message = (
                f"{place_of(source, self._name)}: {int(-after[after < 0].sum())} rows that were changed or"
                " deleted are not in the lake"
            )
            raise TableError(message, hint=f"copy the table again: {resync_of(self._name)}")
        gone = RowCopies.between(after, before)
        layer.delete(*self._index.lookup(copy_keys(done.keys.take(gone.of), gone.number), self._pending))
        came = RowCopies.between(before, after)
        rows = (done.written[came.of] + (came.number - before[came.of])).astype(np.int32)
        if done.places is not None:
            rows = done.places[rows]
        files, positions = place_in(done.files, self._index.add_files(done.files, layer, sid), rows)
        self._index.insert(copy_keys(done.keys.take(came.of), came.number), files, positions, self._pending)


__all__ = ["KeylessRows"]
