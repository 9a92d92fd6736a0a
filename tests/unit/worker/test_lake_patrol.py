from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kuvasz.errors import TableError
from kuvasz.ports import Failure
from kuvasz.worker import lake_patrol


def test_a_table_that_was_set_back_is_stopped_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_patrol, "PATROL_S", 0.001)
    rounds = [[], [Failure(target="shop.items", error=TableError("it was set back"))], []]
    told: list[Failure] = []

    class Lake:
        def patrol(self) -> list[Failure]:
            return rounds.pop(0)

    class Workers:
        def fail(self, failure: Failure) -> None:
            told.append(failure)

    async def run() -> None:
        lake: Any = Lake()
        workers: Any = Workers()
        with pytest.raises(IndexError):  # there is no fourth round
            await lake_patrol.patrol(lake, workers)

    asyncio.run(run())
    assert [failure.target for failure in told] == ["shop.items"]
