"""What Spark runs on its executors: one class per job, pickled with all it needs, called with an iterator of tasks.

Everything here is safe to repeat: a task that runs twice writes the same file under the same name.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import gc
import io
import traceback
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kuvasz.decode import tuples
from kuvasz.errors import DecodeError, InternalError, KuvaszError, LakeError
from kuvasz.fold.keys import Keys, Sids, hash_keys
from kuvasz.lake.executors.owned_changes import RefusedOwner, apply_together
from kuvasz.lake.executors.refused_rows import RefusedPart, packed
from kuvasz.lake.files.data_file import (
    DataFile,
    DataFileWriter,
    read_fields,
    read_rows,
    remove,
    with_schema,
    write_rows,
)
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format import member
from kuvasz.lake.format.layout import Layout
from kuvasz.model import NO_OPERATIONS, Int32s, Operations, TableType
from kuvasz.modes import changelog, clone, dispatch, soft
from kuvasz.modes.clone import Closings
from kuvasz.modes.owners import Owner
from kuvasz.modes.row_rules import Evaluated
from kuvasz.modes.shape import RefusedValue, Shape
from kuvasz.modes.transaction_facts import Facts
from kuvasz.ports import CopyRequest
from kuvasz.seal.sealing_key import SealDamaged, SealingKey

Task = TypeVar("Task", "ChunkTask", "CompleteTask")

#: Raw text of a copy that is held together to be divided into partitions and sorted: fewer and better files for it.
_PORTION_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSlice:
    """Where raw bytes lie in a spool file."""

    path: str
    offset: int
    size: int  #: as they lie there
    seal: SealingKey | None = None  #: that they lie under

    def read(self, properties: Mapping[str, str]) -> bytes | memoryview:
        """Return the bytes, as they were before they were sealed.

        Raises:
            OSError: They cannot be read, or are not what was written.
        """
        if "://" not in self.path:
            with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 (hot path)
                file.seek(self.offset)
                return file.read(self.size) if self.seal is None else self._open(self.seal, file)
        with file_io(properties, self.path).new_input(self.path).open() as stream:
            stream.seek(self.offset)
            found = bytes(stream.read(self.size))
        return found if self.seal is None else self._open(self.seal, io.BytesIO(found))

    def _open(self, seal: SealingKey, stream: Any) -> memoryview:  # noqa: ANN401 (as `SealingKey.open` takes it)
        try:
            return seal.open(stream, self.size)
        except SealDamaged as error:
            raise OSError(errno.EIO, str(error), self.path) from error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTask:
    """Row messages of one relation version, lying in a spool file: lengths (uint32) first, then the messages.

    Without lengths and data it is a TRUNCATE that becomes a row.
    """

    shape: int  #: index into the job's shapes
    count: int
    lengths: SpoolSlice | None
    data: SpoolSlice | None
    path: str  #: of the data file to write
    order: int  #: among the table's chunks of this process
    facts: SpoolSlice | None = None  #: for table types that want them
    owners: tuple[Owner, ...] = ()  #: whose the messages are, if several sources' whose shapes are alike


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDone:
    """What came of a chunk. With `error` nothing else counts.

    Large because it is all that comes back from an executor, whatever the table type.
    """

    files: tuple[DataFile, ...] = ()  #: none if every row was deleted, or all wait for their earlier version
    keys: Keys | None = None
    #: As in `clone.ChunkOutcome`; rows are counted through all files, in their order. After `CompleteRows`: the same
    #: for each row that waited, None if they lie in one file as they were.
    written: Int32s | None = None
    aside: bytes | None = None  #: Arrow IPC of the rows that wait
    unchanged: tuple[np.ndarray, ...] = ()
    sources: Keys | None = None
    waits: Int32s | None = None  #: as in `clone.Aside`
    is_value: tuple[bool, ...] = ()  #: as in `clone.Aside`
    waiting: bytes | None = None  #: Arrow IPC of `clone.ChunkOutcome.waiting`
    order: int = 0  #: as in `ChunkTask`
    closings: Closings | None = None
    delta: Int32s | None = None  #: as in `clone.ChunkOutcome`
    operations: tuple[Operations, ...] = ()  #: per source of the chunk
    rejected: bytes | None = None  #: what was left out of it: see `kuvasz.lake.executors.refused_rows`
    places: Int32s | None = None  #: where each row of a chunk came to be; None: as they were
    whose: Int32s | None = None  #: as in `clone.ChunkOutcome`
    error: KuvaszError | None = None
    owner: int = -1  #: of the error: whose it is, if the chunk is of several sources and that is known
    row: int = -1  #: of the error, in the chunk, among the rows of its owner


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChunks:
    """Decode, fold and write chunks of row messages."""

    shapes: tuple[Shape, ...]
    bounded: tuple[tuple[str, ...], ...]  #: per shape
    layouts: tuple[Layout, ...]  #: per shape
    properties: Mapping[str, str]

    def __call__(self, tasks: Iterable[tuple[int, ChunkTask]]) -> Iterator[tuple[int, ChunkDone]]:
        """Yield (number, result) in any order; errors are results, so one table cannot fail another's chunks."""
        slim_worker()
        for number, task in tasks:
            yield number, self.apply(task)

    def apply(self, task: ChunkTask, evaluated: Evaluated | None = None) -> ChunkDone:
        """Carry out one task; errors are results.

        Args:
            task: The chunk.
            evaluated: What Spark made of it, if its shape has expressions.
        """
        return _guarded(lambda one: self._apply(one, evaluated), task)

    def _apply(self, task: ChunkTask, evaluated: Evaluated | None = None) -> ChunkDone:
        shape = self.shapes[task.shape]
        facts = None if task.facts is None else Facts.from_bytes(task.facts.read(self.properties))
        if task.lengths is None or task.data is None:
            assert facts is not None
            rows = changelog.apply_truncations(shape, facts)
            bounded, layout = self.bounded[task.shape], self.layouts[task.shape]
            files, _ = write_rows(self.properties, task.path, rows, bounded, layout)
            none = (NO_OPERATIONS,)
            return ChunkDone(
                files=files, keys=Keys.empty(), written=np.empty(0, np.int32), operations=none, order=task.order
            )
        lengths = np.frombuffer(task.lengths.read(self.properties), np.uint32)
        data = np.frombuffer(task.data.read(self.properties), np.uint8)
        if task.owners:
            applied = apply_together(shape, task.owners, data, lengths, facts)
        else:
            applied = dispatch.apply_changes(shape, data, lengths, facts, evaluated)
        bounded, layout = self.bounded[task.shape], self.layouts[task.shape]
        files, places = write_rows(self.properties, task.path, applied.rows, bounded, layout)
        written = applied.written
        if places is not None and applied.delta is None:
            here = (written >= 0) & (written < len(places))
            written = written.copy()
            written[here] = places[written[here]]
        aside = applied.aside
        return ChunkDone(
            files=files,
            places=places,
            keys=applied.keys,
            written=written,
            aside=None if aside is None else to_ipc(aside.rows),
            unchanged=() if aside is None else aside.unchanged,
            sources=None if aside is None else aside.sources,
            waits=None if aside is None else aside.waits,
            is_value=() if aside is None else aside.is_value,
            closings=applied.closings,
            delta=applied.delta,
            operations=tuples.operations_of(data, lengths, [one.end for one in task.owners] or [len(lengths)]),
            whose=applied.whose,
            order=task.order,
            rejected=packed(applied.rejected) if applied.rejected else None,
            waiting=None if applied.waiting is None else to_ipc(applied.waiting),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompleteTask:
    """Rows that wait for their earlier version, now that its place is known."""

    aside: bytes
    unchanged: tuple[np.ndarray, ...]
    files: tuple[str, ...]  #: data files that hold earlier versions
    file_of: Int32s  #: per row that waits: index into `files`
    position_of: Int32s
    path: str  #: of the data file to write
    bounded: tuple[str, ...]
    layout: Layout
    waits: Int32s | None = None  #: as in `clone.Aside`
    is_soft: bool = False  #: as in `clone.complete`
    is_value: tuple[bool, ...] = ()  #: as in `clone.Aside`
    table_type: TableType = TableType.CLONE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRows:
    """Read earlier versions by position and write the completed rows."""

    properties: Mapping[str, str]

    def __call__(self, tasks: Iterable[tuple[int, CompleteTask]]) -> Iterator[tuple[int, ChunkDone]]:
        """Yield (number, result)."""
        slim_worker()
        for number, task in tasks:
            yield number, _guarded(self._complete, task)

    def _complete(self, task: CompleteTask) -> ChunkDone:
        aside = from_ipc(task.aside)
        names = [field.name for field, mask in zip(aside.schema, task.unchanged, strict=True) if len(mask)]
        if (gone_by := soft.GONE_BY.get(task.table_type)) is not None:
            names.append(gone_by)
        wanted = pa.schema([aside.schema.field(name) for name in names])
        earlier = read_scattered(self.properties, task.files, task.file_of, task.position_of, wanted)
        rows = clone.complete(
            aside, task.unchanged, earlier, task.waits, is_soft=task.is_soft, is_value=task.is_value,
            table_type=task.table_type,
        )  # fmt: skip
        files, places = write_rows(self.properties, task.path, rows, task.bounded, task.layout)
        return ChunkDone(files=files, written=places)


def read_scattered(
    properties: Mapping[str, str], files: Sequence[str], file_of: Int32s, position_of: Int32s, schema: pa.Schema
) -> pa.Table:
    """Return n rows that lie anywhere in several data files; see `read_rows` for columns that a file lacks.

    Args:
        properties: The properties of the FileIO.
        files: Paths.
        file_of: n indices into `files`.
        position_of: n positions in those.
        schema: The columns wanted.
    """
    pieces = []
    order = []
    for index, path in enumerate(files):
        rows = np.flatnonzero(file_of == index)
        pieces.append(read_rows(properties, path, position_of[rows].tolist(), schema))
        order.append(rows)
    back = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(pieces).take(pa.array(back))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyDone:
    """What came of one range of a copy."""

    files: tuple[DataFile, ...] = ()
    keys: tuple[Keys, ...] = ()  #: one per file; none if `CopyTask.key_files` has them
    rejected: bytes | None = None  #: as of `ChunkDone`
    error: KuvaszError | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """Read one range of a source table and write it."""

    request: CopyRequest
    shape: Shape
    bounded: tuple[str, ...]
    properties: Mapping[str, str]
    path: str  #: with a place {} for the number of the file
    chunk_bytes: int
    lsn: int  #: of the snapshot that is copied
    file_bytes: int  #: of raw text, after which the next file begins
    layout: Layout
    key_files: KeyFiles | None = None  #: where keys are kept, if the executor is a process of the driver's machine

    def __call__(self, tasks: Iterable[object]) -> Iterator[CopyDone]:
        """Yield one result."""
        slim_worker()
        for _ in tasks:
            yield self.copy((data, None) for data in self.request.read(self.chunk_bytes))

    def copy(self, chunks: Iterable[tuple[bytes | bytearray | memoryview, Evaluated | None]]) -> CopyDone:
        """Write chunks of COPY text, with what Spark made of them; errors are results."""
        try:
            return self._copy(chunks)
        except KuvaszError as error:
            return CopyDone(error=error)
        except OSError as error:
            return CopyDone(error=LakeError(f"storage failed: {error}", hint="it is tried again"))
        except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
            return CopyDone(error=InternalError(f"a copy failed: {traceback.format_exc(limit=8)}"))

    def _copy(self, chunks: Iterable[tuple[bytes | bytearray | memoryview, Evaluated | None]]) -> CopyDone:
        left_out = RefusedPart(self.shape.place, "copy")
        applied = self._applied(chunks, left_out)
        done = self._copy_plain(applied) if self.layout.is_plain else self._copy_arranged(applied)
        done = dataclasses.replace(done, rejected=left_out.packed())
        if self.key_files is None:
            return done
        try:
            for file, keys in zip(done.files, done.keys, strict=True):
                self.key_files.write(file.path, keys)
        except BaseException:
            remove(file_io(self.properties, self.path), [file.path for file in done.files])
            raise
        return dataclasses.replace(done, keys=())

    def _applied(
        self,
        chunks: Iterable[tuple[bytes | bytearray | memoryview, Evaluated | None]],
        left_out: RefusedPart,
    ) -> Iterator[tuple[clone.Copied, int]]:
        """Yield what comes of each chunk, with its size, and gather what was left out of it.

        Raises:
            DecodeError: A value does not fit, or so much of the range does not that it must be a mistake.
        """
        for data, evaluated in chunks:
            copied = dispatch.apply_copy(self.shape, data, self.lsn, evaluated)
            left_out.add(copied.rejected)
            yield copied, len(data)

    def _copy_arranged(self, chunks: Iterable[tuple[clone.Copied, int]]) -> CopyDone:
        """Write a range in portions that are held whole: each is divided and sorted, one file open at a time."""
        files: list[DataFile] = []
        keys: list[Keys] = []
        parts: list[clone.Copied] = []
        size = 0

        def write() -> None:
            rows = pa.concat_tables([part.rows for part in parts])
            path = self.path.format(len(files))
            written, places = write_rows(self.properties, path, rows, self.bounded, self.layout)
            files.extend(written)
            order = np.argsort(places) if places is not None else np.arange(rows.num_rows)
            ordered = concatenate([part.keys for part in parts])
            if len(ordered):  # rows of a table without a key have none
                ordered = ordered.take(order)
            ends = np.cumsum([file.rows for file in written]).tolist()
            keys.extend(ordered.take(slice(b, e)) for b, e in zip([0, *ends], ends, strict=False))
            parts.clear()

        try:
            for copied, read in chunks:
                parts.append(copied)
                size += read
                if size >= _PORTION_BYTES:
                    write()
                    size = 0
            if parts:
                write()
        except BaseException:
            remove(file_io(self.properties, self.path), [file.path for file in files])
            raise
        return CopyDone(files=tuple(files), keys=tuple(keys))

    def _copy_plain(self, chunks: Iterable[tuple[clone.Copied, int]]) -> CopyDone:
        files: list[DataFile] = []
        keys: list[Keys] = []
        writer: DataFileWriter | None = None
        parts: list[Keys] = []
        size = 0
        try:
            for copied, read in chunks:
                if writer is None:
                    path = self.path.format(len(files))
                    writer = DataFileWriter(
                        self.properties, path, self.shape.schema, self.bounded, layout=self.layout
                    )
                writer.write(copied.rows)
                parts.append(copied.keys)
                size += read
                if size >= self.file_bytes:
                    files.append(writer.close())
                    keys.append(concatenate(parts))
                    writer, parts, size = None, [], 0
            if writer is not None:
                files.append(writer.close())
                keys.append(concatenate(parts))
        except BaseException:
            if writer is not None:
                writer.abandon()
            for file in files:
                remove(file_io(self.properties, file.path), [file.path])
            raise
        return CopyDone(files=tuple(files), keys=tuple(keys))


def concatenate(parts: Sequence[Keys]) -> Keys:
    """Join keys."""
    return Keys(hi=np.concatenate([part.hi for part in parts]), lo=np.concatenate([part.lo for part in parts]))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadKeys:
    """Read the keys of data files again: for an index that was lost, or files that someone else wrote."""

    properties: Mapping[str, str]
    seed: bytes
    fields: pa.Schema  #: what rows are known by, as the table has it: types may be wider than in a file
    has_sid: bool  #: whether the first of them is the column sid

    def __call__(self, paths: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Keys]]:
        """Yield (number, keys in row order) per file."""
        slim_worker()
        for number, path in paths:
            yield number, self.read(path)

    def read(self, path: str) -> Keys:
        """Return the keys of a data file's rows."""
        return self._hash(read_fields(self.properties, path, self.fields), path)

    def of(self, rows: pa.Table, path: str) -> Keys:
        """Return the keys of a data file's rows; their fields carry ids."""
        return self._hash(with_schema(rows, self.fields), path)

    def _hash(self, table: pa.Table, path: str) -> Keys:
        seed = member.seed(self.seed, member.in_path(path))
        columns = [_storage(column.combine_chunks()) for column in table.combine_chunks().columns]
        if not self.has_sid:
            return hash_keys(columns, sid=None, seed=seed)
        return hash_keys(columns[1:], sid=Sids.of_column(columns[0]), seed=seed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SortKeys:
    """Read the keys of data files again, and keep them on this machine's disk."""

    read: ReadKeys
    files: KeyFiles

    def __call__(self, paths: Iterable[tuple[int, str]]) -> Iterator[tuple[int, bool]]:
        """Yield (number, whether each key is there once) per file; of others nothing is kept."""
        slim_worker()
        for number, path in paths:
            yield number, self.files.write_unique(path, self.read.read(path))


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as Arrow IPC."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_ipc(data: bytes) -> pa.Table:
    """Return the table of Arrow IPC bytes."""
    return pa.ipc.open_stream(data).read_all()


def _guarded(run: Callable[[Task], ChunkDone], task: Task) -> ChunkDone:
    try:
        return run(task)
    except RefusedOwner as refused:
        return ChunkDone(error=refused.error, owner=refused.owner, row=refused.row)
    except RefusedValue as error:
        return ChunkDone(error=error, row=error.row)
    except DecodeError as error:
        return ChunkDone(error=error)
    except OSError as error:
        return ChunkDone(error=LakeError(f"storage failed at {task.path}: {error}", hint="it is tried again"))
    except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
        return ChunkDone(error=InternalError(f"a task failed: {traceback.format_exc(limit=8)}"))


def slim_worker() -> None:
    """Keep this worker process from doing before and after every task what does not change while it lives.

    PySpark's worker calls importlib.invalidate_caches() before each task, and zipimport then reads the directories of
    pyspark.zip and py4j.zip anew, in pure Python: more CPU than the work on ten thousand rows (measured with py-spy).
    The files do not change while a worker lives. Taking them off sys.path is not enough: packages imported from them
    bring them back through their __path__.

    After each task PySpark's daemon collects garbage, which looks at every object of every module: a sixth of all CPU
    of a copy's workers (measured with perf). Frozen objects are not looked at.
    """
    zipimport.zipimporter.invalidate_caches = _keep_caches  # type: ignore[assignment]
    _freeze()


@functools.cache
def _freeze() -> None:
    """Freeze what is there, once in a process: to ask how many objects are frozen is to go through all of them."""
    gc.freeze()


def _keep_caches(_: zipimport.zipimporter) -> None:
    """Do nothing."""
