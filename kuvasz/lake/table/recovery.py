"""Files and position index of a table, recovered from its current snapshot: all of it, or what is new to them.

At a start the index is as old as its last checkpoint, and other processes commit, too. Files that are gone leave the
index, and of files it does not know the keys are read.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kuvasz.errors import ForeignChange, InternalError, LakeError, TableError, place_of, retry_of
from kuvasz.events import Event, EventLog
from kuvasz.fold.fold import newest
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT, PositionIndex
from kuvasz.lake.files.files import entry_of
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format import member, naming
from kuvasz.lake.table.row_counts import RowCounts
from kuvasz.model import TableType, UInt32s

if TYPE_CHECKING:
    from kuvasz.lake.definition.definition import Definition
    from kuvasz.lake.files.files import FileTable
    from kuvasz.lake.files.live_file import LiveFile
    from kuvasz.lake.jvm.iceberg_table import IcebergTable
    from kuvasz.lake.table.open_transactions import OpenTransactions

_log = EventLog(__name__)

#: Files whose keys are in memory together when their order counts.
_ORDERED_FILES = 16

#: Rows from which on it takes less time to sort the keys of each file by themselves, and merge all files once.
_MANY_ROWS = 1 << 18


class KeyReader(Protocol):
    """How the keys of a table's data files are read again. A file is its number and its path."""

    def keys(self, files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
        """Yield each file's number, and the keys of its rows.

        Args:
            files: The files.
        """

    def keep(self, files: Sequence[tuple[int, str]], rows: Sequence[int], kept: KeyFiles) -> bool:
        """Keep the keys of all files, sorted; return False where one has a key twice.

        Args:
            files: The files.
            rows: How many each has.
            kept: Takes the keys.

        Raises:
            LakeError: There is no room for them.
        """

    def versions(self, files: Sequence[tuple[int, str]], *, are_open: bool) -> Iterable[tuple[int, Keys, UInt32s]]:
        """Yield each file's number, keys and rows of a history's versions.

        Args:
            files: The files.
            are_open: The open ones, or those that ended deleted.
        """


class EmptyReader:
    """Reads nothing: for who works without position indexes."""

    def keys(self, files: Sequence[tuple[int, str]]) -> Iterable[tuple[int, Keys]]:
        """Yield nothing."""
        del files
        return ()

    def keep(self, files: Sequence[tuple[int, str]], rows: Sequence[int], kept: KeyFiles) -> bool:
        """Keep nothing."""
        del files, rows, kept
        return False

    def versions(self, files: Sequence[tuple[int, str]], *, are_open: bool) -> Iterable[tuple[int, Keys, UInt32s]]:
        """Yield nothing."""
        del files, are_open
        return ()


def insert_found(table: str, index: PositionIndex, keys: Keys, number: int, rows: UInt32s) -> None:
    """Tell an index of the rows that a file of the table has, which another engine may have written.

    It may have put a key there twice. That is told, and for `kuvasz verify` to mend, but no reason to stop: as where
    it did so in two files, one of the rows is known from then on.

    Args:
        table: The table's name.
        index: The index.
        keys: The key of each row.
        number: The file's number.
        rows: Their positions in it.

    Raises:
        OSError: See `PositionIndex.insert`.
    """
    try:
        index.insert(keys, number, rows)
    except InternalError:
        last = newest(keys)
        if last.all():
            raise
        _log.tell(Event.KEYS_TWICE, table=table, rows=int(np.count_nonzero(~last)))
        index.insert(keys.take(last), number, rows[last])


class Recovery:
    """One recovery of one table. Use once.

    Args:
        table: The Iceberg table.
        definition: What it is.
        files: Its files, which are brought up to date.
        open_transactions: Its open ones.
        index: Its index, which is brought up to date.
        reader: Reads the keys of data files.
        folder: For keys that wait until all are read: 16 bytes a row. It goes again.
    """

    def __init__(
        self,
        table: IcebergTable,
        definition: Definition,
        files: FileTable,
        open_transactions: OpenTransactions,
        index: PositionIndex,
        reader: KeyReader,
        folder: Path,
    ) -> None:
        self._table = table
        self._definition = definition
        self._files = files
        self._open = open_transactions
        self._index = index
        self._reader = reader
        self._folder = folder
        self._live: dict[str, LiveFile] = {}  #: path -> file of the snapshot

    def run(self) -> int:
        """Make files and index describe the snapshot. If it fails, neither can be used any more.

        Returns:
            How many files were new to them.

        Raises:
            ForeignChange: An open transaction replaces rows of files that someone else removed.
            TableError: Nobody knows of which source table a file's rows are.
            LakeError: There is no room for keys that wait.
        """
        in_order = self._definition.target.type is not TableType.CLONE
        self._live = {file.data["file-path"]: file for file in self._table.live_files(in_order=in_order)}
        self._check_members()
        self._forget_gone()
        fresh = self._take_files()
        if fresh:
            _log.tell(Event.INDEX_READ, table=self._definition.name, files=len(fresh))
        self._read(fresh)
        self._files.all_found()
        return len(fresh)

    # Files

    def _check_members(self) -> None:
        """Refuse files of which nobody knows which of several source tables their rows are of."""
        has_members = self._definition.target.has_members
        strange = [path for path in self._live if member.in_path(path) is None] if has_members else []
        if strange:
            message = (
                f"{place_of(table=self._definition.name)}: file {strange[0]} was written by someone else and does"
                " not say of which source table its rows are"
            )
            hint = "drop the table from the lake: it is copied anew; leave compacting it to kuvasz"
            raise TableError(message, hint=hint)

    def _forget_gone(self) -> None:
        """Forget files that are gone, and all of them where the index has to be read from the start."""
        files, definition = self._files, self._definition
        self._check_open({number for path, number in files.numbers().items() if path not in self._live})
        gone = [entry.number for entry in files if entry.path not in self._live]
        if gone:
            self._index.drop_files(gone)
        for number in gone:
            files.remove(number)
        if (definition.is_growing and not self._has_only_grown(gone)) or (definition.is_bag and gone):
            files.let_go()
            self._open.void()
            self._index.clear()

    def _check_open(self, gone: Set[int]) -> None:
        name = self._definition.name
        for source, pending in self._open.items():
            if not pending.changeset.deletes.keys().isdisjoint(gone):
                message = (
                    f"{place_of(table=name)}: someone else rewrote files in the lake while a large transaction of"
                    f" source {source} was being applied"
                )
                raise ForeignChange(message, hint=f"begin the transaction again: {retry_of(name)}")

    def _has_only_grown(self, gone: Sequence[int]) -> bool:
        """Whether all files that are new to the index are newer than those it knows: else it is read from the start.

        Files that someone else rewrote have rows of any age.
        """
        known = [place for place, path in enumerate(self._live) if self._files.find(path) is not None]
        return not gone and known == list(range(len(known)))

    def _take_files(self) -> list[tuple[int, str]]:
        """Take the files of the snapshot; return number and path of those that are new."""
        files, sid_id = self._files, self._definition.sid_id
        fresh = []
        for path, file in self._live.items():
            known = files.find(path)
            entry = entry_of(file, files.number_of(path), sid_id)
            if known is None:
                fresh.append((entry.number, path))
            elif known.all_deletes == entry.all_deletes:
                entry.dead = known.dead
            files.add(entry)
        return fresh

    # The index

    def _read(self, files: Sequence[tuple[int, str]]) -> None:
        """Tell the index of the rows in new files."""
        if self._definition.target.type is TableType.HISTORY:
            self._read_history(files)
        elif self._definition.is_growing:
            self._read_grown(files)
        else:
            self._read_clone(files)

    def _read_clone(self, files: Sequence[tuple[int, str]]) -> None:
        if self._load(files):
            return
        for number, keys in self._keys_of(files):
            rows = self._alive(number, len(keys))
            if self._definition.is_bag:
                RowCounts(self._index.lookup, self._files).stack(self._index, keys.take(rows), number, rows)
            else:
                insert_found(self._definition.name, self._index, keys.take(rows), number, rows)

    def _load(self, files: Sequence[tuple[int, str]]) -> bool:
        """Tell the index of the rows of many files at once, if they have many and each key once."""
        rows = [int(self._live[path].data["record-count"]) for _, path in files]
        if self._definition.is_bag or not self._definition.identity or sum(rows) < _MANY_ROWS:
            return False
        with _for_a_while(self._folder):
            kept = KeyFiles(folder=self._folder, is_sorted=True)
            if not self._reader.keep(files, rows, kept):
                return False
            for number, path in files:
                dead = self._files.dead(number)
                if len(dead):
                    kept.leave_out_rows(path, np.fromiter(dead, np.uint32, len(dead)))
            try:
                self._index.load([(number, kept.records(path)) for number, path in files])
            except InternalError:  # another engine has put a key into two files
                return False
        return True

    def _alive(self, number: int, count: int) -> UInt32s:
        """Return the positions of a file's rows that are not deleted."""
        alive = np.ones(count, np.bool_)
        dead = self._files.dead(number)
        if len(dead):
            alive[np.fromiter(dead, np.int64, len(dead))] = False
        return np.flatnonzero(alive).astype(np.uint32)

    def _read_grown(self, files: Sequence[tuple[int, str]]) -> None:
        """Tell the index of the newest row of each key, as far as the files say which it is.

        Files of later commits are newer, and so are later rows of a file that keeps the order of the stream, as
        `naming.merged` says. A file that someone else merged, or compaction in a table with partitions, has rows of
        any age, and partitions and sorting lose the order within a commit: a key that may have a newer row elsewhere
        is sent nowhere, so that nobody takes an old value for its last one.
        """
        known_files, lies = self._files, self._definition.layout
        nowhere = known_files.reserve()
        path_of = dict(files)
        for number, found in self._keys_of(files):
            rows = self._alive(number, len(found))  # those of a source that was copied again are dead
            keys = found.take(rows)
            last = newest(keys)
            is_doubtful = ~last
            is_merged = not naming.tells_newest(path_of[number])
            known, _ = self._index.lookup(keys)
            for other in np.unique(known[known != ABSENT]).tolist():
                path = path_of.get(other) or (known_files[other].path if other in known_files else "")
                is_same_commit = self._sequence(path) == self._sequence(path_of[number])
                if (is_merged and not naming.is_copied(path)) or (is_same_commit and not lies.is_plain):
                    is_doubtful |= known == other
            if not is_merged and not lies.order:
                is_doubtful &= last
            self._index.insert(keys.take(last), number, rows[last])
            doubtful = keys.take(is_doubtful)
            self._index.insert(doubtful.take(newest(doubtful)), nowhere, rows[: int(newest(doubtful).sum())])

    def _sequence(self, path: str) -> int | None:
        """Return of which commit a file is."""
        file = self._live.get(path)
        return None if file is None else file.sequence

    def _read_history(self, files: Sequence[tuple[int, str]]) -> None:
        """Tell the index of the newest versions in files, oldest first: the open ones, else the last that ended."""
        place_of = {number: place for place, (number, _) in enumerate(files)}
        for are_open in (False, True):
            for begin in range(len(files), 0, -_ORDERED_FILES):
                found = self._reader.versions(files[max(0, begin - _ORDERED_FILES) : begin], are_open=are_open)
                for number, keys, rows in sorted(found, key=lambda triple: -place_of[triple[0]]):
                    dead = self._files.dead(number)
                    wanted = ~np.isin(rows, np.fromiter(dead, np.uint32, len(dead)))
                    if not are_open:
                        known, _ = self._files.alive(*self._index.lookup(keys))
                        wanted &= (known == ABSENT) & newest(keys)
                    insert_found(self._definition.name, self._index, keys.take(wanted), number, rows[wanted])

    def _keys_of(self, files: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Keys]]:
        """Yield the keys of files; in the order given where that says which of several rows is the newest."""
        if not self._definition.identity:
            return
        is_growing = self._definition.is_growing
        place_of = {number: place for place, (number, _) in enumerate(files)}
        step = _ORDERED_FILES if is_growing else max(1, len(files))
        for begin in range(0, len(files), step):
            found = self._reader.keys(files[begin : begin + step])
            yield from sorted(found, key=lambda pair: place_of[pair[0]]) if is_growing else found


@contextlib.contextmanager
def _for_a_while(folder: Path) -> Iterator[None]:
    """Have a folder that is gone afterwards."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LakeError(f"keys cannot be kept in {folder}: {error}", hint="make room; it is tried again") from error
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
