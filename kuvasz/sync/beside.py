"""What is done beside the stream of one source, by tasks that are there only while there is something to do.

A task that waits takes 1.5 to 2.3 kB, and each of a thousand sources had seven of them. Here whoever has something to
do beside a stream says what calls for it: something that waits for him, or the time.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from typing_extensions import override

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

#: Seconds by which a timer of the loop may be early.
_EARLY_S = 0.001


class ErrandClock:
    """Whose turn comes when, of what all sources look at now and then: one timer for all. Called on the loop."""

    def __init__(self) -> None:
        self._turns: list[tuple[float, int, Callable[[], None]]] = []  #: the next one first, by the loop's clock
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def call(self, seconds: float, turn: Callable[[], None]) -> None:
        """Have a function called after a while; it raises nothing."""
        mine = asyncio.get_running_loop().time() + seconds, next(self._numbers), turn
        heapq.heappush(self._turns, mine)
        if self._turns[0] is mine:
            self._wind()

    def _wind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._turns[0][0], self._ring)

    def _ring(self) -> None:
        self._timer = None
        until, due = asyncio.get_running_loop().time() + _EARLY_S, []
        while self._turns and self._turns[0][0] <= until:
            due.append(heapq.heappop(self._turns)[2])
        for turn in due:
            turn()
        if self._turns:
            self._wind()


class Beside:
    """What is done beside one stream. Called on the loop.

    Args:
        tasks: What one of its tasks raises ends this group, and the stream with it.
        clock: Tells when it is time for what is done now and then.
        slot: The name of the slot that the stream comes from.
    """

    __slots__ = ("_clock", "_running", "_slot", "_tasks", "is_over")

    def __init__(self, tasks: asyncio.TaskGroup, clock: ErrandClock, slot: str) -> None:
        self._tasks = tasks
        self._clock = clock
        self._slot = slot
        self._running: list[asyncio.Task[None]] = []
        self.is_over = False  #: the stream has ended, or ends

    def start(self, kind: str, work: Work) -> bool:
        """Have something done by a task, and return whether it is: not if the stream ends.

        Args:
            kind: What it is, for the task's name.
            work: What is to be done.
        """
        if self.is_over:
            return False
        job = work()
        try:
            task = self._tasks.create_task(job, name=f"{kind} {self._slot}")
        except RuntimeError:  # another task has failed, and the group ends
            job.close()
            return False
        self._running.append(task)
        task.add_done_callback(self._running.remove)
        return True

    def whenever(self, kind: str, work: Work) -> Errand:
        """Have something done whenever what is returned is called, by one task at a time."""
        return Errand(self, kind, work)

    def now_and_then(
        self, kind: str, work: Work, wait_s: Callable[[], float | None], is_due: Callable[[], bool]
    ) -> Errand:
        """Have something done again and again, and whenever what is returned is called, by one task at a time.

        Args:
            kind: What it is, for the task's name.
            work: What is to be done.
            wait_s: Says for how many seconds to wait until it is time; None: for ever.
            is_due: Says then whether there is something to do.
        """
        errand = _RoundErrand(self, kind, work, self._clock, wait_s, is_due)
        errand.wait()
        return errand

    def end(self) -> None:
        """Cancel what is being done, and begin nothing more."""
        self.is_over = True
        for task in self._running:
            task.cancel()


class Errand:
    """What one task at a time does whenever this is called; what comes while it is at it is its to see.

    Args:
        beside: Beside which stream it does that.
        kind: What it is, for the task's name.
        work: What it does.
    """

    __slots__ = ("_beside", "_is_at_it", "_kind", "_work")

    def __init__(self, beside: Beside, kind: str, work: Work) -> None:
        self._beside = beside
        self._kind = kind
        self._work = work
        self._is_at_it = False

    def __call__(self) -> None:
        """Have it done, unless a task is at it."""
        if not self._is_at_it:
            self._is_at_it = self._beside.start(self._kind, self._run)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self._is_at_it = False
        self.wait()

    def wait(self) -> None:
        """Wait for the next call."""


class _RoundErrand(Errand):
    """An errand that comes round by itself; see `Beside.now_and_then`."""

    __slots__ = ("_clock", "_is_due", "_is_waiting", "_wait_s")

    def __init__(
        self,
        beside: Beside,
        kind: str,
        work: Work,
        clock: ErrandClock,
        wait_s: Callable[[], float | None],
        is_due: Callable[[], bool],
    ) -> None:
        super().__init__(beside, kind, work)
        self._clock = clock
        self._wait_s = wait_s
        self._is_due = is_due
        self._is_waiting = False

    @override
    def wait(self) -> None:
        """Wait until it is time."""
        if not self._is_waiting and (seconds := self._wait_s()) is not None:
            self._is_waiting = True
            self._clock.call(seconds, self._turn)

    def _turn(self) -> None:
        self._is_waiting = False
        if self._beside.is_over:
            return
        try:
            if self._is_due():
                self()
            else:
                self.wait()
        except Exception as error:  # noqa: BLE001 (raised by a task, for it is this source's alone)
            self._beside.start(self._kind, functools.partial(_fail, error))


async def _fail(error: Exception) -> None:
    raise error


__all__ = ["Beside", "Errand", "ErrandClock"]
