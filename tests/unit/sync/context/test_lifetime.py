from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable

import pytest

from kuvasz.errors import SourceError
from kuvasz.sync.context.lifetime import Job, Lifetime, finished


def test_a_sleep_ends_when_the_life_does() -> None:
    async def run() -> tuple[float, float]:
        lifetime, begin = Lifetime(), time.monotonic()
        lifetime.begin()
        await lifetime.sleep(0.05)
        whole = time.monotonic() - begin
        asyncio.get_running_loop().call_later(0.05, lifetime.end)
        await lifetime.sleep(60)
        assert lifetime.is_ending
        return whole, time.monotonic() - begin

    whole, both = asyncio.run(run())
    assert whole >= 0.04
    assert both < 10


def test_threads_reach_the_loop_until_it_ends() -> None:
    called: list[tuple[str, int]] = []

    def note(what: str) -> None:
        called.append((what, threading.get_ident()))

    async def answer() -> int:
        return threading.get_ident()

    async def run() -> int:
        lifetime = Lifetime()
        lifetime.call(note, "before it began")
        lifetime.call_later(0, note, "before it began")
        lifetime.begin()
        assert await asyncio.to_thread(lifetime.complete, answer()) == threading.get_ident()
        await asyncio.to_thread(lifetime.call, note, "at once")
        await asyncio.to_thread(lifetime.call_later, 0.01, note, "later")
        await asyncio.sleep(0.1)
        lifetime.end()
        lifetime.call(note, "after its end")
        lifetime.call_later(0, note, "after its end")
        await asyncio.sleep(0.05)
        return threading.get_ident()

    loop = asyncio.run(run())
    assert called == [("at once", loop), ("later", loop)]


def test_a_thread_that_is_left_when_all_has_stopped_is_told_so() -> None:
    lifetime = Lifetime()

    async def begin() -> None:
        lifetime.begin()

    async def nothing() -> None: ...

    asyncio.run(begin())
    with pytest.raises(SourceError, match="kuvasz has stopped"):
        lifetime.complete(nothing())


def test_a_thread_is_waited_for_however_often_the_task_is_cancelled() -> None:
    """A task of a group that fails is cancelled by the group, and by whoever began it."""
    goes_on, ends = threading.Event(), []

    def work() -> None:
        assert goes_on.wait(30)
        ends.append("thread")

    async def run() -> None:
        task = asyncio.ensure_future(finished(work))
        await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends.append("task")

    asyncio.run(run())
    assert ends == ["thread", "task"]


@pytest.mark.parametrize("kind", [concurrent.futures.Future, asyncio.Future])
def test_threads_that_nobody_waits_for_are_seen_off(kind: Callable[[], Job]) -> None:
    async def run() -> None:
        lifetime, job = Lifetime(), kind()
        await lifetime.seen_off()
        lifetime.leave(job)
        waiting = asyncio.ensure_future(lifetime.seen_off())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        job.set_exception(ValueError("nobody asks"))
        await asyncio.wait_for(waiting, 10)

    asyncio.run(run())
