from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kuvasz.errors import InternalError, SourceError
from kuvasz.route.hashing import worker_of
from kuvasz.worker.workers import Workers


class Worker:
    """Has begun three mini-transactions and ended as many as told."""

    def __init__(self) -> None:
        self.ended = 3
        self.died: BaseException | None = None
        self.is_stopping = False
        self.stopped: list[float] = []
        self.asked: list[str] = []
        self.limits: list[int] = []
        self.is_started = self.is_hurried = False

    def start(self) -> None:
        self.is_started = True

    def hurry(self) -> None:
        self.is_hurried = True

    def limit(self, most_bytes: int) -> None:
        self.limits.append(most_bytes)

    def stop(self, timeout_s: float) -> None:
        self.stopped.append(timeout_s)

    def begun(self) -> int:
        return 3

    def has_parts(self, target: str) -> bool:
        return False

    def has_ended(self, begun: int, target: str) -> bool:
        self.asked.append(target)
        return self.ended >= begun


@pytest.fixture
def made() -> list[Any]:
    return [Worker(), Worker()]


def test_the_worker_of_a_target_is_settled_when_it_has_ended_what_it_had_begun(made: list[Any]) -> None:
    mine = made[worker_of("shop.items", 2)]
    mine.ended = 2

    async def run() -> None:
        waiting = asyncio.ensure_future(Workers(made).settle("shop.items"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        mine.ended = 3
        await asyncio.wait_for(waiting, 10)

    asyncio.run(run())
    assert {target for worker in made for target in worker.asked} == {"shop.items"}
    assert not made[1 - worker_of("shop.items", 2)].asked


def test_nothing_is_settled_once_a_worker_stops(made: list[Any]) -> None:
    mine = made[worker_of("shop.items", 2)]
    mine.ended, mine.is_stopping = 2, True
    with pytest.raises(SourceError, match=r"^stopped while changes of table shop\.items were under way$"):
        asyncio.run(Workers(made).settle("shop.items"))


def test_all_stop_and_one_that_died_is_told(made: list[Any]) -> None:
    workers = Workers(made)
    assert workers.died is None
    asyncio.run(workers.stop(7.0))
    assert [worker.stopped for worker in made] == [[7.0], [7.0]]
    made[1].died = InternalError("a bug")
    assert workers.died is made[1].died


def test_targets_that_change_at_once_have_the_worker_of_their_group() -> None:
    workers = Workers([Worker() for _ in range(64)], {"shop.a": "shop", "shop.b": "shop"})  # type: ignore[misc]
    assert workers.number_of("shop.a") == workers.number_of("shop.b") == worker_of("shop", 64)
    assert workers.number_of("shop.c") == worker_of("shop.c", 64)


def test_targets_at_one_pace_of_their_own_have_one_worker() -> None:
    workers = Workers([Worker() for _ in range(3)], {"shop.a": "slow", "shop.b": "slow"}, ["slow"])  # type: ignore[misc]
    assert (workers.shared, workers.number_of("shop.a"), workers.number_of("shop.b")) == (2, 2, 2)
    assert workers.number_of("shop.c") == worker_of("shop.c", 2)


def test_one_that_comes_later_is_found_once_it_runs(made: list[Any]) -> None:
    own = ["slow"]
    workers = Workers(made, {"shop.a": "slow", "shop.b": "slower"}, own)
    before = workers.number_of("shop.b")
    assert before == worker_of("slower", 1), "with all that have none of their own"
    more: Any = Worker()
    workers.hurry()
    workers.add("slower", more, 1000)
    assert (more.is_started, more.is_hurried) == (True, True)
    assert (workers.number_of("shop.a"), workers.number_of("shop.b"), own) == (1, 2, ["slow", "slower"])
    assert [worker.limits for worker in workers.all] == [[], [1000], [1000]]  # type: ignore[attr-defined]
