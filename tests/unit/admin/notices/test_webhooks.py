from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kuvasz.admin.notices import webhook as webhook_module
from kuvasz.admin.notices.webhooks import METRICS, Webhooks
from kuvasz.config.model import Config, WebhookConfig
from kuvasz.events import Event, EventLog
from kuvasz.lake.memory.lake import MemoryAbout
from kuvasz.state.memory import MemoryNotices
from tests.support.waiting import wait_until

HOOK = {"webhook": "https://hooks.example.com/x", "secret": "0123456789abcdef"}


def notify(*hooks: dict[str, Any]) -> Callable[[], Sequence[WebhookConfig]]:
    found = Config.model_validate({"databases": [], "notify": list(hooks)}).notify
    return lambda: found


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("notify"))


def test_webhooks_hear_what_happens_while_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_module, "STEP_S", 0.01)
    stored = MemoryNotices()
    made = Webhooks(notify(HOOK, HOOK | {"name": "two", "on": ["cut"]}), MemoryAbout(), stored, str, lambda: False)
    with made.telling():
        EventLog(__name__).tell(Event.TABLE_FAILED, table="shop.items", error="x")
        EventLog(__name__).tell(Event.MAP_TAKEN)
    EventLog(__name__).tell(Event.TABLE_FAILED, table="shop.items", error="x")
    waiting = {name: [one["event"] for one in told["waiting"]] for name, told in stored.all().items()}
    assert waiting == {"hooks.example.com": ["table_failed"], "two": []}
    assert threads() == []


def test_what_happens_while_one_does_not_answer_is_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_module, "STEP_S", 0.01)
    stored, asked, answers = MemoryNotices(), threading.Event(), threading.Event()

    def send(*_: object) -> None:
        asked.set()
        answers.wait(60)

    made = Webhooks(notify(HOOK), MemoryAbout(), stored, str)
    made.all[0]._send = send
    with made.telling():
        EventLog(__name__).tell(Event.TABLE_FAILED, table="shop.items", error="x")
        assert asked.wait(60)
        EventLog(__name__).tell(Event.TABLE_FAILED, table="shop.others", error="x")
        wait_until(lambda: [len(told["waiting"]) for told in stored.all().values()] == [2], "it is kept")
        answers.set()


def test_without_a_webhook_there_is_no_thread() -> None:
    made = Webhooks(notify(), MemoryAbout(), MemoryNotices(), str)
    with made.telling():
        assert threads() == []
    assert all("hooks" not in text for text in made.metrics())


def test_those_of_another_map_take_their_place_and_the_others_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_module, "STEP_S", 0.01)
    stored, log = MemoryNotices(), EventLog(__name__)
    second = HOOK | {"name": "two", "on": ["error"]}
    wanted = [notify(HOOK, second)()]
    made = Webhooks(lambda: wanted[-1], MemoryAbout(), stored, str, lambda: False)

    def waiting() -> dict[str, int]:
        return {name: len(told["waiting"]) for name, told in stored.all().items()}

    async def run() -> None:
        running = asyncio.create_task(made.run())
        first, _ = made.all
        log.tell(Event.TABLE_FAILED, table="shop.items", error="x")
        wanted.append(notify(HOOK, second | {"batch": "3s"}, HOOK | {"name": "three"})())
        async with asyncio.timeout(30):
            while len(made.all) < 3:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(0.01)
        assert made.all[0] is first
        log.tell(Event.TABLE_FAILED, table="shop.others", error="x")
        await asyncio.to_thread(
            wait_until, lambda: waiting() == {"hooks.example.com": 2, "two": 2, "three": 1}, lambda: str(waiting())
        )
        wanted.append(notify()())
        async with asyncio.timeout(30):
            while threads():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()

    with made.telling():
        asyncio.run(run())
    assert waiting()["two"] == 2, "for the day it comes back"


def test_each_is_counted() -> None:
    made = Webhooks(notify(HOOK), MemoryAbout(), MemoryNotices(), str)
    made.all[0].counts.told = 3
    page = "".join(made.metrics())
    assert 'kuvasz_notified_total{webhook="hooks.example.com"} 3' in page
    assert all(f"# HELP {name} " in page for name in METRICS)
