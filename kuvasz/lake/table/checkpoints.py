"""When and how the position index of a table is made durable, with the files that its numbers mean.

The index is a cache: without a checkpoint the keys are read from the table again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from kuvasz import failpoints
from kuvasz.lake.files.files import FileEntry

if TYPE_CHECKING:
    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.table.table import LakeTable

_log = logging.getLogger(__name__)

#: Entries after which the index is made durable although nobody stops.
CHECKPOINT_ENTRIES = 1 << 20


class Checkpoints:
    """The checkpoints of one table's index.

    Args:
        table: The table, whose lock is held.
    """

    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self._unsaved = 0  #: entries since the last one

    def recall(self, index: PositionIndex) -> None:
        """Take the table's files as they were at the checkpoint of an index that was just opened."""
        tag = index.tag
        if tag is not None and self._table.is_bag and tag.get("schema") != self._table.schema.schema_id:
            index.clear()  # whole rows are hashed, and rows have other columns now
        elif tag is not None and not self._take_files(tag):
            index.clear()

    def _take_files(self, tag: Mapping[str, object]) -> bool:
        """Take them, unless they have other numbers by now."""
        files, numbers = self._table.files, tag["files"]
        assert isinstance(numbers, dict)
        known = files.numbers()
        path_of = {number: path for path, number in known.items()}
        for number, path in numbers.items():
            if known.get(path, int(number)) != int(number) or path_of.get(int(number), path) != path:
                return False
        for number, path in numbers.items():
            files.add(FileEntry(number=int(number), path=path, rows=0, sid=None))
        files.next_number = max(files.next_number, int(str(tag["next"])))
        return True

    def count(self, index: PositionIndex, rows: int) -> None:
        """Note that so many entries came, and save the index if they are many by now."""
        self._unsaved += rows
        if self._unsaved >= CHECKPOINT_ENTRIES:
            self._shed(index)
            self.save(index)

    def save(self, index: PositionIndex) -> None:
        """Make the index durable, so that the next start need not read keys."""
        table = self._table
        files = {str(entry.number): entry.path for entry in table.files}
        failpoints.hit("before_checkpoint")
        try:
            index.checkpoint(
                {
                    "snapshot": table.snapshot_id, "files": files, "next": table.files.next_number,
                    "schema": table.schema.schema_id,
                }
            )  # fmt: skip
        except OSError as error:  # a disk without room: the next start reads keys from the table
            _log.warning("an index could not be kept", extra={
                "event": "index_unsaved", "table": table.name, "error": str(error)})  # fmt: skip
        failpoints.hit("after_checkpoint")
        self._unsaved = 0

    def _shed(self, index: PositionIndex) -> None:
        """Let the index forget keys that are gone, when they are as many as those that are there.

        It costs as much as all of them, so it is done once per as many new ones.
        """
        files = self._table.files
        live = sum(entry.rows - entry.dead_rows for entry in files)
        if index.entries <= 2 * live + CHECKPOINT_ENTRIES:
            return

        def is_dead(number: int) -> npt.NDArray[np.bool_] | Literal[True] | None:
            if number not in files:
                return True
            dead = files.dead(number)
            if not len(dead):
                return None
            mask = np.zeros(files[number].rows, np.bool_)
            mask[np.fromiter(dead, np.int64, len(dead))] = True
            return mask

        index.merge(is_dead)
