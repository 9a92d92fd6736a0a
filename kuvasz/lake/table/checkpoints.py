"""When and how the position index of a table is made durable, with the files that its numbers mean.

The index is a cache: without a checkpoint the keys are read from the table again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from kuvasz import failpoints
from kuvasz.events import Event, EventLog
from kuvasz.index import kept, manifest
from kuvasz.index import seed as index_seed
from kuvasz.lake.files.files import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.index.positions import PositionIndex
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import FileTable

_log = EventLog(__name__)

#: Marks checkpoints whose hashes of rows take a column that a file lacks for its default.
_DEFAULTS = "defaults"

#: Says which set-back of the table was the last one: snapshots that tell of it may be gone when it is read.
_SET_BACK = "set back"

#: Says with which seed the keys were hashed; earlier versions had all of it from the lake, and say nothing.
_SEED = "seed"

#: Entries, and files, after which the index is made durable although nobody stops. After a kill each file that is
#: newer costs some milliseconds of a core, however few rows are in it.
CHECKPOINT_ENTRIES = 1 << 20
CHECKPOINT_FILES = 64

#: And this part of the table's files at least: all of them are named in it.
_PART_OF_FILES = 8


def is_readable(tag: Mapping[str, Any], definition: Definition, set_back: str) -> bool:
    """Return whether a checkpoint can be read still.

    Args:
        tag: The checkpoint's.
        definition: What the table is; keys are hashed with its seed.
        set_back: The word of its property that says that someone set it back.
    """
    return tag.get(_SEED) == index_seed.mark(definition.seed) and tag.get(_SET_BACK, "") == set_back


class Checkpoints:
    """The checkpoints of one table's index.

    Args:
        definition: What the table is; its lock is held.
        files: Its files.
        others: What processes keep of it in the store, for whoever has the table next; None: nobody does.
    """

    def __init__(self, definition: Definition, files: FileTable, others: IndexCheckpoints | None = None) -> None:
        #: the word that is another one each time someone set the table back; empty: nobody has
        self.set_back = ""
        self._definition = definition
        self._files = files
        self._others = others
        self._unsaved = 0  #: entries since the last one
        self.unsaved_files = 0  #: files since then, also those of which the keys were read

    def bring(self, folder: Path, rows: Callable[[], int | None]) -> None:
        """Put what the store has in the place of an index on disk that is older, or none; once for each table.

        Args:
            folder: The index's, which nobody has open.
            rows: Says how many the table has; None: nobody knows. The store is not asked for a small one.
        """
        others, self._others, begin = self._others, None, time.monotonic()
        if others is None or ((count := rows()) is not None and count < kept.LEAST_ROWS):
            return
        name = self._definition.name
        try:
            found = others.bring(folder, lambda tag: self._is_better(tag, folder))
        except kept.Unusable as error:  # also what a process removed meanwhile that has just kept a newer one
            _log.tell(Event.INDEX_LEFT, table=name, place=others.place, error=str(error))
            return
        if found is not None:
            entries, seconds = sum(run.rows for run in found.runs), round(time.monotonic() - begin, 2)
            _log.tell(Event.INDEX_BROUGHT, table=name, place=others.place, rows=entries, seconds=seconds)

    def _is_better(self, tag: Mapping[str, Any], folder: Path) -> bool:
        """Whether a checkpoint is worth more than what is on disk: what can be read, and describes a later state."""
        if not self._is_readable(tag):
            return False
        try:
            own = manifest.read(folder)
        except manifest.DamagedManifestError:
            return True
        return own is None or not self._is_readable(own.tag) or own.tag["sequence"] < tag["sequence"]

    def _is_readable(self, tag: Mapping[str, Any]) -> bool:
        """Whether the keys of a checkpoint were hashed as they are now, and nobody set the table back since."""
        return is_readable(tag, self._definition, self.set_back)

    def recall(self, index: PositionIndex) -> tuple[int | None, int]:
        """Take the table's files as they were at the checkpoint of an index that was just opened.

        Returns:
            The snapshot that the index describes, None for nothing; and the sequence number as `save` had it.
        """
        tag = index.tag
        if tag is None:
            return None, 0
        now = (self._definition.schema.schema_id, True)
        # Whole rows are hashed, and rows have other columns now, or lacked their defaults.
        is_other = self._definition.is_bag and (tag.get("schema"), _DEFAULTS in tag) != now
        if is_other or not self._is_readable(tag) or not self._take_files(tag):
            index.clear()
            return None, 0
        return tag.get("snapshot"), tag.get("sequence", 0)

    def _take_files(self, tag: Mapping[str, object]) -> bool:
        """Take the files of a checkpoint, unless they have other numbers by now."""
        files, numbers = self._files, tag["files"]
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

    def count(self, index: PositionIndex, rows: int, files: int, snapshot_id: int | None, sequence: int) -> None:
        """Note that so many entries came with a snapshot, and save the index if these are many by now."""
        self._unsaved += rows
        self.unsaved_files += files
        if self._unsaved >= CHECKPOINT_ENTRIES:
            self._shed(index)
            self.save(index, snapshot_id, sequence)
        elif self.unsaved_files >= max(CHECKPOINT_FILES, len(self._files) // _PART_OF_FILES):
            self.save(index, snapshot_id, sequence)

    def save(self, index: PositionIndex, snapshot_id: int | None, sequence: int) -> None:
        """Make the index durable, so that the next start need not read keys.

        Args:
            index: The index.
            snapshot_id: What it describes.
            sequence: The snapshot's sequence number, or that of an ancestor.
        """
        files = {str(entry.number): entry.path for entry in self._files}
        failpoints.hit("before_checkpoint")
        try:
            index.checkpoint(
                {
                    "snapshot": snapshot_id, "sequence": sequence, "files": files, "next": self._files.next_number,
                    "schema": self._definition.schema.schema_id, _DEFAULTS: True,
                    _SEED: index_seed.mark(self._definition.seed), _SET_BACK: self.set_back,
                }
            )  # fmt: skip
        except OSError as error:  # a disk without room: the next start reads keys from the table
            _log.tell(Event.INDEX_UNSAVED, table=self._definition.name, error=str(error))
        failpoints.hit("after_checkpoint")
        self._unsaved = self.unsaved_files = 0

    def _shed(self, index: PositionIndex) -> None:
        """Let the index forget keys that are gone, when they are as many as those that are there.

        It costs as much as all of them, so it is done once per as many new ones.
        """
        files = self._files
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
