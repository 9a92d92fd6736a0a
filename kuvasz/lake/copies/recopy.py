"""A history whose source is copied again: what was stays, and what the copy shows otherwise is so from now on.

Of a copied row that is just what its key's open version says nothing is kept. Other copied rows become versions that
begin with the copy, and end the ones before them. Open versions of rows that the copy has not got end deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pyroaring import BitMap64

from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT
from kuvasz.lake.commit.history import HistoryWriter
from kuvasz.lake.executors.history_tasks import CompareDone, CompareTask, CompareVersions, Places
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.format import naming
from kuvasz.lake.table.table_index import TableRows
from kuvasz.model import UInt32s


class Recopy(HistoryWriter):
    """Works the commit of one such copy out. Use once.

    Args:
        table: The rows of the table, whose lock is held.
        jobs: Where reading and writing runs.
        properties: The properties of the FileIO.
        changeset: Takes the outcome.
        source: What is copied.
        sid: The sid of the source.
        us: When the copied versions begin, in µs since 1970.
    """

    def __init__(
        self,
        table: TableRows,
        jobs: Jobs,
        properties: Mapping[str, str],
        changeset: Changeset,
        *,
        source: str,
        sid: str | None,
        us: int,
    ) -> None:
        super().__init__(table, jobs, properties, changeset)
        self._source = source
        self._sid = sid
        self._us = us
        self._before = self._files_of(source, sid)
        self._stays: dict[int, BitMap64] = {}  #: file from before -> open versions that are as the copy has them

    def adopt(self, number: int, file: DataFile, keys: Keys) -> None:
        """Take a file of copied rows.

        Raises:
            KuvaszError: A job failed.
        """
        self._changeset.add(number, file, self._sid)
        files, rows = self._table.index.files.alive(*self._table.index.places.lookup(keys), self._changeset)
        is_new = np.ones(len(keys), np.bool_)
        floor = np.full(len(keys), self._us, np.int64)
        for part, done in self._compare(file.path, files, rows):
            is_new[part[done.is_same]] = False
            floor[part] = done.floor
            self._keep(files[part][done.is_same], rows[part][done.is_same])
            self._changeset.delete(files[part][done.is_replaced], rows[part][done.is_replaced])
            self._table.index.add_files(done.files, self._changeset, self._sid)
        fresh = np.flatnonzero(is_new).astype(np.uint32)
        if not len(fresh):
            self._changeset.obsolete.append(self._changeset.added.pop(number)[0].path)
            return
        known = np.flatnonzero(~is_new).astype(np.uint32)
        self._changeset.delete(np.full(len(known), number, np.uint32), known)
        self._table.index.places.insert(keys.take(fresh), number, fresh)
        late = np.flatnonzero(is_new & (floor > self._us))
        places = np.full(len(late), number, np.uint32)
        self._move(keys.take(late), floor[late], np.arange(len(late)), places, late.astype(np.uint32))

    def finish(self) -> None:
        """End what the copy has not got.

        Raises:
            KuvaszError: A job failed.
        """
        self._end_all(self._before, self._sid, self._us, self._stays)

    def _compare(self, path: str, files: UInt32s, rows: UInt32s) -> list[tuple[np.ndarray, CompareDone]]:
        found = np.flatnonzero(files != ABSENT)
        found = found[np.lexsort((rows[found], files[found]))]
        parts = self._parts(found)
        tasks = [
            CompareTask(
                before=self._places(files[part], rows[part]),
                copied=Places(
                    files=(path,), file_of=np.zeros(len(part), np.int32), position_of=part.astype(np.int32)
                ),
                us=self._us,
                path=naming.fresh(self._table.definition.location, self._source),
            )
            for part in parts
        ]
        done = self._run(CompareVersions(writing=self._writing, seed=self._table.definition.seed), tasks)
        return list(zip(parts, done, strict=True))

    def _keep(self, files: UInt32s, rows: UInt32s) -> None:
        for number in np.unique(files).tolist():
            mine = BitMap64(rows[files == number].astype(np.uint64))
            self._stays[number] = self._stays.get(number, BitMap64()) | mine
