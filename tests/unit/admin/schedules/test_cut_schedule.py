"""Cuts on a schedule: when they are due, what becomes of one that is refused, and a map that changes."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin.schedules import cut_schedule
from kuvasz.admin.schedules.cut_schedule import CutSchedule
from kuvasz.config.model import CutsConfig
from kuvasz.errors import CutRefused
from kuvasz.worker.cuts import LakeCut


class Scene:
    """An application of two sources, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.refusals = 0  #: that are still to come
        self.refusal: Exception = CutRefused("a table is copying", hint="later")
        self.asked: list[tuple[str, list[str], float]] = []
        source = [SimpleNamespace(source=SimpleNamespace(name=name)) for name in ("eu", "us")]
        self.app: Any = SimpleNamespace(cuts=self, sources=source, config=None)
        self.set(**options)
        self.schedule = CutSchedule(self.app, lambda: self.now)

    def set(self, **options: Any) -> None:
        self.app.config = SimpleNamespace(cuts=CutsConfig(**options))

    async def make(self, tag: str, sources: list[str], keep_s: float) -> LakeCut:
        if self.refusals:
            self.refusals -= 1
            raise self.refusal
        self.asked.append((tag, sources, keep_s))
        return LakeCut(tag=tag, lsns={"eu": 1}, snapshots={"shop.items": 7})

    def at(self, *seconds: float) -> list[str]:
        """Look at these times; return the tags that were made."""
        before = len(self.asked)
        for self.now in seconds:
            asyncio.run(self.schedule.look())
        return [tag for tag, _, _ in self.asked[before:]]


def test_cuts_come_at_whole_multiples_and_a_start_makes_none() -> None:
    scene = Scene(every="5m", keep="2d")
    assert scene.at(1000, 1100, 1199.9) == []
    assert scene.at(1200.2, 1200.7, 1499) == ["cut_19700101T002000Z"]
    assert scene.at(1500) == ["cut_19700101T002500Z"]
    assert scene.asked[0][1:] == (["eu", "us"], 172_800)


def test_one_that_was_slept_through_is_made_once() -> None:
    assert len(Scene(every="5m").at(1000, 9000, 9001)) == 1


def test_without_an_interval_there_are_none() -> None:
    assert Scene().at(1000, 9000) == []


@pytest.mark.parametrize("refusal", [CutRefused("a table is copying", hint="later"), RuntimeError()])
def test_one_that_is_refused_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene(every="5m")
    scene.refusal = refusal
    scene.refusals = 2
    assert scene.at(1000, 1200, 1205, 1210, 1219) == []
    assert scene.at(1220, 1230, 1240) == ["cut_19700101T002020Z"]
    told = [record.__dict__["event"] for record in caplog.records]
    assert told == ["cut_missed", "cut"]


def test_another_map_counts_at_once() -> None:
    scene = Scene(every="1d")
    assert scene.at(1000, 2000) == []
    scene.set(every="1m")
    assert len(scene.at(2001, 2039, 2040, 2100)) == 2
    scene.set()
    assert scene.at(2200, 9000) == []


def test_it_looks_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_schedule, "_LOOK_S", 0.001)
    scene = Scene(every="1s")

    async def live() -> None:
        task = asyncio.create_task(scene.schedule.run())
        while not scene.asked:
            scene.now += 1
            await asyncio.sleep(0.005)
        task.cancel()

    asyncio.run(live())
    assert scene.asked
