"""Jobs that write chunks: one for all of them, or one for each where it has to be found out whose rows end a job."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from kuvasz.errors import LakeError, TableError, place_of
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.tasks import ApplyChunks, ChunkDone, ChunkTask
from kuvasz.lake.executors.warmup import WarmUp
from kuvasz.lake.format import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kuvasz.lake.executors.jobs import Jobs
    from kuvasz.modes.shape import Shape

#: A chunk with its number, and the bytes of its rows.
SizedTask: TypeAlias = tuple[int, ChunkTask, int]

#: Runs chunks; one way or the other of `ChunkJobs`.
RunChunks: TypeAlias = "Callable[[ApplyChunks, Sequence[SizedTask]], dict[int, ChunkDone]]"


class ChunkJobs:
    """Runs chunks. Safe from any thread.

    Args:
        session: The running Spark.
        jobs: Where tasks run.
    """

    def __init__(self, session: SparkSession, jobs: Jobs) -> None:
        self._session = session
        self._jobs = jobs

    @property
    def parallelism(self) -> int:
        """The cores there are now."""
        return self._jobs.parallelism

    def run(self, job: ApplyChunks, chunks: Sequence[SizedTask]) -> dict[int, ChunkDone]:
        """Run the chunks; those with expressions go through Spark SQL, in jobs of their own.

        Raises:
            LakeError: Spark could not run it.
        """
        plain: list[SizedTask] = []
        others: list[SizedTask] = []
        for chunk in chunks:
            is_plain = job.shapes[chunk[1].shape].transform is None or chunk[1].data is None
            (plain if is_plain else others).append(chunk)
        done: dict[int, ChunkDone] = {}
        if plain:
            tasks = [(number, task) for number, task, _ in plain]
            done |= dict(self._jobs.run(job, tasks, [size for _, _, size in plain]))
        if others:
            done |= dict(expression_jobs.apply_chunks(self._session, job, [(n, task) for n, task, _ in others]))
        return done

    def run_apart(self, job: ApplyChunks, chunks: Sequence[SizedTask]) -> dict[int, ChunkDone]:
        """Run each chunk in a job of its own; one whose job fails twice, while Spark runs others, has an error.

        Raises:
            LakeError: Spark could not run any.
        """
        done: dict[int, ChunkDone] = {}
        again: list[SizedTask] = []
        for number, task, size in chunks:
            try:
                done |= self.run(job, [(number, task, size)])
            except LakeError:  # what is left of that job may still be writing its file
                again.append((number, dataclasses.replace(task, path=naming.another(task.path)), size))
        for chunk in again:
            try:
                done |= self.run(job, [chunk])
            except LakeError as error:
                self._jobs.run(WarmUp(), [0], [1])
                done[chunk[0]] = ChunkDone(error=_ends_jobs(job.shapes[chunk[1].shape], error))
        return done


def _ends_jobs(shape: Shape, error: LakeError) -> TableError:
    what = "its rows end the job that writes them, however often it is tried"
    hint = "see Spark's log; give executors more memory, or make the row smaller, then copy the table again"
    return TableError(f"{place_of(shape.source, shape.table)}: {what}: {error.message}", hint=hint)


__all__ = ["ChunkJobs", "RunChunks", "SizedTask"]
