"""Where the rows of a table are: the position index, and the files that its numbers mean.

It describes one snapshot. `places` brings it up to the table's current one at the first use, from its last checkpoint
and the keys of files that are newer. What open transactions have changed lies over it, for them alone.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kuvasz.events import Event, EventLog
from kuvasz.index.positions import ABSENT, PositionIndex
from kuvasz.lake.files.files import FileTable
from kuvasz.lake.format.binding import no_earlier_version
from kuvasz.lake.table.checkpoints import Checkpoints
from kuvasz.lake.table.notes import SET_BACK_PROPERTY
from kuvasz.lake.table.recovery import KeyReader, Recovery
from kuvasz.lake.table.source_files import SourceFiles

if TYPE_CHECKING:
    from kuvasz.fold.keys import Keys
    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.lake.table.open_transactions import OpenTransaction, OpenTransactions
    from kuvasz.model import UInt32s

_log = EventLog(__name__)

#: In the folder of an index: keys that are read again.
_WAITING_KEYS = "keys"


class TableIndex:
    """The index of one table, whose lock is held.

    Args:
        table: The Iceberg table.
        definition: What it is.
        open_transactions: Its open ones.
        folder: Where it is kept.
        reader: Reads the keys of data files again.
        others: What processes keep of it in the store; None: nobody does.
    """

    def __init__(
        self,
        table: IcebergTable,
        definition: Definition,
        open_transactions: OpenTransactions,
        folder: Path,
        reader: KeyReader,
        others: IndexCheckpoints | None = None,
    ) -> None:
        self._table = table
        self._definition = definition
        self._open = open_transactions
        self.folder = folder
        self._reader = reader
        self.files = FileTable(definition.io_properties)
        self.snapshot_id: int | None = None  #: the snapshot that it describes
        self.sequence = 0  #: its sequence number, or that of an ancestor
        self.readings = 0  #: how often it had to learn what it had not brought itself
        self._places: PositionIndex | None = None
        self._checkpoints = Checkpoints(definition, self.files, others)
        self.sources = SourceFiles(definition, self.files, open_transactions, lambda: self.places)

    # Its life

    @property
    def is_open(self) -> bool:
        """Whether it describes a snapshot."""
        return self._places is not None

    @property
    def places(self) -> PositionIndex:
        """Key -> file and row of what is committed, or is about to be; errors as for `Recovery.run`."""
        return self._places or self.read()

    def read(self) -> PositionIndex:
        """Open it and bring it up to the current snapshot; errors as for `Recovery.run`."""
        self._note_set_back()
        shutil.rmtree(self.folder / _WAITING_KEYS, ignore_errors=True)  # of a process that was killed
        self._checkpoints.bring(self.folder, lambda: self._table.snapshots.rows)
        self._places = places = PositionIndex.open(self.folder)
        self.snapshot_id, self.sequence = self._checkpoints.recall(places)
        self.catch_up()
        return places

    def catch_up(self) -> None:
        """Describe the current snapshot; errors as for `Recovery.run`."""
        places = self._places
        assert places is not None
        try:
            self.readings += 1
            if self.snapshot_id is not None and not self._table.snapshots.goes_on_from(
                self.snapshot_id, self.sequence
            ):
                self._begin_anew(places)
            waiting = self.folder / _WAITING_KEYS
            read = Recovery(self._table, self._definition, self.files, self._open, places, self._reader, waiting)
            self._checkpoints.unsaved_files += read.run()
            places.mark()
            self._note_set_back()
            self.snapshot_id, self.sequence = self._table.snapshots.current_id, self._table.snapshots.sequence
        except BaseException:
            self.reset()  # files without their keys must not be taken for known the next time
            raise

    def _note_set_back(self) -> None:
        self._checkpoints.set_back = self._table.properties.get(SET_BACK_PROPERTY, "")

    def _begin_anew(self, places: PositionIndex) -> None:
        """Forget all: someone set the table back, and rows live again that it knows as dead."""
        _log.tell(Event.INDEX_SET_BACK, table=self._definition.name)
        places.clear()
        self.files.let_go()
        self._open.void(is_set_back=True)

    def note(self, rows: int, files: int) -> None:
        """Note that a commit with so many new rows in so many files was marked; now and then that is made durable."""
        self._checkpoints.count(self.places, rows, files, self.snapshot_id, self.sequence)

    def undo(self) -> None:
        """Take back what it was told since the last commit; open transactions stay as they are."""
        if self._places is not None:
            self._places.rollback()

    def reset(self) -> None:
        """Go back to the last checkpoint; what is newer is read from the table at the next use."""
        if self._places is not None:
            self._places.close()
            self._places = None
        self.files.let_go()
        self._open.void()

    def clear(self) -> None:
        """Have it read anew from nothing at the next use."""
        places = self._places or PositionIndex.open(self.folder)
        places.clear()
        places.close()
        self._places = None
        self.reset()

    def save(self) -> None:
        """Make it durable, so that the next start need not read keys."""
        if self._places is not None:
            self._checkpoints.save(self._places, self.snapshot_id, self.sequence)

    def close(self) -> None:
        """Make it durable, and close it."""
        if self._places is not None:
            self.save()
            self._places.close()
            self._places = None

    # Rows

    def lookup(self, keys: Keys, pending: OpenTransaction | None) -> tuple[UInt32s, UInt32s]:
        """Return where the newest row of each key is; an open transaction sees its own rows first."""
        if pending is None:
            return self.places.lookup(keys)
        newer_files, newer_rows = pending.overlay.lookup(keys)
        if pending.truncates is not None:
            return newer_files, newer_rows
        files, rows = self.places.lookup(keys)
        newer = newer_files != ABSENT
        return np.where(newer, newer_files, files), np.where(newer, newer_rows, rows)

    def insert(self, keys: Keys, files: UInt32s, rows: UInt32s, pending: OpenTransaction | None) -> None:
        """Note where the newest row of each key is now."""
        if pending is None:
            self.places.insert(keys, files, rows)
        else:
            pending.overlay.insert(keys, files, rows)
            pending.entries.append((keys, files, rows))

    def find_earlier(
        self, sources: Keys, source: str, source_of: Callable[[Keys], str] | None = None
    ) -> tuple[UInt32s, UInt32s]:
        """Return file number and position of the earlier versions that rows wait for.

        Args:
            sources: The keys under which they are.
            source: Whose they are.
            source_of: Says of one of the keys whose it is, if they are of several sources.

        Raises:
            TableError: One is not there.
        """
        files, rows = self.lookup(sources, self._open.get(source))
        is_lost = self.lost(files, rows)
        if is_lost.any():
            owner = source if source_of is None else source_of(sources.take(np.flatnonzero(is_lost)[:1]))
            raise no_earlier_version(owner, self._definition.name, int(np.count_nonzero(is_lost)))
        return files, rows

    def lost(self, files: UInt32s, rows: UInt32s) -> npt.NDArray[np.bool_]:
        """Say which rows are not in the table any more: the index does not forget deleted ones, but files do."""
        is_lost: npt.NDArray[np.bool_] = files == ABSENT
        for number in np.unique(files).tolist():
            if number in self.files and len(dead := self.files.dead(number)):
                is_lost |= (files == number) & np.isin(rows, np.fromiter(dead, np.uint32, len(dead)))
        return is_lost

    # Files

    def add_files(self, files: Sequence[DataFile], changeset: Changeset, sid: str | None) -> list[int]:
        """Take new files into a changeset; return their numbers. Of several sources, `sid` is None."""
        numbers = []
        for file in files:
            numbers.append(self.files.reserve())
            changeset.add(numbers[-1], file, self.owner_of(file, sid))
        return numbers

    def follow_open(self, changeset: Changeset) -> None:
        """Have open transactions delete rows where a commit that is there has moved them."""
        for pending in self._open.values():
            pending.changeset.follow(changeset.moved)

    def owner_of(self, file: DataFile, sid: str | None) -> str | None:
        """Return the sid of all rows of a file of several sources, if a partition has those of one alone."""
        if sid is not None or not self._definition.target.has_sid or file.sids is None:
            return sid
        return file.sids[0] if file.sids[0] == file.sids[1] else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """What the rows of a commit are worked out with; the table's lock is held."""

    definition: Definition  #: what the table is
    index: TableIndex  #: where its rows are
    open: OpenTransactions  #: what its sources have not ended yet


__all__ = ["TableIndex", "TableRows"]
