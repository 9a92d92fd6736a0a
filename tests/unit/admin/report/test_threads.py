"""Where threads and tasks are; never what they have in hand."""

from __future__ import annotations

import asyncio
import threading

from kuvasz.admin.report.threads import tasks, threads


def wait_here(gone: threading.Event, secret: str) -> None:
    gone.wait(30)


def test_a_thread_is_told_with_its_name_and_its_calls_the_innermost_last() -> None:
    gone = threading.Event()
    thread = threading.Thread(target=wait_here, args=(gone, "geheim"), name="a reader")
    thread.start()
    try:
        (found,) = [one for one in threads() if one["thread"] == "a reader"]
    finally:
        gone.set()
        thread.join()
    at = [number for number, place in enumerate(found["stack"]) if place.endswith(" wait_here")]
    assert at
    assert at[0] < len(found["stack"]) - 1, "the wait itself is further in"
    assert "geheim" not in str(found)


def test_a_task_is_told_with_all_that_it_waits_for() -> None:
    async def inner(future: asyncio.Future[str]) -> str:
        return await future

    async def outer(future: asyncio.Future[str]) -> str:
        return await inner(future)

    async def look() -> list[dict]:
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(outer(future), name="a stream")
        await asyncio.sleep(0)
        found = tasks()
        future.set_result("geheim")
        await task
        return found

    (found,) = [one for one in asyncio.run(look()) if one["task"] == "a stream"]
    assert [place.rpartition(".")[2] for place in found["stack"]] == ["outer", "inner"]
    assert "Future" in found["waits_for"]
