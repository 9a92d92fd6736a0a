"""Jobs that write the chunks of a mini-transaction; where one ends without a word, it is found out at whose rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from kuvasz.errors import LakeError, TableError, place_of
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask
from kuvasz.lake.executors.warmup import WarmUp, WriteNoise
from kuvasz.lake.format import naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.model import TableName
    from kuvasz.modes.shape import Shape

#: A chunk with its number, and the bytes of its rows.
SizedTask: TypeAlias = tuple[int, ChunkTask, int]

#: Jobs that may fail before any succeeds; then it is not for some of the rows. One of 300 chunks is found in ten.
_MOST_FAILURES = 20


class ChunkJobs:
    """Runs the chunks of one mini-transaction. Use once.

    Args:
        session: The running Spark.
        jobs: Where tasks run.
        is_apart: Whether it is found out whose rows end a job.
    """

    def __init__(self, session: SparkSession, jobs: Jobs, *, is_apart: bool) -> None:
        self._session = session
        self._jobs = jobs
        self._is_apart = is_apart
        self._failures = 0
        self._has_succeeded = False  #: a job of some of the chunks
        self._tables: set[tuple[str, TableName]] = set()  #: (source, its table) of chunks; of a bundle the first one
        self._blamed: tuple[LakeError, WriteNoise, int] | None = None  #: and what proves it, as large as its chunk
        self.paths: set[str] = set()  #: of all files that may be there now

    def run(self, job: ApplyChunks, chunks: Sequence[SizedTask]) -> dict[int, ChunkDone]:
        """Run chunks.

        Where it is to be found out whose rows end a job, that is done by halves, each attempt under other names: what
        is left of a job may still be writing. A chunk that ends two jobs of its own has an error; see `conclude`.

        Raises:
            LakeError: Spark could not run it.
        """
        return self._run_apart(job, chunks) if self._is_apart else self._run(job, chunks)

    def conclude(self) -> None:
        """Have what was found out count.

        Nobody is to blame unless a job of other chunks succeeded and Spark still runs any: executors may all lack
        memory or room. Where there are chunks of one table alone, files of noise as large as the last one stand for
        others.

        Raises:
            LakeError: Nobody is.
        """
        if self._blamed is None:
            return
        error, sample, size = self._blamed
        if not self._has_succeeded:
            if len(self._tables) > 1:
                raise error
            cores = self._jobs.parallelism
            self._jobs.run(sample, [size] * cores, [size] * cores)
        self._jobs.run(WarmUp(), [0], [1])

    def _run_apart(
        self, job: ApplyChunks, chunks: Sequence[SizedTask], *, is_last: bool = False
    ) -> dict[int, ChunkDone]:
        shapes = (job.shapes[task.shape] for _, task, _ in chunks)
        self._tables |= {(shape.source, shape.table) for shape in shapes}
        try:
            done = self._run(*_with_own_shapes(job, chunks))
        except LakeError as error:
            self._failures += 1
            if not self._has_succeeded and self._failures > _MOST_FAILURES:
                raise
            if is_last:
                ((number, task, size),) = chunks
                self._blamed = error, WriteNoise(job.properties, task.path), size
                return {number: ChunkDone(error=_ends_jobs(job.shapes[task.shape], error))}
        else:
            self._has_succeeded = True
            return done
        anew = [(n, dataclasses.replace(task, path=naming.another(task.path)), size) for n, task, size in chunks]
        if len(anew) == 1:
            return self._run_apart(job, anew, is_last=True)
        half = len(anew) // 2
        return self._run_apart(job, anew[:half]) | self._run_apart(job, anew[half:])

    def _run(self, job: ApplyChunks, chunks: Sequence[SizedTask]) -> dict[int, ChunkDone]:
        """Run chunks together; those with expressions go through Spark SQL, in jobs of their own."""
        begun = {task.path for _, task, _ in chunks}
        self.paths |= begun
        plain: list[SizedTask] = []
        others: list[SizedTask] = []
        for chunk in chunks:
            is_plain = job.shapes[chunk[1].shape].transform is None or chunk[1].data is None
            (plain if is_plain else others).append(chunk)
        done: dict[int, ChunkDone] = {}
        if plain:
            tasks = [(number, task) for number, task, _ in plain]
            done |= dict(self._jobs.run(job, tasks, [size for _, _, size in plain]))
            self.paths |= _paths(done)
        if others:
            done |= dict(expression_jobs.apply_chunks(self._session, job, [(n, task) for n, task, _ in others]))
        self.paths = (self.paths - begun) | _paths(done)
        return done


def _paths(done: Mapping[int, ChunkDone]) -> set[str]:
    return {file.path for one in done.values() for file in one.files}


def _with_own_shapes(job: ApplyChunks, chunks: Sequence[SizedTask]) -> tuple[ApplyChunks, list[SizedTask]]:
    """Return a job with the shapes of its chunks alone: all of them would go with each of many jobs."""
    used = sorted({task.shape for _, task, _ in chunks})
    places = {shape: place for place, shape in enumerate(used)}
    own = dataclasses.replace(
        job,
        shapes=tuple(job.shapes[shape] for shape in used),
        bounded=tuple(job.bounded[shape] for shape in used),
        layouts=tuple(job.layouts[shape] for shape in used),
    )
    return own, [(n, dataclasses.replace(task, shape=places[task.shape]), size) for n, task, size in chunks]


def _ends_jobs(shape: Shape, error: LakeError) -> TableError:
    what = "its rows end the job that writes them, however often it is tried"
    hint = "see Spark's log; give executors more memory, then retry"
    return TableError(f"{place_of(shape.source, shape.table)}: {what}: {error.message}", hint=hint)


__all__ = ["ChunkJobs", "SizedTask"]
