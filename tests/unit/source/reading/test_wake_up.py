from __future__ import annotations

import asyncio
import sys
import time

import pytest

from kuvasz.errors import SourceError
from kuvasz.source.reading.wake_up import LoopEvent, WakeUp


def test_whatever_is_told_ends_the_waiting() -> None:
    for tell, is_leaving in ((WakeUp.quiesce, False), (WakeUp.stop, True), (WakeUp.rewind, True)):
        wake = WakeUp()
        tell(wake)
        assert (wake.called.is_set(), wake.is_leaving) == (True, is_leaving)
    wake = WakeUp()
    wake.fail(SourceError("cut"))
    assert (wake.called.is_set(), wake.is_leaving, str(wake.failure)) == (True, True, "cut")


def test_a_sleep_ends_when_stopped_and_by_nothing_else() -> None:
    async def run() -> None:
        wake, begin = WakeUp(), time.monotonic()
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, wake.rewind)
        await wake.sleep_until(begin + 0.1)
        assert time.monotonic() - begin >= 0.1
        loop.call_later(0.01, wake.stop)
        await wake.sleep_until(begin + 60)
        assert time.monotonic() - begin < 30

    asyncio.run(run())


def test_a_step_of_the_connecting_is_cut_short() -> None:
    async def run() -> None:
        wake = WakeUp()
        assert await wake.unless_stopped(asyncio.sleep(0, 7), "eu") == 7
        asyncio.get_running_loop().call_later(0.01, wake.stop)
        with pytest.raises(SourceError, match=r"^source eu: stopped while connecting$"):
            await wake.unless_stopped(asyncio.sleep(60), "eu")
        with pytest.raises(SourceError, match=r"^source eu: stopped while connecting$"):
            await wake.unless_stopped(asyncio.sleep(60), "eu")

    asyncio.run(run())


def test_a_step_that_takes_too_long_by_itself_says_so() -> None:
    async def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(WakeUp().unless_stopped(late(), "eu"))


def test_whoever_waits_goes_on_when_it_is_set_and_others_at_once() -> None:
    async def run() -> list[str]:
        event, went_on = LoopEvent(), list[str]()

        async def wait(name: str) -> None:
            await event.wait()
            went_on.append(name)

        waiting = [asyncio.ensure_future(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        assert (went_on, event.is_set()) == ([], False)
        event.set()
        event.set()
        event.clear()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (went_on, event.is_set()) == (["a", "c"], False), "they were called, though it is set no more"
        event.set()
        async with asyncio.timeout(5):
            await wait("d")
        return went_on

    assert asyncio.run(run()) == ["a", "c", "d"]


def test_who_gave_up_waiting_is_not_kept() -> None:
    async def run() -> int:
        event = LoopEvent()
        for _ in range(10):
            event.wait().cancel()
        event.wait()
        return len(event._waiting)

    assert asyncio.run(run()) <= 2


def test_an_event_is_small() -> None:
    assert sys.getsizeof(LoopEvent()) <= 48
