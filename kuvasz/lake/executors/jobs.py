"""Spark jobs over plain task lists: the bridge between our task classes and an RDD.

An RDD job costs half the CPU of createDataFrame(...).mapInArrow(...) and, once the workers are slim, 90 ms.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError

from kuvasz.errors import JobFailed, LakeError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = EventLog(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Seconds between two warnings that no executor has come.
_TELL_S = 15.0

#: How often warming up is tried before the start ends.
_WARM_UPS = 3

#: A line of Java's stack: its class may be called an error.
_FRAME = re.compile(r"at [\w$./<>]+\(")

#: Scheduler pool and job group of maintenance.
_BACKGROUND = "maintenance"

_NO_EXECUTOR = (
    "see the cluster's page for free cores and memory; `spark.executor.memory`, `spark.executor.cores` and"
    " `spark.cores.max` in `spark.conf` say how much is asked for"
)


class Jobs:
    """Runs task objects on the session's executors.

    Args:
        session: The session.
        is_background: Jobs take no core that others want.
    """

    def __init__(self, session: SparkSession, *, is_background: bool = False) -> None:
        self.session = session
        self._is_background = is_background
        self._context = session.sparkContext

    @property
    def is_local(self) -> bool:
        """Whether the executors are processes of this machine."""
        return str(self._context.master).startswith("local[") or self._context.master == "local"

    @property
    def parallelism(self) -> int:
        """The cores there are now: a cluster's executors come one by one, and may go."""
        return max(1, self._context.defaultParallelism)

    def run(
        self,
        job: Callable[[Iterable[Task]], Iterable[Result]],
        tasks: Sequence[Task],
        sizes: Sequence[int],
        slots: int | None = None,
    ) -> list[Result]:
        """Run one job over all tasks; each partition gets about the same sum of `sizes`.

        Args:
            job: What to run.
            tasks: The tasks of the job.
            sizes: The size of each task, in any unit.
            slots: Cores to use at most; all of them by default.

        Raises:
            JobFailed: Spark could not run it, for instance because a worker process died.
        """
        slices = balance(tasks, sizes, slots or self.parallelism)
        try:
            return self._context.parallelize(slices, len(slices)).mapPartitions(_Flat(job)).collect()
        except (Py4JError, ConnectionError) as error:  # ConnectionError: the JVM is gone
            message = f"a spark job failed: {_cause(error)}"
            raise JobFailed(message, hint="it is tried again; see Spark's log if it stays") from error

    def join(self) -> None:
        """Have this thread's jobs be of the kind that these are."""
        if self._is_background:
            self.go_background()

    def go_background(self) -> None:
        """Let the jobs that this thread runs from now on take no core that others want, and be cancelled together."""
        # The FAIR scheduler gives each pool its share, however many tasks wait in the other one.
        self._context.setLocalProperty("spark.scheduler.pool", _BACKGROUND)
        self._context.setJobGroup(_BACKGROUND, "maintenance")

    def cancel_background(self) -> None:
        """End the jobs of threads that went into the background; they fail with a `LakeError`."""
        with contextlib.suppress(Py4JError, ConnectionError):
            self._context.cancelJobGroup(_BACKGROUND)

    def stream(self, job: Callable[[Iterable[Task]], Iterable[Result]], tasks: Sequence[Task]) -> Iterator[Result]:
        """Run a job whose results are too large to hold together: a few tasks at a time."""
        step = 4 * self.parallelism
        for begin in range(0, len(tasks), step):
            part = tasks[begin : begin + step]
            yield from self.run(job, part, [1] * len(part))

    def warm_up(self, patience_s: float = 180.0) -> None:
        """Start one Python worker per core and load what tasks need.

        Args:
            patience_s: How long a cluster may take to give the first executor: Spark itself would wait for ever.

        Raises:
            LakeError: The cluster gave no executor, or the job failed.
        """
        from kuvasz.lake.executors.warmup import WarmUp

        done = threading.Event()
        gave_up = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done, gave_up, patience_s), name="executors", daemon=True)
        watch.start()
        count = self.parallelism
        try:
            self._run_again(WarmUp(), count, gave_up)
        except LakeError as error:
            if not gave_up.is_set():
                raise
            message = f"{self._context.master} gave no executor within {patience_s:g} s"
            raise LakeError(message, hint=_NO_EXECUTOR) from error
        finally:
            done.set()
            watch.join()

    def _run_again(
        self, job: Callable[[Iterable[int]], Iterable[object]], count: int, gave_up: threading.Event
    ) -> None:
        """Run a job once per core, and anew if a worker dies: nobody else would, for nothing has begun yet."""
        for left in reversed(range(_WARM_UPS)):
            try:
                self.run(job, list(range(count)), [1] * count)
            except JobFailed:
                if left == 0 or gave_up.is_set():
                    raise
            else:
                return

    def _watch(self, done: threading.Event, gave_up: threading.Event, patience_s: float) -> None:
        """Tell of a cluster that gives no executor, and cancel the job in the end."""
        waited = 0.0
        step = min(_TELL_S, patience_s)
        while not done.wait(step) and self._executors() == 0:
            waited += step
            _log.tell(Event.NO_EXECUTOR, master=self._context.master, waited_s=waited, hint=_NO_EXECUTOR)
            if waited >= patience_s:
                gave_up.set()
                self._context.cancelAllJobs()
                return

    def _executors(self) -> int:
        """How many processes run tasks; the driver counts where it does so itself."""
        status = self._context._jsc.sc().getExecutorMemoryStatus()
        return int(status.size()) - (0 if self.is_local else 1)


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


def _cause(error: Exception) -> str:
    text = str(error)
    lines = [line for line in map(str.strip, text.splitlines()) if line and not _FRAME.match(line)]
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return " | ".join(telling[-3:] or lines[-3:])[:1500]
