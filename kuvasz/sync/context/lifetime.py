"""How long one source lives, and how threads reach the event loop it lives on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from kuvasz.errors import SourceError
from kuvasz.source.reading.wake_up import LoopEvent
from kuvasz.sync.rules.few_keys import FewKeys

T = TypeVar("T")

#: What a thread is at; its result comes in that thread, or on the loop.
Job: TypeAlias = "concurrent.futures.Future[Any] | asyncio.Future[Any]"

#: Between looks at threads that are left.
_LOOK_S = 0.05


class Lifetime:
    """From `begin` to `end`. Methods are called on the loop unless they say otherwise."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = LoopEvent()
        self.has_started = False  #: the source passed its checks at least once
        self._left: FewKeys[Job] = FewKeys()  #: threads that nobody waits for any more

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end. From any thread."""
        return self._ending.is_set()

    def begin(self) -> None:
        """Live on the loop that runs."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """Have everything that waits for it end."""
        self._ending.set()

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or less if it ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    def leave(self, job: Job) -> None:
        """Take note of a thread whose task was cancelled: it may still be at it when all else has ended."""
        self._left.add(job)
        job.add_done_callback(self._left.discard)

    async def seen_off(self) -> None:
        """Return when none of them is left, however long that takes: it must not meet what comes after."""
        while self._left:  # noqa: ASYNC110 (their results are nobody's)
            await asyncio.sleep(_LOOK_S)

    # From any thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call a function, unless there is none or it ends."""
        if self._loop is not None and not self.is_ending:
            self._loop.call_soon_threadsafe(functools.partial(function, *arguments))

    def call_later(self, seconds: float, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call a function after a while, unless there is none or it ends."""
        if self._loop is not None:
            self.call(self._loop.call_later, seconds, function, *arguments)

    def complete(self, coroutine: Coroutine[Any, Any, T], check: Callable[[], None] | None = None) -> T:
        """Have the loop run a coroutine, and wait for it; not from the loop itself.

        Args:
            coroutine: What to run.
            check: Called now and then while it is waited for; what it raises cancels the coroutine.

        Raises:
            SourceError: The loop is closed: kuvasz has stopped, and the thread is one that nobody waits for any more.
        """
        assert self._loop is not None
        try:
            job = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise SourceError("kuvasz has stopped", hint="nothing is lost: the next start goes on") from error
        while check is not None and not job.done():
            try:
                check()
            except BaseException:
                job.cancel()
                raise
            concurrent.futures.wait([job], _LOOK_S)
        return job.result()


async def finished(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread, to its end also if the task is cancelled: it must not meet what comes after."""
    job = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await ended(job)
        raise


async def ended(job: asyncio.Future[T]) -> None:
    """Wait until a thread that cannot be cancelled has ended, however often the task that waits is cancelled."""
    while not job.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([job])
    if not job.cancelled():
        job.exception()


__all__ = ["Job", "Lifetime", "ended", "finished"]
