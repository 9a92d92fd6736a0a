"""The page for a bug report: what it has, and for whom."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from kuvasz.admin.api.shapes import SHAPES, ref
from kuvasz.admin.report import report
from kuvasz.admin.server import serve
from kuvasz.app import App
from kuvasz.events import Event, EventLog
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.state.memory import MemoryState
from tests.support.maps import SHOP, loaded

_log = EventLog(__name__)


@pytest.fixture
def app(tmp_path: Path) -> App:
    config = loaded(tmp_path, "server: {address: '127.0.0.1:0'}\n" + SHOP).config
    return App(config, lake=MemoryLake())


def ask(app: App, *, token: bool = True, while_served: Any = lambda _: None) -> tuple[int, dict]:
    async def run() -> tuple[int, dict]:
        stored = MemoryState()
        async with serve(app, stored, ["geheim"]) as server, aiohttp.ClientSession() as client:
            while_served(server)
            address = stored.address.find()
            assert address is not None
            headers = {"Authorization": f"Bearer {address.token}"} if token else {}
            async with client.get(f"{server.url}/api/support", headers=headers) as answer:
                return answer.status, await answer.json()

    return asyncio.run(run())


def test_whoever_has_the_token_is_told_everything_without_secrets_and_values(app: App) -> None:
    def happen(_: object) -> None:
        _log.tell(Event.TABLE_FAILED, table="shop.orders", error="a value")
        _log.tell(Event.SOURCE_FAILED, source="shop_eu", error="password geheim refused")

    status, told = ask(app, while_served=happen)
    assert status == 200
    jsonschema.validate(told, {**ref("Support"), "components": {"schemas": SHAPES}})
    assert told["pid"] == os.getpid()
    assert told["status"]["phase"] == "starting"
    assert "observer" in {task["task"] for task in told["tasks"]}
    assert "MainThread" in {thread["thread"] for thread in told["threads"]}
    assert [event["event"] for event in told["events"]][-2:] == ["table_failed", "source_failed"]
    assert "geheim" not in json.dumps(told)
    assert "a value" not in json.dumps(told)


def test_without_the_token_nothing_is_told(app: App) -> None:
    assert ask(app, token=False)[0] == 401


def test_stacks_are_told_where_the_status_cannot_be_had(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_STATUS_S", 0.05)
    gone = threading.Event()

    def hang(server: Any) -> None:
        asyncio.get_running_loop().run_in_executor(server.observer._thread, gone.wait, 10)

    try:
        status, told = ask(app, while_served=hang)
    finally:
        gone.set()
    assert (status, told["status"]) == (200, None)
    assert told["threads"]
