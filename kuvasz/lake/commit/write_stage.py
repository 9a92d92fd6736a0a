"""The first stage of a mini-transaction: one Spark job writes the files of all its targets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kuvasz import failpoints
from kuvasz.errors import LakeError
from kuvasz.lake.commit import bundles, chunks
from kuvasz.lake.commit.bundles import Step
from kuvasz.lake.commit.chunk_jobs import ChunkJobs, SizedTask
from kuvasz.lake.commit.step_shapes import StepShapes
from kuvasz.lake.commit.target_plan import JobChunk, JobInput, TargetPlan
from kuvasz.lake.commit.written import Written
from kuvasz.lake.executors.tasks import ChunkDone, ChunkTask
from kuvasz.lake.files.data_file import remove
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.store_access import of_table
from kuvasz.lake.format import naming
from kuvasz.lake.format.binding import Feeds
from kuvasz.model import Truncation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kuvasz.config.model import Config
    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.lake.executors.spool import Spool
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.ports import TableWork
    from kuvasz.seal.sealing_key import Buffer

#: What an executor needs of a step: lengths, messages, and facts of the transactions.
_Raw: TypeAlias = "tuple[bytes | None, Buffer | None, bytes | None]"


class WriteStage:
    """Cuts changes into chunks, hands them to Spark, and keeps what came of them. Safe from any thread.

    Args:
        session: The running Spark.
        jobs: Where tasks run.
        spool: Takes raw changes to the executors.
        tables: Every prepared table by its name.
        feeds: What feeds them.
        config: The whole configuration.
        properties: The properties of the FileIO; by default the map's own.
    """

    def __init__(
        self,
        session: SparkSession,
        jobs: Jobs,
        spool: Spool,
        tables: Mapping[str, LakeTable],
        feeds: Feeds,
        config: Config,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._session = session
        self._jobs = jobs
        self._spool = spool
        self._tables = tables
        self._feeds = feeds
        self._config = config
        self._properties = config.lake.properties if properties is None else properties

    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Written:
        """See `kuvasz.ports.Lake.write`."""
        size = self._chunk_bytes(works)
        batch = JobInput()
        plans = [plan for work in works if (plan := self._plan(work, size, batch)) is not None]
        jobs = ChunkJobs(self._session, self._jobs, is_apart=apart)
        begin = time.monotonic()
        try:
            done = self._run(batch, jobs)
            self._leave_out(plans, batch, done, jobs)
            jobs.conclude()
            end = time.monotonic()
            written = Written(tables=tuple(plan.written(done, batch, begin, end) for plan in plans))
            self._remove(jobs.paths.difference(*(table.paths() for table in written.tables)))
        except BaseException:
            self._remove(jobs.paths)
            raise
        for table in written.tables:  # only now: a job that failed is run again with the same rows
            table.era.accept(table.work.through)
            table.era.events = dict(table.cut.events)
            table.era.refuse(table.refused)
        for table in written.tables:
            self._tables[table.work.target].commits.in_flight.update(table.paths())
        return written

    def _chunk_bytes(self, works: Sequence[TableWork]) -> int:
        total = sum(len(c.data) for work in works for c in work.changes if not isinstance(c, Truncation))
        cores = self._jobs.parallelism
        return max(1 << 20, min(self._config.pipeline.chunk_bytes, total // cores + 1))

    def _plan(self, work: TableWork, chunk_bytes: int, batch: JobInput) -> TargetPlan | None:
        """Cut one target's changes and put what Spark has to do into the batch; None if the target has failed."""
        table = self._tables[work.target]
        era, identities = table.era, table.definition.identities
        work = work.without(era.refused)
        if era.error is not None or (era.refused and work.is_empty):
            return None
        resets = dict(era.position_resets)
        events = {key: value for key, value in era.events.items() if key[0] not in work.abandoned}
        has_facts = table.columns.shapes.want_facts
        cut = chunks.cut(
            work.changes, dict(era.accepted), chunk_bytes, table.target.type, events, counts=has_facts,
            is_soft=table.target.is_soft,
        )  # fmt: skip
        plan = TargetPlan(work=work, cut=cut, era=era, position_resets=resets, identities=identities)
        shapes = StepShapes(table, self._feeds)
        with table.definition.lock:  # steps that are put together must see one schema and one layout
            plan.add(bundles.pack(plan.cut.steps, shapes.likeness, chunk_bytes), table, shapes, batch)
        return plan

    def _leave_out(
        self, plans: Sequence[TargetPlan], batch: JobInput, done: dict[int, ChunkDone], jobs: ChunkJobs
    ) -> None:
        """Leave out the sources that brought what is wrong: what they have put together with others is written anew.

        What comes of it is added to what was done.
        """
        first = len(batch.chunks)
        while True:
            begin = len(batch.chunks)
            if not any([self._separate(plan, batch, done, is_apart=begin > first) for plan in plans]):  # noqa: C419 (each of them)
                return
            done |= self._run(batch, jobs, begin)

    def _separate(self, plan: TargetPlan, batch: JobInput, done: Mapping[int, ChunkDone], *, is_apart: bool) -> bool:
        unknown = plan.refuse(done, batch)
        if not (unknown or plan.refused):
            return False
        table = self._tables[plan.work.target]
        with table.definition.lock:
            return plan.separate(unknown, table, StepShapes(table, self._feeds), batch, is_apart=is_apart)

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            remove(file_io(self._properties, path), [path])

    def _run(self, batch: JobInput, jobs: ChunkJobs, begin: int = 0) -> dict[int, ChunkDone]:
        """Run the chunks of the batch from a number on."""
        chunks = batch.chunks[begin:]
        if not chunks:
            return {}
        raw = [_raw(chunk.step) for chunk in chunks]
        path, written = self._spool.write(*_parts(chunks, raw))
        slices = iter(written)
        tasks: list[SizedTask] = []
        try:
            for number, (chunk, parts) in enumerate(zip(chunks, raw, strict=True), begin):
                lengths, data, facts = (None if part is None else next(slices) for part in parts)
                task = ChunkTask(
                    shape=chunk.shape, count=chunk.rows, lengths=lengths, data=data, owners=chunk.owners,
                    facts=facts, order=chunk.order, path=naming.fresh(chunk.location, chunk.step.source, chunk.order),
                )  # fmt: skip
                tasks.append((number, task, chunk.size))
            failpoints.hit("before_data_files", LakeError)
            locations = {chunk.location for chunk in chunks}
            done = jobs.run(batch.job(of_table(self._properties, *locations)), tasks)
            failpoints.hit("after_data_files", LakeError)
            return done
        finally:
            self._spool.remove(path)


def _parts(chunks: Sequence[JobChunk], raw: Sequence[_Raw]) -> tuple[list[Buffer], set[int]]:
    """Return what is spooled, and the numbers of what of it is sealed."""
    found: list[Buffer] = []
    sealed = set()
    for chunk, (lengths, data, facts) in zip(chunks, raw, strict=True):
        if chunk.is_hiding and data is not None:
            sealed.add(len(found) + 1)
        found += [part for part in (lengths, data, facts) if part is not None]
    return found, sealed


def _raw(step: Step) -> _Raw:
    if isinstance(step, Truncation):
        return None, None, chunks.facts_of(step).to_bytes()
    parts = [part for chunk in bundles.chunks_of(step) for part in chunk.parts]
    lengths = [length for chunk in bundles.chunks_of(step) for length in chunk.lengths]
    facts = step.facts
    return (
        np.concatenate(lengths).tobytes(),
        parts[0] if len(parts) == 1 else b"".join(parts),
        None if facts is None else facts.to_bytes(),
    )


__all__ = ["WriteStage"]
