"""What Spark runs for tables of the type `history`: jobs that read versions by position and write them anew."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from kuvasz.errors import InternalError, KuvaszError, LakeError
from kuvasz.fold.keys import Keys, hash_keys
from kuvasz.lake.executors.tasks import ReadKeys, read_scattered, slim_worker
from kuvasz.lake.files.data_file import (
    DataFile,
    DataFileWriter,
    read_columns,
    rows_of,
    with_schema,
    write_rows,
)
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format.layout import Layout, Values
from kuvasz.model import Int32s, Int64s, UInt32s
from kuvasz.modes import history, soft

Task = TypeVar("Task")
Done = TypeVar("Done")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a job's files are written."""

    properties: Mapping[str, str]
    schema: pa.Schema
    bounded: tuple[str, ...]
    layout: Layout

    def write(self, path: str, rows: pa.Table) -> tuple[tuple[DataFile, ...], Int32s | None]:
        """Write rows as the layout wants them; see `write_rows`."""
        return write_rows(self.properties, path, with_schema(rows, self.schema), self.bounded, self.layout)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where n rows lie."""

    files: tuple[str, ...]
    file_of: Int32s  #: per row: index into `files`
    position_of: Int32s

    def read(self, writing: Writing) -> pa.Table:
        """Return the rows."""
        return read_scattered(writing.properties, self.files, self.file_of, self.position_of, writing.schema)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Why a task came to nothing."""

    error: KuvaszError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloseTask:
    """n versions that end, if they are open."""

    places: Places
    us: Int64s
    is_gone: npt.NDArray[np.bool_]
    path: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloseDone:
    """What became of them, per version."""

    files: tuple[DataFile, ...]
    is_replaced: npt.NDArray[np.bool_]  #: it goes
    copy: Int32s  #: its row, counted through `files`, -1 if it has none
    floor: Int64s  #: the key's next version may not begin before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CloseVersions:
    """Read versions by position and write those that end with their end."""

    writing: Writing

    def __call__(self, tasks: Iterable[tuple[int, CloseTask]]) -> Iterator[tuple[int, CloseDone | Failed]]:
        """Yield (number, result)."""
        yield from _each(self._close, tasks)

    def _close(self, task: CloseTask) -> CloseDone:
        rows = task.places.read(self.writing)
        start, end = history.micros(rows, history.START), history.micros(rows, history.END)
        closed = history.close(start, end, task.us, task.is_gone)
        kept = np.flatnonzero(closed.is_copied)
        copy = np.full(len(start), -1, np.int32)
        copies = history.closed_rows(rows.take(pa.array(kept)), closed.end[kept], task.is_gone[kept])
        files, places = self.writing.write(task.path, copies)
        copy[kept] = np.arange(len(kept), dtype=np.int32) if places is None else places
        return CloseDone(files=files, is_replaced=closed.is_replaced, copy=copy, floor=closed.floor)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareTask:
    """n rows that were copied again, and the newest version that each one's key had before."""

    before: Places
    copied: Places
    us: int  #: when the copied ones begin
    path: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareDone:
    """What became of the versions from before, per version."""

    files: tuple[DataFile, ...]  #: of those that ended, with their ends
    is_same: npt.NDArray[np.bool_]  #: it is open and says what the copied row does
    is_replaced: npt.NDArray[np.bool_]  #: it goes
    floor: Int64s  #: the copied row may not begin before


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareVersions:
    """Read versions and copied rows by position, and write versions that are not as copied with their end."""

    writing: Writing
    seed: bytes

    def __call__(self, tasks: Iterable[tuple[int, CompareTask]]) -> Iterator[tuple[int, CompareDone | Failed]]:
        """Yield (number, result)."""
        yield from _each(self._compare, tasks)

    def _compare(self, task: CompareTask) -> CompareDone:
        before, copied = task.before.read(self.writing), task.copied.read(self.writing)
        start, end = history.micros(before, history.START), history.micros(before, history.END)
        mine, other = self._hash(before), self._hash(copied)
        is_same = (end == history.FOREVER_US) & (mine.hi == other.hi) & (mine.lo == other.lo)
        closed = history.close(start, end, np.full(len(start), task.us, np.int64), np.zeros(len(start), np.bool_))
        kept = np.flatnonzero(closed.is_copied & ~is_same)
        ended = history.closed_rows(before.take(pa.array(kept)), closed.end[kept], np.zeros(len(kept), np.bool_))
        files, _ = self.writing.write(task.path, ended)
        return CompareDone(
            files=files,
            is_same=is_same,
            is_replaced=closed.is_replaced & ~is_same,
            floor=np.where(is_same, task.us, closed.floor).astype(np.int64),
        )

    def _hash(self, rows: pa.Table) -> Keys:
        names = [name for name in rows.schema.names if name not in (history.START, history.END, history.DELETED)]
        return hash_keys([rows.column(name) for name in names], sid=None, seed=self.seed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """All versions that one chunk opened for some keys, and the floors below which none of them may begin."""

    places: Places
    key: Int32s  #: per version, from 0
    floors: Int64s  #: per key
    path: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoveDone:
    """Versions that were written anew."""

    files: tuple[DataFile, ...]
    newest: Int32s  #: per key: the row, counted through `files`, of its newest version


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoveVersions:
    """Write versions anew whose source's clock was set back."""

    writing: Writing

    def __call__(self, tasks: Iterable[tuple[int, MoveTask]]) -> Iterator[tuple[int, MoveDone | Failed]]:
        """Yield (number, result)."""
        yield from _each(self._move, tasks)

    def _move(self, task: MoveTask) -> MoveDone:
        rows, newest = history.moved(task.places.read(self.writing), task.key, task.floors)
        files, places = self.writing.write(task.path, rows)
        return MoveDone(files=files, newest=newest if places is None else places[newest])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTask:
    """A data file whose open versions end deleted: all of them, or those of one source."""

    source: str
    dead: Int64s  #: rows that are no more
    stays: Int64s  #: rows that stay open
    us: int
    path: str
    spec_id: int
    partition: Values
    sid: str | None = None  #: of the source,
    sid_id: int | None = None  #: and the id of the field that says whose a version is; None: all are the source's


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TruncateDone:
    """The file that takes its place; none if it had no open version."""

    files: tuple[DataFile, ...]
    positions: Int32s  #: new position per old one, -1 for rows that are no more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TruncateVersions:
    """Write data files anew, a row group at a time, with their open versions ended."""

    writing: Writing

    def __call__(self, tasks: Iterable[tuple[int, TruncateTask]]) -> Iterator[tuple[int, TruncateDone | Failed]]:
        """Yield (number, result)."""
        yield from _each(self._truncate, tasks)

    def _truncate(self, task: TruncateTask) -> TruncateDone:
        properties = self.writing.properties
        file = pq.ParquetFile(file_io(properties, task.source).new_input(task.source).open())
        is_alive = np.ones(file.metadata.num_rows, np.bool_)
        is_alive[task.dead] = False
        ends_now = is_alive & self._may_end(file)
        ends_now[task.stays] = False
        if task.sid_id is not None and ends_now.any():
            is_mine = np.zeros(len(ends_now), np.bool_)
            is_mine[rows_of(properties, task.source, task.sid_id, task.sid)] = True
            ends_now &= is_mine
        if not ends_now.any():
            return TruncateDone(files=(), positions=np.empty(0, np.int32))
        positions = np.where(is_alive, np.cumsum(is_alive) - 1, -1).astype(np.int32)
        # The partition is that of the rows' own columns, so it stays.
        layout = dataclasses.replace(self.writing.layout, spec_id=task.spec_id)
        writer = DataFileWriter(
            properties, task.path, self.writing.schema, self.writing.bounded, layout=layout, partition=task.partition
        )
        try:
            begin = 0
            for group in range(file.num_row_groups):
                rows = with_schema(file.read_row_group(group), self.writing.schema)
                alive = np.flatnonzero(is_alive[begin : begin + rows.num_rows])
                if len(alive):
                    writer.write(self._ended(rows.take(pa.array(alive)), task.us, ends_now[begin + alive]))
                begin += rows.num_rows
            return TruncateDone(files=(writer.close(),), positions=positions)
        except BaseException:
            writer.abandon()
            raise

    def _may_end(self, file: pq.ParquetFile) -> npt.NDArray[np.bool_]:
        """Return which versions are open."""
        if history.END not in file.schema_arrow.names:  # it is from before the table became a history
            return np.zeros(file.metadata.num_rows, np.bool_)
        return history.is_open(file.read(columns=[history.END]))

    def _ended(self, rows: pa.Table, us: int, ends_now: npt.NDArray[np.bool_]) -> pa.Table:
        return history.truncated(rows, us, ends_now)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TruncateSoft(TruncateVersions):
    """The same for a clone whose deleted rows stay: rows that live are deleted."""

    @override
    def _may_end(self, file: pq.ParquetFile) -> npt.NDArray[np.bool_]:
        if soft.DELETED_AT not in file.schema_arrow.names:  # it is from before deleted rows stayed
            return np.ones(file.metadata.num_rows, np.bool_)
        return soft.is_live(file.read(columns=[soft.DELETED_AT]))

    @override
    def _ended(self, rows: pa.Table, us: int, ends_now: npt.NDArray[np.bool_]) -> pa.Table:
        return soft.deleted(rows, us, ends_now)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadVersions:
    """Read the keys of data files again: of open versions, or of those that ended deleted."""

    keys: ReadKeys
    end_id: int
    deleted_id: int
    are_open: bool

    def __call__(self, paths: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Keys, UInt32s]]:
        """Yield (number, keys, their rows) per file, those that ended last last."""
        slim_worker()
        for number, path in paths:
            facts = read_columns(self.keys.properties, path, [self.end_id, self.deleted_id])
            end = history.micros(facts, str(self.end_id))
            is_deleted = pc.fill_null(facts.column(1).combine_chunks().cast(pa.bool_()), fill_value=False)
            is_wanted = end == history.FOREVER_US if self.are_open else is_deleted.to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(is_wanted)
            rows = rows[np.argsort(end[rows], kind="stable")]
            yield number, self.keys.read(path).take(rows), rows.astype(np.uint32)


def _each(run: Callable[[Task], Done], tasks: Iterable[tuple[int, Task]]) -> Iterator[tuple[int, Done | Failed]]:
    slim_worker()
    for number, task in tasks:
        try:
            yield number, run(task)
        except KuvaszError as error:
            yield number, Failed(error=error)
        except OSError as error:
            yield number, Failed(error=LakeError(f"storage failed: {error}", hint="it is tried again"))
        except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
            yield number, Failed(error=InternalError(f"a task failed: {traceback.format_exc(limit=8)}"))
