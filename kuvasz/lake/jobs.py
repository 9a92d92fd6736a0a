"""Spark jobs over plain task lists: the bridge between our task classes and an RDD.

An RDD job costs half the CPU of createDataFrame(...).mapInArrow(...) and, once the workers are slim, 90 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from kuvasz.errors import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


class Jobs:
    """Runs task objects on the session's executors."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.parallelism = max(1, self._context.defaultParallelism)

    def run(
        self, job: Callable[[Iterable[Task]], Iterable[Result]], tasks: Sequence[Task], sizes: Sequence[int]
    ) -> list[Result]:
        """Run one job over all tasks; each partition gets about the same sum of `sizes`.

        Raises:
            LakeError: Spark could not run it, for instance because a worker process died.
        """
        slices = balance(tasks, sizes, self.parallelism)
        try:
            return self._context.parallelize(slices, len(slices)).mapPartitions(_Flat(job)).collect()
        except (Py4JJavaError, Py4JError) as error:
            message = f"a spark job failed: {_cause(error)}"
            raise LakeError(message, hint="it is tried again; see Spark's log if it stays") from error

    def stream(self, job: Callable[[Iterable[Task]], Iterable[Result]], tasks: Sequence[Task]) -> Iterator[Result]:
        """Run a job whose results are too large to hold together: a few tasks at a time."""
        step = 4 * self.parallelism
        for begin in range(0, len(tasks), step):
            part = tasks[begin : begin + step]
            yield from self.run(job, part, [1] * len(part))

    def warm_up(self) -> None:
        """Start one Python worker per core and load what tasks need."""
        from kuvasz.lake.warmup import WarmUp

        self.run(WarmUp(), list(range(self.parallelism)), [1] * self.parallelism)


class _Flat:
    """Unpacks a partition, which is one list of tasks."""

    def __init__(self, job: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
        self._job = job

    def __call__(self, slices: Iterable[list[Any]]) -> Iterator[Any]:
        for tasks in slices:
            yield from self._job(tasks)


def balance(tasks: Sequence[Task], sizes: Sequence[int], count: int) -> list[list[Task]]:
    """Deal tasks into at most `count` non-empty lists of about equal size, largest first."""
    lists: list[list[Task]] = [[] for _ in range(min(count, len(tasks)))]
    loads = [0] * len(lists)
    for index in sorted(range(len(tasks)), key=lambda index: -sizes[index]):
        least = loads.index(min(loads))
        lists[least].append(tasks[index])
        loads[least] += sizes[index]
    return lists


def _cause(error: Py4JError) -> str:
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return " | ".join(telling[-3:] or lines[-3:])[:1500]
