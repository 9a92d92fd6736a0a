"""Jobs of tables with expressions: Python decodes, Spark's JVM evaluates, Python folds and writes; one job.

    range ─> mapInArrow: the columns that expressions look at ─> select expressions ─> mapInArrow: rows to files

No shuffle, so each partition keeps its rows and their order. Rows of the data frame with something in `_CONTROL` are
no rows of the table: each begins a chunk and carries, pickled, what the second half must know of it.

Where rows that do not fit are rejected, each answer is a struct that Spark makes within `TryEval`: of a row for which
the expression fails that is NULL, and the job goes on. Else an expression that fails ends its job.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql import types as spark_types
from pyspark.sql.classic.column import Column

from kuvasz import typemap
from kuvasz.decode import copytext, tuples
from kuvasz.errors import DecodeError, JobFailed, KuvaszError, LakeError
from kuvasz.lake.executors.analyzer import spark_type
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask, CopyDone, CopyTask, slim_worker
from kuvasz.lake.files.data_file import remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.format import naming
from kuvasz.model import Int32s, LakeType, UInt8s, UInt32s, ValueType
from kuvasz.modes.row_rules import (
    Evaluated,
    RefusedInput,
    Transform,
    inputs_of,
    judged,
    key_only,
    resolve,
    valid_rows,
    without_unreadable,
)
from kuvasz.modes.shape import Shape
from kuvasz.ports import CopyRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kuvasz.decode.cells import Cells

#: COPY text and what Spark made of its rows.
Chunks: TypeAlias = Iterator[tuple[bytes | bytearray | memoryview, Evaluated | None]]

_CONTROL = "__kvsz_control"
_KEEP = "__kvsz_keep"
_WHOLE = "__kvsz_whole"

#: Rows of a batch on its way into the JVM.
_BATCH_ROWS = 32 * 1024

#: SQLSTATE classes of errors that lie in the data, so that trying again does not help: data exceptions (ISO 9075), a
#: map with one key twice, and what `raise_error` and `assert_true` say.
_DATA_EXCEPTIONS = ("22", "23", "P0")


def apply_chunks(
    session: SparkSession, job: ApplyChunks, tasks: Sequence[tuple[int, ChunkTask]]
) -> list[tuple[int, ChunkDone]]:
    """Run chunks of shapes with expressions. One that fails does so for its source alone.

    Raises:
        JobFailed: Spark could not run it.
    """
    return [done for mine in groups(job, tasks) for done in _apply_group(session, job, mine)]


def _apply_group(
    session: SparkSession, job: ApplyChunks, mine: Sequence[tuple[int, ChunkTask]]
) -> list[tuple[int, ChunkDone]]:
    """Run chunks together; where an expression fails, which ends the job, in halves, until it is known for whom."""
    ordered = tuple(task for _, task in mine)
    try:
        shape = job.shapes[ordered[0].shape]
        rows = _run(session, shape, len(mine), _ReadChunks(job, ordered), _WriteChunks(job, ordered))
    except DecodeError as error:
        remove(file_io(job.properties, ordered[0].path), [task.path for task in ordered])
        sources = sorted({job.shapes[task.shape].source for task in ordered})
        if len(sources) == 1:
            return [(key, ChunkDone(error=error)) for key, _ in mine]
        first = set(sources[: len(sources) // 2])
        # Tasks of the job that failed may still be writing.
        anew = [(key, dataclasses.replace(task, path=naming.another(task.path))) for key, task in mine]
        halves = [
            [one for one in anew if (job.shapes[one[1].shape].source in first) is is_first]
            for is_first in (True, False)
        ]
        return [done for half in halves for done in _apply_group(session, job, half)]
    return [(mine[place][0], result) for place, result in rows]


def groups(job: ApplyChunks, tasks: Iterable[tuple[int, ChunkTask]]) -> list[list[tuple[int, ChunkTask]]]:
    """Return the chunks that one job can evaluate: those of one table whose expressions see the same columns.

    A table has a shape for each of its sources, and a job for each would take as long as all of them together.
    Tables stay apart: an expression that fails on a row fails its whole job.
    """
    found: dict[tuple[object, ...], list[tuple[int, ChunkTask]]] = {}
    for key, task in tasks:
        shape = job.shapes[task.shape]
        assert shape.transform is not None
        seen = tuple((item.name, item.type) for item in shape.transform.inputs)
        alike = (shape.family or shape.seed, shape.rejects, shape.keeps_earlier, seen, *_selected(shape.transform))
        found.setdefault(alike, []).append((key, task))
    return list(found.values())


def copy_range(session: SparkSession, job: CopyTask) -> CopyDone:
    """Run one range of a copy of a shape with expressions.

    Raises:
        JobFailed: Spark could not run it.
    """
    try:
        done = read_range(session, job.shape, job.request, job.chunk_bytes, job.copy)
    except DecodeError as error:
        return CopyDone(error=error)
    assert isinstance(done, CopyDone)
    return done


def read_range(
    session: SparkSession, shape: Shape, request: CopyRequest, chunk_bytes: int, consume: Callable[[Chunks], Any]
) -> Any:  # noqa: ANN401 (what `consume` returns)
    """Have an executor read a range of a source table and consume it together with Spark's answers.

    Args:
        session: A running Spark.
        shape: With expressions.
        request: The range.
        chunk_bytes: Bytes of COPY text that are held at a time.
        consume: Takes chunks of COPY text with the answers for their rows; it may raise what reading did.

    Raises:
        DecodeError: An expression fails.
        JobFailed: Spark could not run it.
    """
    read, write = _ReadRange(shape, request, chunk_bytes), _WriteRange(shape, consume)
    ((_, done),) = _run(session, shape, 1, read, write)
    return done


def read_changes(
    session: SparkSession, shape: Shape, data: bytes, lengths: UInt32s, consume: Callable[[Evaluated], Any]
) -> Any:  # noqa: ANN401 (what `consume` returns)
    """Have an executor consume Spark's answers for row messages of one relation version; see `read_range`.

    Raises:
        DecodeError: A value does not fit, or an expression fails.
        JobFailed: Spark could not run it.
    """
    read, write = _ReadMessages(shape, data, lengths), _WriteMessages(shape, consume)
    ((_, done),) = _run(session, shape, 1, read, write)
    if isinstance(done, KuvaszError):
        raise done
    return done


def _failed(transform: Transform, said: str, condition: str) -> DecodeError:
    """Return the error of an expression that fails for a row: what Spark says quotes it, the condition does not."""
    why = condition if transform.is_hidden else said
    hint = "mend the expression in the map (try_divide, try_cast, coalesce …), or the row, then retry"
    return DecodeError(f"{transform.place}: an expression fails: {why}", hint=hint)


def _run(
    session: SparkSession,
    shape: Shape,
    partitions: int,
    read: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    write: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> list[tuple[int, Any]]:
    transform = shape.transform
    assert transform is not None
    fields = [spark_types.StructField(_CONTROL, spark_types.BinaryType())]
    fields += [spark_types.StructField(item.name, spark_type(item.type)) for item in transform.inputs]
    fields += [spark_types.StructField(name, spark_types.BooleanType()) for name in _wholes(transform)]
    result = spark_types.StructType(
        [spark_types.StructField("place", spark_types.LongType()),
         spark_types.StructField("done", spark_types.BinaryType())]
    )  # fmt: skip
    try:
        frame = session.range(0, partitions, 1, partitions).mapInArrow(read, spark_types.StructType(fields))
        frame = frame.select(_CONTROL, *_answers(session, shape)).mapInArrow(write, result)
        return [(int(row[0]), pickle.loads(row[1])) for row in frame.collect()]  # noqa: S301 (our own executors)
    except PySparkException as error:
        state = error.getSqlState() or ""
        first = next((line for line in str(error).splitlines() if line.strip()), "")[:300]
        if state.startswith(_DATA_EXCEPTIONS):
            raise _failed(transform, first, error.getCondition() or state) from error
        raise JobFailed(f"a spark job failed: {first}", hint="it is tried again") from error
    except (Py4JError, ConnectionError) as error:
        raise JobFailed(f"a spark job failed: {str(error)[:300]}", hint="it is tried again") from error


def _answers(session: SparkSession, shape: Shape) -> list[Any]:
    """Return the columns of Spark's answers."""
    assert shape.transform is not None
    if not shape.rejects:
        return [functions.expr(text).alias(name) for text, name in _selected(shape.transform)]
    own: Any = session
    parser, sql = own._jsparkSession.sessionState().sqlParser(), own._jvm.org.apache.spark.sql
    return [
        Column(
            sql.classic.ExpressionUtils.column(
                sql.catalyst.expressions.TryEval(parser.parseExpression(f"named_struct('v', {text})"))
            )
        ).alias(name)
        for text, name in _selected(shape.transform)
    ]


def _selected(transform: Transform) -> Iterator[tuple[str, str]]:
    """Yield each answer's expression and name."""
    # Control rows have no values, and old tuples often nothing but the key: an expression that cannot bear the NULLs
    # in place of what is not there must not see them. Within a CASE none is evaluated ahead as part of several.
    wholes = _wholes(transform)
    if transform.filter is None:
        yield f"{_CONTROL} IS NULL", _KEEP
    else:
        yield f"CASE WHEN {wholes.pop(0)} THEN coalesce(({transform.filter}), false) ELSE false END", _KEEP
    for number, (item, whole) in enumerate(zip(transform.computed, wholes, strict=True)):
        yield f"CASE WHEN {whole} THEN {_legible(f'({item.text})', item.type)} END", f"c{number}"


def _legible(text: str, kind: ValueType) -> str:
    """Return an expression that fails where another gives a text that is none: Spark takes any bytes for one.

    A Parquet file with such a string cannot be read by others; see `kuvasz.decode.texts.strings`.
    """
    if kind.kind is LakeType.STRING:
        return f"validate_utf8({text})"
    if kind.kind is LakeType.MAP:
        checked = f"transform_keys({text}, (k, v) -> validate_utf8(k))"
        return f"transform_values({checked}, (k, v) -> validate_utf8(v))"
    if kind.element is not None and kind.element.kind is LakeType.STRING:
        return f"transform({text}, e -> validate_utf8(e))"
    return text


@dataclasses.dataclass(frozen=True, slots=True)
class _ReadChunks:
    """Chunks of row messages -> what expressions look at."""

    job: ApplyChunks
    tasks: tuple[ChunkTask, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        for place in _places(batches):
            task = self.tasks[place]
            shape = self.job.shapes[task.shape]
            transform = shape.transform
            assert transform is not None
            assert task.lengths is not None
            assert task.data is not None
            try:
                lengths = np.frombuffer(task.lengths.read(self.job.properties), np.uint32)
                data = np.frombuffer(task.data.read(self.job.properties), np.uint8)
                inputs, unreadable = _inputs(shape, data, lengths)
            except KuvaszError as error:
                yield _control(transform, {"place": place, "error": error})
                continue
            except OSError as error:
                failed = LakeError(f"cannot read spooled changes: {error}", hint="it is tried again")
                yield _control(transform, {"place": place, "error": failed})
                continue
            yield _control(transform, {"place": place, "unreadable": unreadable})
            yield from _batches(transform, inputs)


def _inputs(shape: Shape, data: UInt8s, lengths: UInt32s) -> tuple[pa.Table, list[RefusedInput]]:
    """Return what expressions look at, of new rows and then of all old ones, and what of it cannot be read."""
    transform = shape.transform
    assert transform is not None
    changes = tuples.split_changes(data, lengths, shape.column_count)
    resolve(transform, changes)
    rows = valid_rows(changes)
    new, unreadable = _inputs_of(shape, changes.new, rows)
    old, more = _inputs_of(shape, changes.old, is_key_only=key_only(changes))
    more = [dataclasses.replace(one, row=len(rows) + one.row) for one in more]
    return pa.concat_tables([new, old]), unreadable + more


def _inputs_of(
    shape: Shape, cells: Cells, rows: Int32s | None = None, is_key_only: np.ndarray | None = None
) -> tuple[pa.Table, list[RefusedInput]]:
    """Return what expressions look at, and what of it cannot be read where the shape rejects it."""
    transform, policy = shape.transform, shape.out_of_range
    assert transform is not None
    try:
        return inputs_of(transform, cells, rows, is_key_only=is_key_only, out_of_range=policy), []
    except DecodeError:
        if not shape.rejects:
            raise
    cells, unreadable = without_unreadable(transform, cells, rows, out_of_range=policy)
    return inputs_of(transform, cells, rows, is_key_only=is_key_only, out_of_range=policy), unreadable


@dataclasses.dataclass(frozen=True, slots=True)
class _WriteChunks:
    """Answers of expressions -> data files."""

    job: ApplyChunks
    tasks: tuple[ChunkTask, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        for control, answers in _chunks(batches):
            place = control["place"]
            if (error := control.get("error")) is not None:
                yield _result(place, ChunkDone(error=error))
                continue
            evaluated = _evaluated(self.job.shapes[self.tasks[place].shape], control, answers)
            yield _result(place, self.job.apply(self.tasks[place], evaluated))


@dataclasses.dataclass(frozen=True, slots=True)
class _ReadRange:
    """A range of a source table -> what expressions look at, with the COPY text itself."""

    shape: Shape
    request: CopyRequest
    chunk_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        transform = self.shape.transform
        assert transform is not None
        for _ in _places(batches):
            try:
                for data in self.request.read(self.chunk_bytes):
                    cells = copytext.split_copy(data, self.shape.column_count)
                    inputs, unreadable = _inputs_of(self.shape, cells)
                    yield _control(transform, {"data": bytes(data), "unreadable": unreadable})
                    yield from _batches(transform, inputs)
            except KuvaszError as error:
                yield _control(transform, {"error": error})


@dataclasses.dataclass(frozen=True, slots=True)
class _WriteRange:
    """Answers of expressions -> what the one who asked makes of them."""

    shape: Shape
    consume: Callable[[Chunks], Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        yield _result(0, self.consume(_copied(self.shape, _chunks(batches))))


@dataclasses.dataclass(frozen=True, slots=True)
class _ReadMessages:
    """Row messages -> what expressions look at."""

    shape: Shape
    data: bytes
    lengths: UInt32s

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        transform = self.shape.transform
        assert transform is not None
        for _ in _places(batches):
            try:
                inputs, unreadable = _inputs(self.shape, np.frombuffer(self.data, np.uint8), self.lengths)
            except KuvaszError as error:
                yield _control(transform, {"error": error})
                continue
            yield _control(transform, {"unreadable": unreadable})
            yield from _batches(transform, inputs)


@dataclasses.dataclass(frozen=True, slots=True)
class _WriteMessages:
    """Answers of expressions -> what the one who asked makes of them, or the error."""

    shape: Shape
    consume: Callable[[Evaluated], Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slim_worker()
        for control, answers in _chunks(batches):
            try:
                error = control.get("error")
                yield _result(0, error or self.consume(_evaluated(self.shape, control, answers)))
            except KuvaszError as error:
                yield _result(0, error)


def _copied(shape: Shape, chunks: Iterable[tuple[Mapping[str, Any], pa.Table]]) -> Chunks:
    for control, answers in chunks:
        if (error := control.get("error")) is not None:
            raise error
        yield control["data"], _evaluated(shape, control, answers)


def _places(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _control(transform: Transform, facts: Mapping[str, Any]) -> pa.RecordBatch:
    arrays = [pa.array([pickle.dumps(facts)], pa.binary())]
    arrays += [pa.nulls(1, typemap.arrow_type(item.type)) for item in transform.inputs]
    arrays += [pa.nulls(1, pa.bool_()) for _ in transform.expressions]
    return pa.RecordBatch.from_arrays(arrays, names=_names(transform))


def _batches(transform: Transform, inputs: pa.Table) -> Iterator[pa.RecordBatch]:
    count = len(transform.inputs)
    for batch in inputs.to_batches(max_chunksize=_BATCH_ROWS):
        arrays = [pa.nulls(batch.num_rows, pa.binary())]
        arrays += [
            batch.column(index).cast(typemap.arrow_type(transform.inputs[index].type)) for index in range(count)
        ]
        arrays += [batch.column(count + number) for number in range(len(transform.expressions))]
        yield pa.RecordBatch.from_arrays(arrays, names=_names(transform))


def _names(transform: Transform) -> list[str]:
    return [_CONTROL, *(item.name for item in transform.inputs), *_wholes(transform)]


def _wholes(transform: Transform) -> list[str]:
    """Return the columns that say, for each expression, whether a row carries all that it looks at."""
    return [f"{_WHOLE}{number}" for number in range(len(transform.expressions))]


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Mapping[str, Any], pa.Table]]:
    """Cut the answers at the control rows."""
    control: Mapping[str, Any] | None = None
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        start = 0
        for row in np.flatnonzero(batch.column(0).is_valid().to_numpy(zero_copy_only=False)).tolist():
            parts.append(batch.slice(start, row - start))
            if control is not None:
                yield control, pa.Table.from_batches(parts)
            control, parts, start = pickle.loads(batch.column(0)[row].as_py()), [], row + 1  # noqa: S301
        parts.append(batch.slice(start))
    if control is not None:
        yield control, pa.Table.from_batches(parts)


def _evaluated(shape: Shape, control: Mapping[str, Any], answers: pa.Table) -> Evaluated:
    columns = [_one(column) for column in answers.columns[1:]]
    if shape.rejects:
        assert shape.transform is not None
        return judged(shape.transform, columns, control["unreadable"])
    return Evaluated(keep=columns[0].to_numpy(zero_copy_only=False), computed=tuple(columns[1:]))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _result(place: int, done: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([place], pa.int64()), pa.array([pickle.dumps(done)], pa.binary())], names=["place", "done"]
    )
