from __future__ import annotations

import asyncio
import threading

from kuvasz.sync.context.source_threads import SourceThreads, Turn


def test_a_permit_is_given_back_at_the_end() -> None:
    async def run() -> None:
        permits = asyncio.Semaphore(1)
        async with Turn(permits):
            assert permits.locked()
        assert not permits.locked()

    asyncio.run(run())


def test_who_waits_for_something_else_lets_others_in() -> None:
    async def run() -> None:
        permits = asyncio.Semaphore(1)
        async with Turn(permits, 0.01), asyncio.timeout(10), Turn(permits, 0.01):
            pass
        assert not permits.locked()
        await permits.acquire()
        assert permits.locked()

    asyncio.run(run())


def test_a_permit_that_is_kept_keeps_others_out() -> None:
    async def run() -> None:
        permits = asyncio.Semaphore(1)
        async with Turn(permits, 0.01) as turn:
            await turn.keep()
            await asyncio.sleep(0.05)
            assert permits.locked()
        assert not permits.locked()

    asyncio.run(run())


def test_one_that_was_given_back_is_waited_for() -> None:
    async def run() -> None:
        permits = asyncio.Semaphore(1)
        async with Turn(permits, 0.01) as first:
            await permits.acquire()  # once the first has given it back
            waiting = asyncio.create_task(first.keep())
            await asyncio.sleep(0.02)
            assert not waiting.done()
            permits.release()
            await waiting
            assert permits.locked()
        assert not permits.locked()

    asyncio.run(run())


def test_who_lets_others_go_first_is_behind_them() -> None:
    async def run() -> None:
        permits, others, said = asyncio.Semaphore(1), asyncio.Semaphore(1), []

        async def wait() -> None:
            async with Turn(permits):
                said.append("waited")

        async with Turn(permits) as turn:
            await turn.keep()
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            await turn.change()
            said.append("goes on")
            await turn.change(others)
            assert (permits.locked(), others.locked()) == (False, True)
            await turn.change()
            assert (permits.locked(), others.locked()) == (True, False)
        assert not permits.locked()
        await waiting
        assert said == ["waited", "goes on"]

    asyncio.run(run())


def test_who_is_cancelled_while_waiting_holds_nothing() -> None:
    async def run() -> None:
        permits = asyncio.Semaphore(1)
        await permits.acquire()

        async def wait() -> None:
            async with Turn(permits):
                pass

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        permits.release()
        await permits.acquire()

    asyncio.run(run())


def test_sources_that_hang_keep_no_others_waiting() -> None:
    end = threading.Event()

    async def run() -> None:
        threads = SourceThreads(patience_s=0.02)
        hanging = [asyncio.create_task(threads.run(f"dead{n % 20}:5432", end.wait)) for n in range(200)]
        for host in ("alive:5432", "dead1:5432"):
            async with asyncio.timeout(30):
                assert await threads.run(host, lambda: "answered") == "answered"
        end.set()
        await asyncio.gather(*hanging)

    try:
        asyncio.run(run())
    finally:
        end.set()


def test_a_server_is_asked_a_few_things_at_a_time() -> None:
    running, most = 0, 0
    lock = threading.Lock()
    gate = threading.Event()

    def ask() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait()
        with lock:
            running -= 1

    async def run() -> None:
        threads = SourceThreads(patience_s=60)
        asked = [asyncio.create_task(threads.run("one:5432", ask)) for _ in range(20)]
        async with asyncio.timeout(30):
            while most < 8:  # noqa: ASYNC110 (set in threads)
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*asked)

    try:
        asyncio.run(run())
    finally:
        gate.set()
    assert most == 8


def test_looks_that_nobody_waits_for_begin_one_after_another() -> None:
    async def run() -> list[float]:
        threads = SourceThreads()
        return [threads.turn_to_look() for _ in range(3)]

    first, second, third = asyncio.run(run())
    assert first == 0
    assert 0 < second < third
