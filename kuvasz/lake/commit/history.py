"""Steps of a mini-transaction into a table of the type `history`: versions end, new ones begin.

The index knows the newest version of each key, open or not. A chunk's new versions are written by the executors
before anything is known of the lake; here the versions they end are found, read by position and written anew with
their end. Chunks of one table are worked out one after another; each has all the whole transactions there are, so
that there are few.

A transaction that comes in pieces gathers in `OpenTransaction`: where each key stands after it is known only at its
end, and only then the versions from before it end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from kuvasz.fold.fold import newest
from kuvasz.fold.keys import Keys
from kuvasz.index.positions import ABSENT
from kuvasz.lake.commit.bundles import Step, open_lsn
from kuvasz.lake.executors.history_tasks import (
    CloseDone,
    CloseTask,
    CloseVersions,
    Failed,
    MoveTask,
    MoveVersions,
    Places,
    TruncateSoft,
    TruncateTask,
    TruncateVersions,
    Writing,
)
from kuvasz.lake.executors.tasks import ChunkDone, CompleteRows, CompleteTask
from kuvasz.lake.files.data_file import DataFile, place_in, remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format import naming
from kuvasz.lake.format.binding import no_earlier_value, no_earlier_version
from kuvasz.lake.format.layout import Values
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.model import POSTGRES_EPOCH_US, Int32s, Int64s, Truncation, UInt32s
from kuvasz.modes.clone import EarlierLost
from kuvasz.modes.history import NEVER_US
from kuvasz.modes.soft import EarlierDeleted

if TYPE_CHECKING:
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.files.files import Changeset
    from kuvasz.lake.table.table_index import TableRows

Done = TypeVar("Done")

#: Versions that one task ends.
_TASK_ROWS = 1 << 17


class HistoryWriter:
    """Works one mini-transaction of one table out. Use once.

    Args:
        table: The rows of the table, whose lock is held.
        jobs: Where reading and writing runs.
        properties: The properties of the FileIO.
        changeset: Takes the outcome.
    """

    def __init__(self, table: TableRows, jobs: Jobs, properties: Mapping[str, str], changeset: Changeset) -> None:
        self._table = table
        self._jobs = jobs
        self._properties = properties
        self._changeset = changeset
        self._source = ""  #: whose changes are being taken
        self._writing = Writing(
            properties=properties,
            schema=table.definition.schema.arrow(),
            bounded=table.definition.bounded,
            layout=table.definition.layout,
        )

    def apply(self, step: Step, result: ChunkDone | Truncation, sid: str | None) -> None:
        """Apply one step, of one source.

        Raises:
            TableError: A row waits for an earlier version that is not there.
            KuvaszError: A job failed.
        """
        source, of = step.source, open_lsn(step)
        self._source = source
        if source in self._table.open and self._table.open[source].commit_lsn != of:
            self._close(source)
        if of and source not in self._table.open:
            self._table.open[source] = OpenTransaction(of)
            self._table.open[source].sid = sid
        pending = self._table.open.get(source)
        if isinstance(result, Truncation):
            us = result.commit_us + POSTGRES_EPOCH_US
            if pending is None:
                self.truncate(source, sid, us)
            else:
                remove(file_io(self._properties, self._table.definition.location), pending.changeset.paths())
                pending.clear()
                pending.truncates, pending.us = (sid,), us
        elif pending is None:
            self.chunk(result, source, sid)
        else:
            self._piece(result, source, sid, pending)

    def conclude(self, whole: Collection[str]) -> None:
        """Take in the open transactions of sources of which nothing goes on in later work; after the last step."""
        for source in self._table.open.keys() & whole:
            self._close(source)

    def _close(self, source: str) -> None:
        """Take in a transaction that came in pieces and is now whole."""
        table, changeset, self._source = self._table, self._changeset, source
        pending = table.open.pop(source)
        keys = Keys.concat([part for part, _, _ in pending.entries])
        files, rows = (
            np.concatenate([part[place] for part in pending.entries] or [np.empty(0, np.uint32)]) for place in (1, 2)
        )
        last = np.flatnonzero(newest(keys))
        keys, files, rows = keys.take(last), files[last], rows[last]
        stays = files != ABSENT
        # What a TRUNCATE takes away needs no look-up of its own.
        ends = stays if pending.truncates is not None else np.ones(len(stays), np.bool_)
        us = np.full(len(keys), pending.us, np.int64)
        floor = np.full(len(keys), NEVER_US, np.int64)
        floor[ends] = self._end(keys.take(ends), us[ends], ~stays[ends], pending.sid)
        if pending.truncates is not None:
            self.truncate(source, pending.truncates[0], pending.us)
        changeset.merge(pending.changeset)
        table.index.places.insert(keys.take(stays), files[stays], rows[stays])
        late = np.flatnonzero(stays & (floor > us))
        self._move(keys.take(late), floor[late], np.arange(len(late)), files[late], rows[late])

    # Steps

    def chunk(self, done: ChunkDone, source: str, sid: str | None) -> None:
        """Take what came of a chunk of whole transactions; errors as for `apply`."""
        table, self._source = self._table, source
        assert done.keys is not None
        assert done.written is not None
        assert done.closings is not None
        own = self._add(done, source, sid, None)
        has_version = done.written >= 0
        closings = done.closings
        floor = self._end(done.keys, closings.us, closings.is_gone, sid, keep=has_version)
        files, rows = own.find(done.written[has_version])
        table.index.places.insert(done.keys.take(has_version), files, rows)
        late = np.flatnonzero(floor > closings.first_start)
        if len(late):
            again = np.flatnonzero(np.isin(closings.key_of, late))
            files, rows = own.find(again)
            key = np.searchsorted(late, closings.key_of[again])
            self._move(done.keys.take(late), floor[late], key, files, rows)

    def _piece(self, done: ChunkDone, source: str, sid: str | None, pending: OpenTransaction) -> None:
        assert done.keys is not None
        assert done.written is not None
        assert done.closings is not None
        own = self._add(done, source, sid, pending)
        before_files, before_rows = pending.overlay.lookup(done.keys)
        known = before_files != ABSENT
        pending.changeset.delete(before_files[known], before_rows[known])
        has_version = done.written >= 0
        files, rows = np.full(len(done.keys), ABSENT, np.uint32), np.full(len(done.keys), ABSENT, np.uint32)
        files[has_version], rows[has_version] = own.find(done.written[has_version])
        pending.overlay.insert(done.keys.take(has_version), files[has_version], rows[has_version])
        pending.entries.append((done.keys, files, rows))
        if len(done.closings.us):
            pending.us = int(done.closings.us[0])

    def _add(self, done: ChunkDone, source: str, sid: str | None, pending: OpenTransaction | None) -> _Own:
        """Take a chunk's file, and write the rows that wait for their earlier versions; return the two numbers."""
        table = self._table
        layer = self._changeset if pending is None else pending.changeset
        own = _Own(done.files, table.index.add_files(done.files, layer, sid))
        if done.sources is None:
            return own
        assert done.aside is not None
        files, rows = table.index.find_earlier(done.sources, source)
        places = self._places(files, rows)
        task = CompleteTask(
            aside=done.aside, unchanged=done.unchanged, files=places.files, file_of=places.file_of,
            position_of=places.position_of, path=naming.fresh(table.definition.location, source, done.order),
            bounded=table.definition.bounded, layout=table.definition.layout, waits=done.waits,
            is_value=done.is_value, table_type=table.definition.target.type,
        )  # fmt: skip
        ((_, completed),) = self._jobs.run(CompleteRows(properties=self._properties), [(0, task)], [1])
        if isinstance(completed.error, EarlierDeleted):
            raise no_earlier_version(source, table.definition.name, 1)
        if isinstance(completed.error, EarlierLost):
            raise no_earlier_value(source, table.definition.name, completed.error.field)
        if completed.error is not None:
            raise completed.error
        own.add(completed.files, table.index.add_files(completed.files, layer, sid), completed.written)
        return own

    def _end(
        self,
        keys: Keys,
        us: Int64s,
        is_gone: npt.NDArray[np.bool_],
        sid: str | None,
        keep: npt.NDArray[np.bool_] | None = None,
    ) -> Int64s:
        """End the newest versions of n keys, as far as they are open; n times.

        Args:
            keys: The keys.
            us: When.
            is_gone: The key has no version from then on.
            sid: The sid of the keys' source.
            keep: Keys that get another version anyway; those that are not gone if it is not given.

        Returns:
            Per key the time before which its next version may not begin.
        """
        table = self._table
        floor = np.full(len(keys), NEVER_US, np.int64)
        files, rows = table.index.files.alive(*table.index.places.lookup(keys), self._changeset)
        found = np.flatnonzero(files != ABSENT)
        # Rows of one file together: a task then reads few files.
        found = found[np.lexsort((rows[found], files[found]))]
        parts = self._parts(found)
        tasks = [
            CloseTask(
                places=self._places(files[part], rows[part]), us=us[part], is_gone=is_gone[part],
                path=naming.fresh(table.definition.location, self._source),
            )
            for part in parts
        ]  # fmt: skip
        will_stay = ~is_gone if keep is None else keep
        for part, done in zip(parts, self._run(CloseVersions(writing=self._writing), tasks), strict=True):
            assert isinstance(done, CloseDone)
            floor[part] = done.floor
            self._changeset.delete(files[part][done.is_replaced], rows[part][done.is_replaced])
            numbers = table.index.add_files(done.files, self._changeset, sid)
            stays = (done.copy >= 0) & ~will_stay[part]
            if stays.any():
                table.index.places.insert(keys.take(part[stays]), *place_in(done.files, numbers, done.copy[stays]))
        return floor

    def _move(self, keys: Keys, floors: Int64s, key: npt.NDArray[np.intp], files: UInt32s, rows: UInt32s) -> None:
        """Write versions anew that begin before what was there before them ended: the source's clock was set back.

        Args:
            keys: n keys.
            floors: n times.
            key: Per version its key's number.
            files: Per version where it is.
            rows: And its row there.
        """
        if not len(keys):
            return
        task = MoveTask(
            places=self._places(files, rows), key=key.astype(np.int32), floors=floors,
            path=naming.fresh(self._table.definition.location, self._source),
        )  # fmt: skip
        (done,) = self._run(MoveVersions(writing=self._writing), [task])
        owner = self._changeset.added[int(files[0])][1]
        self._changeset.delete(files, rows)
        numbers = self._table.index.add_files(done.files, self._changeset, owner)
        self._table.index.places.insert(keys, *place_in(done.files, numbers, done.newest))

    def truncate(self, source: str, sid: str | None, us: int, *, is_soft: bool = False) -> None:
        """End all open versions of a source as deleted: the files that have any are written anew.

        Args:
            source: The source.
            sid: Its sid.
            us: When, in µs since 1970.
            is_soft: Whether it is rows of a clone that are deleted, and stay.
        """
        self._source = source
        job = (TruncateSoft if is_soft else TruncateVersions)(writing=self._writing)
        changeset, sources = self._changeset, self._table.index.sources
        numbers = [number for number in self._files_of(source, sid) if number not in changeset.dropped]
        numbers += [
            number for number, (file, owner) in changeset.added.items()
            if sources.is_of(file.path, owner, source, sid) or sources.is_shared(file.path, owner, source)
        ]  # fmt: skip
        self._end_all(numbers, sid, us, {}, job)

    def _files_of(self, source: str, sid: str | None) -> list[int]:
        """Return the numbers of the table's files that hold versions of a source, or may."""
        sources = self._table.index.sources
        return [*sources.numbers(source, sid), *(entry.number for entry in sources.shared(source, sid))]

    def _end_all(
        self,
        numbers: Sequence[int],
        sid: str | None,
        us: int,
        stays: Mapping[int, BitMap64],
        job: TruncateVersions | None = None,
    ) -> None:
        """End a source's open versions in files as deleted, but those that stay: files with any are written anew.

        Other sources' versions in these files stay as they are.
        """
        table, changeset = self._table, self._changeset
        owners = [self._owner_of(number) for number in numbers]
        tasks = [
            TruncateTask(
                source=self._path(number),
                dead=self._dead(number),
                stays=_positions(stays.get(number)),
                us=us,
                path=naming.fresh(table.definition.location, self._source),
                spec_id=self._layout_of(number)[0],
                partition=self._layout_of(number)[1],
                sid=sid,
                sid_id=table.definition.sid_id if owner is None else None,
            )
            for number, owner in zip(numbers, owners, strict=True)
        ]
        moves = {}
        outcomes = self._run(job or TruncateVersions(writing=self._writing), tasks)
        for number, owner, done in zip(numbers, owners, outcomes, strict=True):
            if not done.files:
                continue
            changeset.deletes.pop(number, None)
            if number in changeset.added:
                changeset.obsolete.append(changeset.added.pop(number)[0].path)
            else:
                changeset.dropped.add(number)
            (fresh,) = table.index.add_files(done.files, changeset, owner)
            moves[number] = changeset.moved[number] = (fresh, done.positions)
        table.index.places.remap(moves)

    # Places

    def _parts(self, found: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
        """Return what each task of a job over so many versions gets."""
        step = max(1024, min(_TASK_ROWS, -(-len(found) // self._jobs.parallelism)))
        return [found[begin : begin + step] for begin in range(0, len(found), step)]

    def _owner_of(self, number: int) -> str | None:
        added = self._changeset.added
        return added[number][1] if number in added else self._table.index.files[number].sid

    def _layout_of(self, number: int) -> tuple[int, Values]:
        if number in self._changeset.added:
            file = self._changeset.added[number][0]
            return file.spec_id, file.partition
        entry = self._table.index.files[number]
        return entry.spec_id, entry.partition

    def _dead(self, number: int) -> npt.NDArray[np.int64]:
        dead = self._changeset.deletes.get(number)
        if number in self._table.index.files:
            known = self._table.index.files.dead(number)
            dead = known if dead is None else known | dead
        return _positions(dead)

    def _places(self, files: UInt32s, rows: UInt32s) -> Places:
        numbers, file_of = np.unique(files, return_inverse=True)
        return Places(
            files=tuple(self._path(int(number)) for number in numbers),
            file_of=file_of.astype(np.int32),
            position_of=rows.astype(np.int32),
        )

    def _path(self, number: int) -> str:
        for layer in (self._changeset, *(pending.changeset for pending in self._table.open.values())):
            if number in layer.added:
                return layer.added[number][0].path
        return self._table.index.files[number].path

    def _run(self, job: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]) -> list[Any]:
        """Return the outcome of each task.

        Raises:
            KuvaszError: A task failed.
        """
        if not tasks:
            return []
        found = dict(self._jobs.run(job, list(enumerate(tasks)), [1] * len(tasks)))
        for done in found.values():
            if isinstance(done, Failed):
                self._forget(found.values())
                raise done.error
        return [found[number] for number in range(len(tasks))]

    def _forget(self, outcomes: Iterable[Any]) -> None:
        paths = [file.path for done in outcomes if not isinstance(done, Failed) for file in done.files]
        remove(file_io(self._properties, self._table.definition.location), paths)


def _positions(rows: BitMap64 | None) -> Int64s:
    return np.empty(0, np.int64) if rows is None else np.fromiter(rows, np.int64, len(rows))


class _Own:
    """Where the rows of a chunk are: those written at once, and behind them those that waited."""

    def __init__(self, files: Sequence[DataFile], numbers: Sequence[int]) -> None:
        self._files = tuple(files)
        self._numbers = list(numbers)
        self._rows = sum(file.rows for file in files)
        self._order: Int32s | None = None  #: of those that waited

    def add(self, files: Sequence[DataFile], numbers: Sequence[int], order: Int32s | None) -> None:
        """Take the files of rows that waited."""
        self._files += tuple(files)
        self._numbers += numbers
        self._order = order

    def find(self, numbers: npt.NDArray[np.integer[Any]]) -> tuple[UInt32s, UInt32s]:
        """Return file number and position of rows."""
        rows: Int32s = numbers.astype(np.int32)
        if self._order is not None:
            waited = rows >= self._rows
            rows[waited] = self._rows + self._order[rows[waited] - self._rows]
        return place_in(self._files, self._numbers, rows)
