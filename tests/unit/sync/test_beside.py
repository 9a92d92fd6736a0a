from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kuvasz.sync.beside import Beside, ErrandClock


def live(then: Callable[[Beside], Awaitable[None]]) -> None:
    """Have something be done beside a stream, which ends behind it."""

    async def run() -> None:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            beside = Beside(tasks, ErrandClock(), "kuvasz")
            try:
                await then(beside)
            finally:
                beside.end()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (a condition, not an event)
        await asyncio.sleep(0.001)


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def test_a_task_is_there_while_there_is_something_to_do() -> None:
    async def then(beside: Beside) -> None:
        waiting, done, may_go_on = list[int](), list[int](), asyncio.Event()

        async def work() -> None:
            while waiting:
                done.append(waiting.pop(0))
                await may_go_on.wait()

        call = beside.whenever("copy", work)
        assert tasks() == set()
        for number in (1, 2):
            waiting.append(number)
            call()
        await until(lambda: done)
        assert tasks() == {"copy kuvasz"}, "one for both"
        may_go_on.set()
        await until(lambda: not tasks())
        assert done == [1, 2]
        waiting.append(3)
        call()
        await until(lambda: not tasks())
        assert done == [1, 2, 3]

    live(then)


def test_what_is_being_done_at_the_end_is_cancelled_and_nothing_more_is_begun() -> None:
    done: list[str] = []

    async def then(beside: Beside) -> None:
        async def work() -> None:
            done.append("begun")
            try:
                await asyncio.sleep(60)
            finally:
                done.append("cancelled")

        call = beside.whenever("copy", work)
        beside.now_and_then("patrol", work, lambda: 0.001, lambda: False)
        call()
        await asyncio.sleep(0.01)
        beside.end()
        call()
        assert not beside.start("replay", work)
        await asyncio.sleep(0.01)

    live(then)
    assert done == ["begun", "cancelled"]


def test_what_one_of_them_raises_ends_the_stream_and_what_is_called_for_meanwhile_is_not_begun() -> None:
    started: list[bool] = []

    async def then(beside: Beside) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        async def work() -> None:
            started.append(True)

        beside.start("copy", fail)
        try:
            await asyncio.sleep(60)
        finally:  # the group ends, and whoever is called does not know yet
            assert not beside.start("readmit", work)

    with pytest.raises(BaseExceptionGroup) as caught:
        live(then)
    assert caught.value.subgroup(ZeroDivisionError) is not None
    assert started == []


def test_what_comes_round_is_done_again_and_again_while_it_is_due() -> None:
    async def then(beside: Beside) -> None:
        done, asked, is_due = list[str](), list[str](), [False]

        async def work() -> None:
            done.append("looked")
            await asyncio.sleep(0.001)

        def ask() -> bool:
            asked.append("due?")
            return is_due[0]

        call = beside.now_and_then("patrol", work, lambda: 0.001, ask)
        await until(lambda: len(asked) > 3)
        assert (done, tasks()) == ([], set())
        is_due[0] = True
        await until(lambda: len(done) > 3)
        is_due[0] = False
        await until(lambda: not tasks())
        so_far = len(done)
        call()  # whether it is time or not, and once
        call()
        await until(lambda: not tasks())
        assert len(done) == so_far + 1
        before = len(asked)
        await until(lambda: len(asked) > before + 3)

    live(then)


def test_it_comes_round_once_at_a_time_however_often_it_is_called() -> None:
    async def then(beside: Beside) -> None:
        waits = list[float]()

        async def work() -> None:
            pass

        def wait_s() -> float:
            waits.append(30.0)
            return waits[-1]

        call = beside.now_and_then("patrol", work, wait_s, lambda: True)
        for _ in range(5):
            call()
            await until(lambda: not tasks())
        assert len(waits) == 1, "the first one goes on"

    live(then)


def test_what_has_to_wait_for_ever_comes_round_no_more() -> None:
    async def then(beside: Beside) -> None:
        waits, asked = iter([0.001, 0.001, None]), list[str]()

        async def work() -> None:
            asked.append("looked")

        beside.now_and_then("patrol", work, lambda: next(waits), lambda: True)
        await until(lambda: len(asked) == 2)
        await asyncio.sleep(0.02)
        assert len(asked) == 2

    live(then)


def test_a_mistake_in_the_asking_is_that_of_one_source() -> None:
    async def run() -> int:
        rounds, looks = ErrandClock(), list[str]()

        async def work() -> None:
            looks.append("looked")

        def mistaken() -> bool:
            raise ZeroDivisionError

        async def one(is_due: Callable[[], bool]) -> None:
            async with asyncio.TaskGroup() as group:
                beside = Beside(group, rounds, "kuvasz")
                beside.now_and_then("patrol", work, lambda: 0.001, is_due)
                try:
                    await until(lambda: len(looks) > 5)
                finally:
                    beside.end()

        async with asyncio.timeout(30):
            bad, good = await asyncio.gather(one(mistaken), one(lambda: True), return_exceptions=True)
        assert isinstance(bad, BaseExceptionGroup)
        assert bad.subgroup(ZeroDivisionError) is not None
        assert good is None
        return len(looks)

    assert asyncio.run(run()) > 5


def test_turns_come_in_the_order_of_their_times() -> None:
    async def run() -> list[int]:
        rounds, came = ErrandClock(), list[int]()
        for wait in (5, 1, 3, 2, 4):
            rounds.call(wait / 200, lambda wait=wait: came.append(wait))
        await until(lambda: len(came) == 5)
        rounds.call(0.0, lambda: came.append(6))
        await until(lambda: len(came) == 6)
        return came

    assert asyncio.run(run()) == [1, 2, 3, 4, 5, 6]
