"""What a webhook is told, and what of it over failures and restarts."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from kuvasz.admin.notices import webhook as webhook_module
from kuvasz.admin.notices.notice import SIGNATURE, signature
from kuvasz.admin.notices.post import NotTaken
from kuvasz.admin.notices.webhook import Webhook
from kuvasz.config.model import NoticeKind, WebhookConfig
from kuvasz.errors import StateError
from kuvasz.lake.memory.lake import MemoryAbout
from kuvasz.state.memory import MemoryNotices

SECRET = "0123456789abcdef"
URL = "https://hooks.example.com/geheim"
CONFIG = WebhookConfig.model_validate({"webhook": URL, "secret": SECRET, "batch": "10s"})
FUTURE = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
PAST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class About(MemoryAbout):
    """A lake whose tables have commits, by their sequence numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.first: dict[str, int] = {}  #: target -> number of the first snapshot that was not expired
        self.looks = 0

    def commit(self, target: str, kind: str = "stream", at: datetime.datetime = FUTURE) -> None:
        rows = self.rows.setdefault(target, [])
        number = len(rows) + 1
        rows.append({
            "target": target, "snapshot_id": number, "sequence": number, "committed_at": at, "kind": kind,
            "positions": [], "inserts": 1, "updates": 0, "deletes": 0, "added_rows": 1,
        })  # fmt: skip

    def standing(self) -> Mapping[str, object]:
        return {target: len(rows) for target, rows in self.rows.items()}

    def commits_after(self, target: str, seen: str | None, most: int) -> tuple[list[Mapping[str, Any]], str, int]:
        self.looks += 1
        before = int(seen or 0)
        first = max(before, self.first.get(target, 1) - 1)
        rows = self.rows[target][first : first + most]
        return list(rows), str(first + len(rows)), first - before if before else 0


class World:
    """A webhook that takes what it is sent, or does not."""

    def __init__(self) -> None:
        self.about, self.stored = About(), MemoryNotices()
        self.taken: list[dict[str, Any]] = []
        self.lost: list[dict[str, Any]] = []  #: what was taken, and not answered
        self.why = ""
        self.is_answering = True
        self.now = 0.0
        self.start()

    def start(self, config: WebhookConfig = CONFIG) -> None:
        """Begin again with what is kept."""
        self.hook = Webhook(config, self.about, self.stored, self.send)

    def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        assert url == "https://hooks.example.com/geheim"
        stamp = headers[SIGNATURE].partition(",")[0].removeprefix("t=")
        assert headers[SIGNATURE] == signature(SECRET, int(stamp), body)
        if self.why:
            raise NotTaken(self.why)
        self.taken.append(json.loads(body))
        if not self.is_answering:
            raise NotTaken("timed out")

    def step(self) -> list[Any]:
        """Let a batch's time pass; return what was taken, shortly."""
        self.now += 1000.0
        self.taken = []
        self.hook.step(self.now)
        return [
            (one["table"], one.get("sequence", one.get("number"))) for told in self.taken for one in told["entries"]
        ]


@pytest.fixture
def world() -> World:
    return World()


def event(number: int) -> dict[str, Any]:
    return {"what": "error", "table": "t", "number": number}


def test_commits_are_told_in_order_and_once(world: World) -> None:
    for target in ("a", "b", "a"):
        world.about.commit(target)
    assert world.step() == [("a", 1), ("a", 2), ("b", 1)]
    assert world.step() == []
    world.about.commit("a", "maintenance")
    world.about.commit("a")
    assert world.step() == [("a", 4)]
    looks = world.about.looks
    assert (world.step(), world.about.looks) == ([], looks), "a table without a commit costs nothing"


def test_nothing_is_told_before_its_time(world: World) -> None:
    world.about.commit("a")
    world.hook.step(100.0)
    world.about.commit("a")
    world.hook.step(109.0)
    assert [len(told["entries"]) for told in world.taken] == [1]
    world.hook.step(110.0)
    assert [told["number"] for told in world.taken] == [1, 2]


def test_a_new_webhook_begins_with_what_comes(world: World) -> None:
    world.about.commit("a", at=PAST)
    assert world.step() == []
    world.about.commit("a")
    world.about.commit("late")
    assert world.step() == [("a", 2), ("late", 1)]


def test_a_clock_that_is_set_back_keeps_no_commit_from_a_webhook(world: World) -> None:
    """As that of another machine may be behind, on which kuvasz goes on."""
    world.about.commit("a", at=PAST)
    world.about.commit("quiet", at=PAST)
    assert world.step() == []
    world.about.commit("a", at=PAST)
    world.why = "away"
    assert world.step() == []
    world.why = ""
    world.start()
    world.about.commit("quiet", at=PAST)
    assert world.step() == [("a", 2), ("quiet", 2)]


def test_commits_of_before_keep_no_webhook_waiting_however_many_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "_MOST", 2)
    for _ in range(5):
        world.about.commit("a", at=PAST)
    world.about.commit("a")
    assert world.step() == [("a", 6)]


def test_what_is_not_taken_comes_again_with_what_came_meanwhile(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.about.commit("a")
    world.hook.hear(NoticeKind.ERROR, event(1))
    world.why = "it answers 500"
    for _ in range(3):
        assert world.step() == []
    world.about.commit("a")
    world.hook.hear(NoticeKind.ERROR, event(2))
    assert world.hook.counts.failing_since is not None
    world.why = ""
    assert world.step() == [("t", 1), ("t", 2), ("a", 1), ("a", 2)]
    assert world.taken[0]["number"] == 1
    assert world.hook.counts.failing_since is None
    told = [record.message for record in caplog.records if "webhook" in record.message]
    assert len(told) == 2, "once that it fails, and once that it does no more"
    assert "geheim" not in caplog.text + repr([record.__dict__ for record in caplog.records])


def test_a_kill_loses_no_commit_and_nothing_that_was_kept(world: World) -> None:
    world.about.commit("a")
    world.step()
    world.hook.hear(NoticeKind.CUT, event(1))
    world.why = "gone"
    world.about.commit("a")
    world.step()
    world.hook.keep()
    world.about.commit("a")
    world.start()
    world.why = ""
    assert world.step() == [("t", 1), ("a", 2), ("a", 3)]
    assert world.taken[0]["number"] == 2
    world.start()
    assert world.step() == []


class AwayNotices(MemoryNotices):
    """A store that does not answer for a while."""

    is_away = False

    @override
    def all(self) -> Mapping[str, Mapping[str, Any]]:
        if self.is_away:
            raise StateError("the coordinator does not answer", hint="see to it")
        return super().all()


def test_a_webhook_is_not_new_because_its_store_does_not_answer(world: World) -> None:
    away = AwayNotices()
    world.stored = away
    world.start()
    world.about.commit("a", at=PAST)
    world.about.commit("a")
    assert world.step() == [("a", 2)]
    world.hook.hear(NoticeKind.CUT, event(1))
    world.hook.keep()
    world.about.commit("a")
    away.is_away = True
    world.start()
    world.hook.hear(NoticeKind.CUT, event(2))
    world.hook.keep()
    assert world.step() == []
    assert world.hook.counts.failing_since is not None
    away.is_away = False
    assert world.step() == [("t", 1), ("t", 2), ("a", 3)]
    assert world.taken[0]["number"] == 2
    assert world.hook.counts.failing_since is None


def test_what_was_taken_without_an_answer_comes_twice(world: World) -> None:
    world.about.commit("a")
    world.is_answering = False
    assert world.step() == [("a", 1)]
    world.start()
    world.is_answering = True
    assert world.step() == [("a", 1)]


def test_commits_that_are_gone_are_counted(world: World) -> None:
    world.about.commit("a")
    world.step()
    for _ in range(4):
        world.about.commit("a")
    world.about.first["a"] = 4
    assert world.step() == [("a", 4), ("a", 5)]
    assert [one.get("missed") for one in world.taken[0]["entries"]] == [2, None]


def test_commits_that_are_gone_are_counted_also_where_nothing_but_merged_files_came_behind_them(world: World) -> None:
    world.about.commit("a")
    world.step()
    for kind in ("stream", "stream", "maintenance"):
        world.about.commit("a", kind)
    world.about.first["a"] = 4
    assert world.step() == []
    looks = world.about.looks
    assert (world.step(), world.about.looks) == ([], looks)
    world.about.commit("a")
    assert world.step() == [("a", 5)]
    assert [one.get("missed") for one in world.taken[0]["entries"]] == [2]


def test_many_go_in_several_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_module, "_MOST", 2)
    for target in ("a", "a", "a", "b"):
        world.about.commit(target)
    for number in range(3):
        world.hook.hear(NoticeKind.ERROR, event(number))
    assert world.step() == [("t", 0), ("t", 1), ("t", 2), ("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    assert all(len(told["entries"]) <= 2 for told in world.taken)


def test_only_what_is_wanted_is_told(world: World) -> None:
    world.start(CONFIG.model_copy(update={"on": (NoticeKind.CUT,)}))
    world.about.commit("a")
    world.hook.hear(NoticeKind.ERROR, event(1))
    world.hook.hear(NoticeKind.CUT, event(2))
    assert world.step() == [("t", 2)]


def test_what_finds_no_room_is_counted_and_told(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook_module, "_MOST_WAITING", 3)
    for number in range(5):
        world.hook.hear(NoticeKind.ERROR, event(number))
    assert world.hook.counts.dropped == 2
    assert "found no room" in caplog.text
    assert world.step() == [("t", 2), ("t", 3), ("t", 4)]


def test_what_is_dropped_while_it_is_sent_is_not_taken_for_something_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "_MOST_WAITING", 2)
    sent = world.send

    def send(url: str, body: bytes, headers: Mapping[str, str]) -> None:
        if not world.taken:
            world.hook.hear(NoticeKind.ERROR, event(3))
        sent(url, body, headers)

    world.hook._send = send
    for number in (1, 2):
        world.hook.hear(NoticeKind.ERROR, event(number))
    assert world.step() == [("t", 1), ("t", 2), ("t", 3)]


def test_a_source_that_floods_costs_no_other_what_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns one may rename a column without end, while the webhook does not answer."""
    monkeypatch.setattr(webhook_module, "_MOST_WAITING", 4)
    world.why = "it answers 503"
    world.hook.hear(NoticeKind.ERROR, event(1) | {"source": "eu"})
    world.hook.hear(NoticeKind.ERROR, event(2) | {"source": "us"})
    sent = world.send

    def send(url: str, body: bytes, headers: Mapping[str, str]) -> None:
        for number in range(3, 20):
            world.hook.hear(NoticeKind.ERROR, event(number) | {"source": "bad"})
        sent(url, body, headers)

    world.hook._send = send
    assert world.step() == []
    world.why, world.hook._send = "", sent
    assert world.step() == [("t", 1), ("t", 2), ("t", 18), ("t", 19)]


def test_of_what_is_dropped_while_others_are_sent_nothing_is_taken_for_theirs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "_MOST_WAITING", 4)
    sent = world.send

    def send(url: str, body: bytes, headers: Mapping[str, str]) -> None:
        if not world.taken:
            for number in (4, 5, 6, 7):
                world.hook.hear(NoticeKind.ERROR, event(number) | {"source": "bad"})
        sent(url, body, headers)

    world.hook._send = send
    for number, source in ((1, "eu"), (2, "us"), (3, "bad")):
        world.hook.hear(NoticeKind.ERROR, event(number) | {"source": source})
    assert world.step() == [("t", 1), ("t", 2), ("t", 3), ("t", 6), ("t", 7)]


def test_a_bug_or_a_lake_that_fails_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.about.commit("a")
    world.about.commits_after = lambda *_: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert world.step() == []
    assert "ZeroDivisionError" in repr([record.__dict__ for record in caplog.records])
    del world.about.commits_after
    assert world.step() == [("a", 1)]


def test_what_is_kept_and_cannot_be_read_is_none(world: World) -> None:
    world.stored.put(CONFIG.label, {"since_ms": "x"})
    world.about.commit("a", at=PAST)
    world.start()
    assert world.step() == []


def failed(number: int, code: str = "source_failed") -> dict[str, Any]:
    return event(number) | {"event": code, "source": "eu", "table": None, "fields": {"error": "refused"}}


def test_a_source_that_fails_is_told_of_as_it_begins_and_when_it_is_over_also_by_the_next_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(webhook_module.time, "time", lambda: now)
    for number in range(5):
        world.hook.hear(NoticeKind.ERROR, failed(number))
    assert world.step() == [(None, 0)]
    world.start()
    world.hook.hear(NoticeKind.ERROR, failed(10))
    assert world.step() == [], "though it was heard before anybody knew what had been told"
    world.start()
    world.hook.hear(NoticeKind.ERROR, failed(20))
    world.hook.hear(NoticeKind.ERROR, failed(21, "reader.streaming"))
    assert world.step() == []
    now += 60
    assert world.step() == [(None, 21)]
    assert world.step() == []
    world.hook.hear(NoticeKind.ERROR, failed(22))
    assert world.step() == [(None, 22)]
