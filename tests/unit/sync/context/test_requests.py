from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kuvasz.sync.context import requests
from tests.support.scene import Scene


def test_what_was_asked_for_meanwhile_comes_at_once(tmp_path: Path) -> None:
    async def run() -> list[str]:
        scene = Scene(tmp_path)
        scene.lifetime.begin()
        scene.requests.add("shop.items")
        await asyncio.to_thread(scene.requests.send, "shop.others")
        await asyncio.sleep(0)
        return scene.requests.rest()

    assert asyncio.run(run()) == ["shop.items", "shop.others"]


def test_each_wait_is_twice_the_one_before_until_the_table_is_mended(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def wait() -> int:
        scene.requests.send_later(scene.items)
        at = scene.source_tables.look(scene.items).retry_at
        assert at is not None
        return round(at - time.monotonic())

    assert [wait() for _ in range(7)] == [15, 30, 60, 120, 240, 300, 300]
    assert scene.source_tables.look(scene.others).retry_at is None
    scene.requests.mended("shop.items")
    assert wait() == 15


def test_a_table_comes_back_after_its_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.05)

    async def run() -> tuple[list[str], float]:
        scene, begin = Scene(tmp_path), time.monotonic()
        scene.lifetime.begin()
        await asyncio.to_thread(scene.requests.send_later, scene.items)
        return await scene.asked_anew(), time.monotonic() - begin

    keys, seconds = asyncio.run(run())
    assert keys == ["shop.items"]
    assert seconds >= 0.04


def test_a_table_that_is_tried_meanwhile_comes_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each attempt between two of its own, as by a person or a look, would be one that comes again for ever."""
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.02)

    async def run() -> list[str]:
        scene = Scene(tmp_path)
        scene.lifetime.begin()
        for _ in range(3):
            scene.requests.send_later(scene.items)
        scene.requests.send_later(scene.others)
        await asyncio.sleep(0.3)
        return scene.requests.rest()

    assert sorted(asyncio.run(run())) == ["shop.items", "shop.others"]


def test_who_serves_a_line_is_called_for_each_that_comes_and_for_those_that_wait() -> None:
    line: requests.WaitingLine[int] = requests.WaitingLine()
    line.put(1)
    called: list[str] = []
    line.serve(lambda: called.append("first"))
    line.put(2)
    line.put(3)
    assert called == ["first"] * 3
    assert [line.take(), line.rest(), line.rest(), bool(line)] == [1, [2, 3], [], False]
    line.serve(lambda: called.append("second"))
    line.put(4)
    assert called[3:] == ["second"], "the one before serves it no more"
    assert bool(line)
