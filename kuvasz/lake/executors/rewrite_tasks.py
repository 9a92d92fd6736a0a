"""Live rows of many data files into one, on executors: what compaction runs on Spark.

Columns are found by field id, so files of any age of the schema may meet: a column that a file lacks comes out NULL
or as its default, a renamed one under its new name, a promoted one widened. Safe to repeat, as all tasks.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.errors import InternalError, KuvaszError, LakeError
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors.tasks import ReadKeys, concatenate, slim_worker
from kuvasz.lake.files.arrangement import arrange
from kuvasz.lake.files.data_file import DataFile, DataFileWriter, field_id, writing
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format.layout import PLAIN, Layout, Values
from kuvasz.lake.format.schema import SID
from kuvasz.model import Int64s
from kuvasz.modes import defaults

#: Rows, or bytes in memory, that are gathered before a row group is written: files of small commits have tiny ones.
_GATHER_ROWS = 128 * 1024
_GATHER_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteInput:
    """A file to read, and which of its rows are dead."""

    path: str
    dead: bytes  #: a serialized BitMap64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Files whose live rows go into one file, in this order."""

    inputs: tuple[RewriteInput, ...]
    path: str  #: of the file to write
    spec_id: int = 0
    partition: Values = ()  #: of all inputs
    passes: int = 0  #: of several sources: sorted by sid in so many passes over the inputs; 0: of one


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteDone:
    """What came of a task. With `error` nothing else counts."""

    file: DataFile | None = None  #: None if no row is alive
    keys: Keys | None = None  #: of the file's rows, in order; None if nobody asked
    order: Int64s | None = None  #: which live row, counted over all inputs, stands where; None: as they came
    error: KuvaszError | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Write files anew.

    Attributes:
        properties: The properties of the FileIO.
        schema: The table's, with field ids.
        bounded: Columns that get bounds.
        keys: Hashes the rows' keys; None if nobody needs them.
        sort_by: Columns to sort the rows of each file by; their order stays what it is without any.
        layout: The layout of the table, without its partitions; its order goes before `sort_by`.
    """

    properties: Mapping[str, str]
    schema: pa.Schema
    bounded: tuple[str, ...]
    keys: ReadKeys | None = None
    sort_by: tuple[str, ...] = ()
    layout: Layout = PLAIN

    def __call__(self, tasks: Iterable[tuple[int, RewriteTask]]) -> Iterator[tuple[int, RewriteDone]]:
        """Yield (number, result)."""
        slim_worker()
        for number, task in tasks:
            try:
                yield number, self._rewrite(task)
            except KuvaszError as error:
                yield number, RewriteDone(error=error)
            except OSError as error:
                yield number, RewriteDone(error=LakeError(f"storage failed: {error}", hint="it is tried again"))
            except Exception:  # noqa: BLE001 (crosses processes: the driver decides what stops)
                message = f"a compaction failed: {traceback.format_exc(limit=8)}"
                yield number, RewriteDone(error=InternalError(message))

    def _rewrite(self, task: RewriteTask) -> RewriteDone:
        orders: list[Int64s] = []
        keys = []
        layout = dataclasses.replace(self.layout, spec_id=task.spec_id)
        with writing(
            self.properties, task.path, self.schema, self.bounded, layout=layout, partition=task.partition
        ) as writer:
            for rows, places in self._arranged(task, layout):
                writer.write(rows)
                if self.keys is not None:
                    keys.append(self.keys.of(rows, task.path))
                if places is not None:
                    orders.append(places)
            return self._done(writer, keys, np.concatenate(orders) if orders else None)

    def _arranged(self, task: RewriteTask, layout: Layout) -> Iterator[tuple[pa.Table, Int64s | None]]:
        """Yield rows as they are to be written, and which of all live ones each is; None: they are as they came."""
        if layout.order:
            whole = self._whole(task)
            for _, order in arrange(layout, whole):
                yield whole.take(pa.array(order)), order
        elif self.sort_by:
            whole = self._whole(task)
            indices = pc.sort_indices(whole, sort_keys=[(name, "ascending") for name in self.sort_by])
            yield whole.take(indices), indices.to_numpy().astype(np.int64)
        elif task.passes:
            yield from sorted_by_sid(
                lambda schema: _live_rows(self.properties, task, schema), self.schema, task.passes
            )
        else:
            for rows in _gathered(_live_rows(self.properties, task, self.schema)):
                yield rows, None

    def _whole(self, task: RewriteTask) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *_live_rows(self.properties, task, self.schema)])

    def _done(self, writer: DataFileWriter, keys: list[Keys], order: Int64s | None) -> RewriteDone:
        file = writer.close()
        if not file.rows:
            file_io(self.properties, file.path).delete(file.path)
            return RewriteDone()
        return RewriteDone(file=file, keys=concatenate(keys) if keys else None, order=order)


def _live_rows(properties: Mapping[str, str], task: RewriteTask, schema: pa.Schema) -> Iterator[pa.Table]:
    for each in task.inputs:
        dead = positions_of(BitMap64.deserialize(each.dead))
        with file_io(properties, each.path).new_input(each.path).open() as stream:
            yield from read_live(stream, dead, schema)


def sorted_by_sid(
    read: Callable[[pa.Schema], Iterable[pa.Table]], schema: pa.Schema, passes: int
) -> Iterator[tuple[pa.Table, Int64s]]:
    """Yield rows of many sources by sid, those of one in the order in which they come.

    All rows are read in every pass, and those of some sids kept: so much memory is needed as one pass keeps.

    Args:
        read: Gives some columns of all rows, in the same order each time.
        schema: The schema of the rows.
        passes: How many.

    Yields:
        Rows, and which one of all each of them is.
    """
    of = _ranks(read(pa.schema([schema.field(SID)])))
    # As many rows to each pass, as far as no source has more than that.
    pass_of = np.cumsum(np.bincount(of)) * passes // (len(of) + 1)
    for number in np.unique(pass_of):
        wanted = np.flatnonzero(pass_of[of] == number)
        order = np.argsort(of[wanted], kind="stable")
        kept, begin = [schema.empty_table()], 0
        for rows in read(schema):
            part = wanted[np.searchsorted(wanted, begin) : np.searchsorted(wanted, begin + len(rows))]
            kept.append(rows.take(pa.array(part - begin)))
            begin += len(rows)
        yield pa.concat_tables(kept).take(pa.array(order)), wanted[order]


def _ranks(tables: Iterable[pa.Table]) -> Int64s:
    """Return the place of each row's sid among all sids there are."""
    chunks = [chunk for rows in tables for chunk in rows.column(SID).chunks]
    codes = pc.fill_null(pa.chunked_array(chunks, pa.string()), "").combine_chunks().dictionary_encode()
    rank: Int64s = np.argsort(np.argsort(np.array(codes.dictionary.to_pylist(), np.str_)))
    found: Int64s = rank[codes.indices.to_numpy()]
    return found


def read_live(stream: object, dead: Int64s, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the live rows of a Parquet file, row group by row group, in the shape of the table's schema.

    Args:
        stream: The file.
        dead: Ascending positions of rows to leave out.
        schema: With field ids.
    """
    file = pq.ParquetFile(stream)
    name_of = {field_id(field): field.name for field in file.schema_arrow if field.metadata}
    wanted = [name_of.get(field_id(field)) for field in schema]
    names = [name for name in wanted if name is not None]
    first = 0
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group, columns=names)
        count = file.metadata.row_group(group).num_rows
        gone = dead[np.searchsorted(dead, first) : np.searchsorted(dead, first + count)] - first
        first += count
        if len(gone) == count:
            continue
        columns = [
            defaults.column(field, count) if name is None else _as(rows.column(name), field.type)
            for name, field in zip(wanted, schema, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        if len(gone):
            alive = np.ones(count, np.bool_)
            alive[gone] = False
            table = table.filter(pa.array(alive))
        yield table


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if isinstance(column.type, pa.ExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column if column.type == kind else column.cast(kind)


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables, so that row groups are of a useful size."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        size += table.nbytes
        if rows >= _GATHER_ROWS or size >= _GATHER_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def positions_of(dead: BitMap64) -> Int64s:
    """Return the positions in a bitmap, ascending."""
    return np.fromiter(dead, np.int64, len(dead))
