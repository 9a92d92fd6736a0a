"""Requests that wait for the lake: no thread is held, and all is let go in the end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin.looks import wait_answers
from kuvasz.config.load import load
from kuvasz.verbs.served.looks import LOOKS
from tests.support.admin_world import AdminWorld

DONE = {"reached": True}


@pytest.fixture
def world(tmp_path: Path) -> AdminWorld:
    found = AdminWorld(tmp_path)
    found.loaded = load(tmp_path / "map.yaml", {})
    found.looks = dict(LOOKS)
    return found


def test_it_looks_at_what_status_says_until_that_is_enough(world: AdminWorld) -> None:
    seen: list[Mapping[str, Any]] = []
    asked: list[Any] = []

    def begin(_: object, query: Any) -> Any:
        asked.append(query)
        return lambda answer: seen.append(answer) or (DONE if len(seen) == 2 else None)

    world.looks["wait"] = begin
    assert world.ask("/api/wait?lsn=eu:0/1&lsn=us:0/2&sid=eu", method="GET") == (200, DONE)
    assert asked == [{"lsn": ["eu:0/1", "us:0/2"], "sid": ["eu"]}]
    assert [one["sources"][0]["source"] for one in seen] == ["shop_eu", "shop_eu"]


def test_the_verb_itself_says_what_is_behind(world: AdminWorld) -> None:
    status, found = world.ask("/api/wait?through=2026-11-22T10:00&timeout=0", method="GET")
    assert (status, found["reached"], found["stuck"]) == (200, False, False)
    assert [(one["target"], one["is_there"]) for one in found["tables"]] == [
        ("shop.items", False), ("shop.others", False),
    ]  # fmt: skip


def test_of_groups_that_another_process_applies_nothing_is_called_reached(world: AdminWorld, tmp_path: Path) -> None:
    document = json.loads((tmp_path / "map.yaml").read_text())
    other = {"database": "crm", "urls": [{"url": "postgresql:///crm"}], "tables": {"people": None}}
    (tmp_path / "map.yaml").write_text(json.dumps(document | {"databases": [*document["databases"], other]}))
    world.loaded = load(tmp_path / "map.yaml", {})
    world.app.config, world.app.groups = world.loaded.config, frozenset({"shop"})
    _, found = world.ask("/api/wait?through=2026-11-22T10:00&timeout=0", method="GET")
    assert found["silent"] == ["group crm is applied by another process: ask that one, or all by `kuvasz wait`"]
    _, found = world.ask("/api/wait?through=2026-11-22T10:00&timeout=0&sid=eu", method="GET")
    assert found["silent"] == []


@pytest.mark.parametrize(
    ("query", "told"),
    [("timeout=long", "--timeout"), ("table=none", "the map has no"), ("until=now", "the unknown parameter 'until'")],
)
def test_what_makes_no_sense_is_refused(world: AdminWorld, query: str, told: str) -> None:
    status, refused = world.ask(f"/api/wait?{query}", method="GET")
    assert (status, told in refused["error"]) == (400, True), refused


def test_some_wait_at_a_time_and_who_gives_up_makes_room(world: AdminWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_answers, "MOST_WAITS", 1)
    looked = threading.Event()
    world.looks["wait"] = lambda *_: lambda _: looked.set()

    async def ask(client: aiohttp.ClientSession, url: str) -> list[int]:
        address = world.stored.address.find()
        assert address is not None
        headers = {"Authorization": f"Bearer {address.token}"}

        async def status() -> int:
            async with client.get(f"{url}/api/wait", headers=headers) as answer:
                return answer.status

        first = asyncio.create_task(status())
        await asyncio.to_thread(looked.wait)
        found = [await status()]
        first.cancel()
        while found[-1] == 409:  # it notices at its next look
            looking = asyncio.create_task(status())
            done, _ = await asyncio.wait({looking}, timeout=0.5)
            looking.cancel()
            found.append(looking.result() if done else 200)
        return found

    found = world.live(ask)
    assert (found[0], found[-1]) == (409, 200)
