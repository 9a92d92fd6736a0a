"""The first stage of a mini-transaction: one Spark job writes the files of all its targets."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz import failpoints
from kuvasz.errors import KuvaszError, LakeError
from kuvasz.lake.commit import bundles, chunks
from kuvasz.lake.commit.bundles import Bundle, Step
from kuvasz.lake.commit.chunk_jobs import ChunkJobs, RunChunks, SizedTask
from kuvasz.lake.commit.chunks import Cut
from kuvasz.lake.commit.step_shapes import StepShapes
from kuvasz.lake.commit.written import Written, WrittenTable
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask
from kuvasz.lake.files.data_file import file_io, remove
from kuvasz.lake.format import naming
from kuvasz.lake.format.binding import Feeds, placed
from kuvasz.model import TableType, Truncation
from kuvasz.modes.transaction_facts import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.executors.spool import Spool
    from kuvasz.lake.format.layout import Layout
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.lake.table.write_era import WriteEra
    from kuvasz.modes.owners import Owner
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import TableWork

#: What an executor needs of a step: lengths, messages, and facts of the transactions.
_Raw: TypeAlias = "tuple[bytes | None, bytes | bytearray | memoryview | None, bytes | None]"

#: Numbers of chunks: files of one commit are told apart by age by them.
_orders = itertools.count(1)


class WriteStage:
    """Cuts changes into chunks, hands them to Spark, and keeps what came of them. Safe from any thread.

    Args:
        session: The running Spark.
        jobs: Where tasks run.
        spool: Takes raw changes to the executors.
        tables: Every prepared table by its name.
        feeds: What feeds them.
        config: The whole configuration.
    """

    def __init__(
        self,
        session: SparkSession,
        jobs: Jobs,
        spool: Spool,
        tables: Mapping[str, LakeTable],
        feeds: Feeds,
        config: Config,
    ) -> None:
        self._jobs = ChunkJobs(session, jobs)
        self._spool = spool
        self._tables = tables
        self._feeds = feeds
        self._config = config
        self._properties = config.lake.properties

    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Written:
        """See `kuvasz.ports.Lake.write`."""
        size = self._chunk_bytes(works)
        batch = _JobInput()
        plans = [plan for work in works if (plan := self._plan(work, size, batch)) is not None]
        begin = time.monotonic()
        run = self._jobs.run_apart if apart else self._jobs.run
        done = self._run(batch, run)
        self._take_apart(plans, batch, done, run)
        end = time.monotonic()
        written = Written(tables=tuple(plan.written(done, batch, begin, end) for plan in plans))
        for table in written.tables:  # only now: a job that failed is run again with the same rows
            table.era.accept(table.work.through)
            table.era.events = dict(table.cut.events)
            table.era.refuse(table.refused)
        taken = {path for table in written.tables for path in table.paths()}
        self._remove(path for path in _paths(done.values()) if path not in taken)
        for table in written.tables:
            self._tables[table.work.target].commits.in_flight.update(table.paths())
        return written

    def _chunk_bytes(self, works: Sequence[TableWork]) -> int:
        total = sum(len(c.data) for work in works for c in work.changes if not isinstance(c, Truncation))
        cores = self._jobs.parallelism
        return max(1 << 20, min(self._config.pipeline.chunk_bytes, total // cores + 1))

    def _plan(self, work: TableWork, chunk_bytes: int, batch: _JobInput) -> _TargetPlan | None:
        """Cut one target's changes and put what Spark has to do into the batch; None if the target has failed."""
        table = self._tables[work.target]
        era, identities = table.era, table.definition.identities
        work = work.without(era.refused)
        if era.error is not None or (era.refused and work.is_empty):
            return None
        resets = dict(era.position_resets)
        events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
        cut = chunks.cut(work.changes, dict(era.accepted), chunk_bytes, table.target.type, events)
        plan = _TargetPlan(work=work, cut=cut, era=era, position_resets=resets, identities=identities)
        shapes = StepShapes(table, self._feeds)
        with table.definition.lock:  # steps that are put together must see one schema and one layout
            plan.add(bundles.pack(plan.cut.steps, shapes.likeness, chunk_bytes), table, shapes, batch)
        return plan

    def _take_apart(
        self, plans: Iterable[_TargetPlan], batch: _JobInput, done: dict[int, ChunkDone], run: RunChunks
    ) -> None:
        """Write what sources have put together each by itself, where one of a target's sources brought what is wrong.

        That tells whose it is, and leaves it out. What comes of it is added to what was done.
        """
        begin = len(batch.chunks)
        try:
            for plan in plans:
                table = self._tables[plan.work.target]
                if any(_is_of_source(error) for error in plan.errors(done, batch)):
                    with table.definition.lock:
                        plan.take_apart(table, StepShapes(table, self._feeds), batch)
            done |= self._run(batch, run, begin)
        except BaseException:
            self._remove(_paths(done.values()))
            raise

    def _remove(self, paths: Iterable[str]) -> None:
        remove(file_io(self._properties, self._config.lake.warehouse_location), paths)

    def _run(self, batch: _JobInput, run: RunChunks, begin: int = 0) -> dict[int, ChunkDone]:
        """Run the job over the chunks of the batch from a number on."""
        chunks = batch.chunks[begin:]
        if not chunks:
            return {}
        raw = [_raw(chunk.step) for chunk in chunks]
        path, written = self._spool.write([part for parts in raw for part in parts if part is not None])
        slices = iter(written)
        tasks: list[SizedTask] = []
        done: dict[int, ChunkDone] = {}
        try:
            for number, (chunk, parts) in enumerate(zip(chunks, raw, strict=True), begin):
                lengths, data, facts = (None if part is None else next(slices) for part in parts)
                task = ChunkTask(
                    shape=chunk.shape, count=chunk.rows, lengths=lengths, data=data, owners=chunk.owners,
                    facts=facts, order=chunk.order, path=naming.fresh(chunk.location, chunk.step.source, chunk.order),
                )  # fmt: skip
                tasks.append((number, task, chunk.size))
            failpoints.hit("before_data_files", LakeError)
            done = run(batch.job(self._properties), tasks)
            failpoints.hit("after_data_files", LakeError)
        except BaseException:
            self._remove({task.path for _, task, _ in tasks} | _paths(done.values()))
            raise
        else:
            return done
        finally:
            self._spool.remove(path)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _JobChunk:
    """One step that an executor carries out."""

    step: Step
    shape: int  #: its number
    owners: tuple[Owner, ...]  #: whose its rows are if they are of several sources
    location: str  #: of its table
    order: int  #: of its file among those of one commit

    @property
    def rows(self) -> int:
        return 1 if isinstance(self.step, Truncation) else self.step.rows

    @property
    def size(self) -> int:
        return 1 if isinstance(self.step, Truncation) else self.step.size


class _JobInput:
    """What Spark jobs are given: chunks of all targets, and how their rows look."""

    def __init__(self) -> None:
        self.chunks: list[_JobChunk] = []
        self._shapes: list[Shape] = []
        self._numbers: dict[int, int] = {}  # id of a shape -> its number
        self._bounds: list[tuple[str, ...]] = []
        self._layouts: list[Layout] = []

    def add(self, step: Step, table: LakeTable, shapes: StepShapes, order: int | None = None) -> int:
        """Take a step; return its number.

        Args:
            step: It.
            table: Whose it is.
            shapes: Of the table.
            order: That of the step which it was a part of, so that no later one counts as older.

        Raises:
            SchemaError: The table cannot hold its rows.
        """
        shape, owners = shapes.of(step)
        if id(shape) not in self._numbers:
            self._numbers[id(shape)] = len(self._shapes)
            self._shapes.append(shape)
            self._bounds.append(table.definition.bounded)
            self._layouts.append(table.definition.layout)
        self.chunks.append(
            _JobChunk(
                step=step, shape=self._numbers[id(shape)], owners=owners, location=table.definition.location,
                order=next(_orders) if order is None else order,
            )
        )  # fmt: skip
        return len(self.chunks) - 1

    def job(self, properties: Mapping[str, str]) -> ApplyChunks:
        return ApplyChunks(
            shapes=tuple(self._shapes),
            bounded=tuple(self._bounds),
            layouts=tuple(self._layouts),
            properties=properties,
        )

    def error(self, number: int, result: ChunkDone) -> KuvaszError | None:
        """Return the error of a chunk, with the commit it is found in."""
        if result.error is None:
            return None
        step = self.chunks[number].step
        if isinstance(step, Truncation):
            return placed(result.error, step.commit_lsn)
        return placed(result.error, bundles.chunks_of(step)[result.owner].commit_lsn_of(max(result.row, 0)))


@dataclasses.dataclass(slots=True, kw_only=True)
class _TargetPlan:
    """What is done for one target."""

    work: TableWork
    cut: Cut
    era: WriteEra
    position_resets: Mapping[str, int]
    identities: int
    steps: list[tuple[Step, int | None]] = dataclasses.field(
        default_factory=list
    )  #: with numbers in the batch, if any
    refused: dict[str, KuvaszError] = dataclasses.field(default_factory=dict)  #: sources that are left out, and why

    def add(self, steps: Iterable[Step], table: LakeTable, shapes: StepShapes, batch: _JobInput) -> None:
        """Put what Spark has to do into a batch; the lock of the table's definition is held."""
        for step in steps:
            is_row = table.target.type is TableType.CHANGELOG or not isinstance(step, Truncation)
            self._add(step, None, table, shapes, batch if is_row else None)

    def _add(
        self, step: Step, order: int | None, table: LakeTable, shapes: StepShapes, batch: _JobInput | None
    ) -> None:
        try:
            self.steps.append((step, None if batch is None else batch.add(step, table, shapes, order)))
        except KuvaszError as error:  # of one source: those that are put together have shapes
            self.refused.setdefault(step.source, error)

    def errors(self, done: Mapping[int, ChunkDone], batch: _JobInput) -> list[KuvaszError]:
        """Return what is wrong with any of it."""
        found = (batch.error(number, done[number]) for _, number in self.steps if number is not None)
        return [*self.refused.values(), *(error for error in found if error is not None)]

    def take_apart(self, table: LakeTable, shapes: StepShapes, batch: _JobInput) -> None:
        """Put the parts of its bundles into a batch; the lock of the table's definition is held."""
        steps, self.steps = self.steps, []
        for step, number in steps:
            if not isinstance(step, Bundle):
                self.steps.append((step, number))
                continue
            assert number is not None
            for chunk in step.chunks:
                self._add(chunk, batch.chunks[number].order, table, shapes, batch)

    def written(self, done: Mapping[int, ChunkDone], batch: _JobInput, begin: float, end: float) -> WrittenTable:
        """Put the results in the order of the steps, but those of sources that brought what is wrong.

        What is wrong with catalog or store is so for all of them, and the first such error counts.

        Args:
            done: Number in the batch -> what came of it.
            batch: It.
            begin: When the job began, monotonic seconds.
            end: When it ended.
        """
        error: KuvaszError | None = None
        for step, number in self.steps:
            found = None if number is None else batch.error(number, done[number])
            if found is not None and _is_of_source(found):
                self.refused.setdefault(step.source, found)
            else:
                error = error or found
        left = [(step, number) for step, number in self.steps if step.source not in self.refused]
        return WrittenTable(
            work=self.work.without(self.refused),
            cut=self.cut.without(self.refused),
            steps=tuple(step for step, _ in left),
            results=tuple(_result(step, number, done) for step, number in left),
            era=self.era,
            position_resets=self.position_resets,
            identities=self.identities,
            error=error,
            seconds=end - begin,
            written_at=end,
            refused=self.refused,
        )


def _result(step: Step, number: int | None, done: Mapping[int, ChunkDone]) -> ChunkDone | Truncation:
    if number is not None:
        return done[number]
    assert isinstance(step, Truncation)
    return step


def _is_of_source(error: KuvaszError) -> bool:
    """Whether rows of a source are what is wrong, not catalog or store."""
    return not isinstance(error, LakeError)


def _paths(done: Iterable[ChunkDone]) -> set[str]:
    return {file.path for one in done for file in one.files}


def _raw(step: Step) -> _Raw:
    if isinstance(step, Truncation):
        run = [step.commit_lsn, step.commit_us, step.xid, 1, step.ordinal]
        return None, None, Facts.of(np.array([run], np.int64)).to_bytes()
    parts = [part for chunk in bundles.chunks_of(step) for part in chunk.parts]
    lengths = [length for chunk in bundles.chunks_of(step) for length in chunk.lengths]
    facts = step.facts
    return (
        np.concatenate(lengths).tobytes(),
        parts[0] if len(parts) == 1 else b"".join(parts),
        None if facts is None else facts.to_bytes(),
    )


__all__ = ["WriteStage"]
