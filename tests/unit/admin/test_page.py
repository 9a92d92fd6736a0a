from __future__ import annotations

import asyncio
import contextlib

from kuvasz.admin.page import FRESH_S, Page


class Clock:
    """Monotonic seconds that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_all_who_ask_within_a_second_have_one_page() -> None:
    async def run() -> None:
        clock, made = Clock(), [0]

        async def make() -> bytes:
            made[0] += 1
            await asyncio.sleep(0)
            return str(made[0]).encode()

        page = Page(make, clock)
        assert await asyncio.gather(*(page.get() for _ in range(5))) == [b"1"] * 5
        clock.now = FRESH_S - 0.01
        assert await page.get() == b"1"
        clock.now = FRESH_S
        assert await page.get() == b"2"

    asyncio.run(run())


def test_one_that_could_not_be_made_is_made_again() -> None:
    async def run() -> None:
        answers = [ZeroDivisionError(), b"page"]

        async def make() -> bytes:
            answer = answers.pop(0)
            if isinstance(answer, bytes):
                return answer
            raise answer

        page = Page(make)
        with contextlib.suppress(ZeroDivisionError):
            await page.get()
        assert await page.get() == b"page"

    asyncio.run(run())
