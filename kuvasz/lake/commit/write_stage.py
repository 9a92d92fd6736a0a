"""The first stage of a mini-transaction: one Spark job writes the files of all its targets."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz import failpoints
from kuvasz.errors import KuvaszError, LakeError
from kuvasz.lake.commit import bundles, chunks
from kuvasz.lake.commit.bundles import Step
from kuvasz.lake.commit.chunks import Cut
from kuvasz.lake.commit.step_shapes import StepShapes
from kuvasz.lake.commit.written import Written, WrittenTable
from kuvasz.lake.executors import expression_jobs
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
        self._session = session
        self._jobs = jobs
        self._spool = spool
        self._tables = tables
        self._feeds = feeds
        self._config = config
        self._properties = config.lake.properties

    def write(self, works: Sequence[TableWork]) -> Written:
        """See `kuvasz.ports.Lake.write`."""
        size = self._chunk_bytes(works)
        batch = _JobInput()
        plans = [plan for work in works if (plan := self._plan(work, size, batch)) is not None]
        begin = time.monotonic()
        done = self._run(batch)
        end = time.monotonic()
        for plan in plans:  # only now: a job that failed is run again with the same rows
            plan.era.accept(plan.work.through)
            plan.era.events = plan.cut.events
        written = Written(tables=tuple(plan.written(done, batch, begin, end) for plan in plans))
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
        if era.error is not None:
            return None
        resets = dict(era.position_resets)
        events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
        cut = chunks.cut(work.changes, dict(era.accepted), chunk_bytes, table.target.type, events)
        plan = _TargetPlan(work=work, cut=cut, era=era, position_resets=resets, identities=identities)
        try:
            self._add_steps(plan, table, chunk_bytes, batch)
        except KuvaszError as error:
            plan.error = error
        return plan

    def _add_steps(self, plan: _TargetPlan, table: LakeTable, chunk_bytes: int, batch: _JobInput) -> None:
        shapes = StepShapes(table, self._feeds)
        with table.definition.lock:  # steps that are put together must see one schema and one layout
            plan.steps = tuple(bundles.pack(plan.cut.steps, shapes.likeness, chunk_bytes))
            for step in plan.steps:
                is_row = table.target.type is TableType.CHANGELOG or not isinstance(step, Truncation)
                plan.numbers.append(batch.add(step, table, shapes) if is_row else None)

    def _run(self, batch: _JobInput) -> dict[int, ChunkDone]:
        if not batch.chunks:
            return {}
        raw = batch.raw()
        path, written = self._spool.write([part for parts in raw for part in parts if part is not None])
        slices = iter(written)
        tasks: list[tuple[int, ChunkTask]] = []
        done: dict[int, ChunkDone] = {}
        try:
            for number, (step, shape, owners, table) in enumerate(batch.chunks):
                lengths, data, facts = (None if part is None else next(slices) for part in raw[number])
                order = next(_orders)
                task = ChunkTask(
                    shape=shape, count=1 if isinstance(step, Truncation) else step.rows, lengths=lengths, data=data,
                    owners=owners, facts=facts, order=order,
                    path=naming.fresh(table.definition.location, step.source, order),
                )  # fmt: skip
                tasks.append((number, task))
            failpoints.hit("before_data_files", LakeError)
            done = self._run_tasks(batch.job(self._properties), tasks, batch.sizes())
            failpoints.hit("after_data_files", LakeError)
        except BaseException:
            io = file_io(self._properties, self._config.lake.warehouse_location)
            remove(io, {task.path for _, task in tasks} | {f.path for one in done.values() for f in one.files})
            raise
        else:
            return done
        finally:
            self._spool.remove(path)

    def _run_tasks(
        self, job: ApplyChunks, tasks: Sequence[tuple[int, ChunkTask]], sizes: Sequence[int]
    ) -> dict[int, ChunkDone]:
        """Run the chunks; those with expressions go through Spark SQL, in jobs of their own."""
        plain = [(task, size) for task, size in zip(tasks, sizes, strict=True)
                 if job.shapes[task[1].shape].transform is None or task[1].data is None]  # fmt: skip
        done: dict[int, ChunkDone] = {}
        if plain:
            done |= dict(self._jobs.run(job, [task for task, _ in plain], [size for _, size in plain]))
        if len(plain) < len(tasks):
            simple = {number for (number, _), _ in plain}
            others = [task for task in tasks if task[0] not in simple]
            done |= dict(expression_jobs.apply_chunks(self._session, job, others))
        return done


class _JobInput:
    """What one Spark job is given: chunks of all targets, and how their rows look."""

    def __init__(self) -> None:
        #: With the number of its shape, and whose its rows are if they are of several sources.
        self.chunks: list[tuple[Step, int, tuple[Owner, ...], LakeTable]] = []
        self._shapes: list[Shape] = []
        self._numbers: dict[int, int] = {}  # id of a shape -> its number
        self._bounds: list[tuple[str, ...]] = []
        self._layouts: list[Layout] = []

    def add(self, step: Step, table: LakeTable, shapes: StepShapes) -> int:
        """Take a step; return its number."""
        shape, owners = shapes.of(step)
        if id(shape) not in self._numbers:
            self._numbers[id(shape)] = len(self._shapes)
            self._shapes.append(shape)
            self._bounds.append(table.definition.bounded)
            self._layouts.append(table.definition.layout)
        self.chunks.append((step, self._numbers[id(shape)], owners, table))
        return len(self.chunks) - 1

    def job(self, properties: Mapping[str, str]) -> ApplyChunks:
        return ApplyChunks(
            shapes=tuple(self._shapes),
            bounded=tuple(self._bounds),
            layouts=tuple(self._layouts),
            properties=properties,
        )

    def raw(self) -> list[_Raw]:
        """Return what each chunk is made of."""
        return [_raw(step) for step, *_ in self.chunks]

    def sizes(self) -> list[int]:
        return [1 if isinstance(step, Truncation) else step.size for step, *_ in self.chunks]

    def error(self, number: int, result: ChunkDone) -> KuvaszError | None:
        """Return the error of a chunk, with the commit it is found in."""
        if result.error is None:
            return None
        step = self.chunks[number][0]
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
    steps: tuple[Step, ...] = ()
    numbers: list[int | None] = dataclasses.field(default_factory=list)  #: per step: its number in the batch, if any
    error: KuvaszError | None = None

    def written(self, done: Mapping[int, ChunkDone], batch: _JobInput, begin: float, end: float) -> WrittenTable:
        """Put the results in the order of the steps; the first error of them counts.

        Args:
            done: Number in the batch -> what came of it.
            batch: It.
            begin: When the job began, monotonic seconds.
            end: When it ended.
        """
        error = self.error
        results: list[ChunkDone | Truncation] = []
        for step, number in zip(self.steps, self.numbers, strict=False):  # fewer, if an error came between
            if number is None:
                assert isinstance(step, Truncation)
                results.append(step)
                continue
            results.append(done[number])
            error = error or batch.error(number, done[number])
        return WrittenTable(
            work=self.work,
            cut=self.cut,
            steps=self.steps,
            results=tuple(results),
            era=self.era,
            position_resets=self.position_resets,
            identities=self.identities,
            error=error,
            seconds=end - begin,
            written_at=end,
        )


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
