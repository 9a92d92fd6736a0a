from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.admin import slotwatch
from kuvasz.admin.slotwatch import SlotFacts, SlotWatch
from kuvasz.errors import SourceError
from kuvasz.source.slots import Clock
from kuvasz.sync.context.source_threads import Turn
from tests.support.waiting import wait_until

FACTS = SlotFacts(retained_bytes=10, safe_bytes=1000, status="reserved", wal_end=5000, asked_at=100.0)


def later(seconds: float, written: int) -> SlotFacts:
    return dataclasses.replace(FACTS, asked_at=FACTS.asked_at + seconds, wal_end=FACTS.wal_end + written)


def test_the_rate_is_what_was_written_since_and_is_smoothed() -> None:
    first = later(10, 500).after(FACTS)
    assert first.wal_rate == 50.0
    again = dataclasses.replace(first, asked_at=120.0, wal_end=6500, wal_rate=None).after(first)
    assert again.wal_rate == (100.0 + 50.0) / 2


@pytest.mark.parametrize(("seconds", "written"), [(0, 500), (-1, 500), (10, -500)])
def test_without_time_between_or_with_another_past_no_rate_is_known(seconds: float, written: int) -> None:
    assert later(seconds, written).after(FACTS).wal_rate is None


@pytest.mark.parametrize(
    ("safe", "rate", "left"), [(1000, 50.0, 20.0), (-5, 50.0, 0.0), (None, 50.0, None), (1000, None, None),
                               (1000, 0.0, None)],
)  # fmt: skip
def test_how_long_a_slot_lasts(safe: int | None, rate: float | None, left: float | None) -> None:
    assert dataclasses.replace(FACTS, safe_bytes=safe, wal_rate=rate).seconds_left == left


class Answers:
    """What servers say; a source is called after its server, as `one/eu`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.facts: dict[str, SlotFacts] = {}
        self.known: dict[str, set[str]] = {}  #: source -> those that its server knows, if not all
        self.down: set[str] = set()
        self.asked: list[str] = []
        monkeypatch.setattr(slotwatch, "ask", self._ask)
        monkeypatch.setattr(slotwatch, "_server", lambda source: source.name.partition("/")[0])
        sources: Any = [SimpleNamespace(name=name) for name in names]
        self.watch = SlotWatch(lambda: sources)

    def _ask(self, source: Any, beside: Any) -> dict[str, SlotFacts]:
        self.asked.append(source.name)
        if source.name in self.down:
            raise SourceError("no answer")
        known = self.known.get(source.name, set(self.facts))
        return {one.name: self.facts[one.name] for one in (source, *beside) if one.name in known}

    def look(self) -> dict[str, SlotFacts]:
        self.asked = []
        for sources in self.watch._servers().values():
            self.watch._ask(sources)
        return self.watch.facts


def test_facts_are_those_of_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, "one/eu")
    answers.facts["one/eu"] = FACTS
    assert answers.look() == {"one/eu": FACTS}
    answers.facts["one/eu"] = later(10, 500)
    assert answers.look()["one/eu"].wal_rate == 50.0
    answers.facts.clear()
    assert answers.look() == {}, "the slot is gone"


def test_a_source_that_does_not_answer_is_unknown_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, "one/eu")
    answers.facts["one/eu"] = FACTS
    answers.look()
    answers.down = {"one/eu"}
    assert answers.look() == {}
    answers.look()
    assert answers.asked == []


def test_an_answer_that_nobody_thought_of_is_its_sources_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch of all others goes on."""
    names = ["one/eu", "two/us"]
    answers = Answers(monkeypatch, *names)
    answers.facts = dict.fromkeys(names, FACTS)
    answers.watch._every_s = 0.01
    heard = answers._ask

    def ask(source: Any, beside: Any) -> dict[str, SlotFacts]:
        if source.name == "one/eu":
            raise ValueError("not an LSN: 'zero'")
        return heard(source, beside)

    monkeypatch.setattr(slotwatch, "ask", ask)

    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(answers.watch.run())
            for _ in range(2):
                answers.asked = []
                while answers.asked.count("two/us") < 2:  # noqa: ASYNC110 (it tells nobody)
                    await asyncio.sleep(0.01)
            watching.cancel()

    asyncio.run(run())
    assert answers.watch.facts == {"two/us": answers.watch.facts["two/us"]}


@pytest.mark.parametrize(
    "lie", [{"retained_bytes": "10"}, {"retained_bytes": 1.5}, {"safe_wal_bytes": {}},
            {"clock": Clock(at=math.inf, insert_lsn=4)}, {"clock": Clock(at=math.nan, insert_lsn=4)},
            {"clock": Clock(at=1e15, insert_lsn=4)}, {"clock": Clock(at="now", insert_lsn=4)}],
)  # fmt: skip
def test_what_no_server_says_is_not_shown(monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]) -> None:
    """What is made of it for all sources together would end with it."""
    facts = {"retained_bytes": 10, "safe_wal_bytes": 9, "wal_status": "reserved", "restart_lsn": 4, "clock": None}
    there = {"k_eu": SimpleNamespace(**(facts | lie))}
    connection = SimpleNamespace(execute=lambda _: None, close=lambda: None)
    monkeypatch.setattr(slotwatch.conninfo, "connect", lambda _: connection)
    monkeypatch.setattr(slotwatch.conninfo, "place", lambda _: "there")
    monkeypatch.setattr(slotwatch.slots, "describe_all", lambda *_: there)
    source: Any = SimpleNamespace(name="eu", object_name="k_eu", url=SimpleNamespace(get=lambda: "/eu"))
    monkeypatch.setattr(slotwatch, "_server", lambda _: "there")
    watch = SlotWatch(lambda: [source])
    watch._ask([source])
    assert watch.facts == {}
    there["k_eu"] = SimpleNamespace(**facts)
    watch._rest_until.clear()
    watch._ask([source])
    assert watch.facts["eu"].wal_end == 14


def test_a_server_is_asked_once_for_all_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, "one/eu", "two/us", "one/ap", "one/sa")
    answers.facts = dict.fromkeys(["one/eu", "two/us", "one/ap", "one/sa"], FACTS)
    assert set(answers.look()) == set(answers.facts)
    assert answers.asked == ["one/eu", "two/us"]


def test_a_server_that_says_nothing_is_not_asked_for_each_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"one/{number}" for number in range(20)]
    answers = Answers(monkeypatch, *names)
    answers.facts, answers.down = dict.fromkeys(names, FACTS), set(names)
    assert answers.look() == {}
    assert answers.asked == names[:2]
    answers.down = set()
    assert answers.look() == {}
    assert answers.asked == []


def test_only_a_slot_of_its_own_database_is_taken_for_a_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(database: str, **facts: Any) -> Any:
        known = {
            "retained_bytes": 10,
            "safe_wal_bytes": 9,
            "wal_status": "reserved",
            "restart_lsn": 4,
            "is_synced": False,
            "clock": None,
        }
        return SimpleNamespace(database=database, **(known | facts))

    sources: Any = [
        SimpleNamespace(name=name, object_name=f"k_{name}", url=SimpleNamespace(get=lambda name=name: f"/{name}"))
        for name in ("eu", "us", "ap", "sa")
    ]
    there = {"k_eu": state("other"), "k_us": state("us"), "k_ap": state("other"), "k_sa": state("sa", is_synced=True)}
    connection = SimpleNamespace(execute=lambda _: None, close=lambda: None)
    monkeypatch.setattr(slotwatch.conninfo, "connect", lambda _: connection)
    monkeypatch.setattr(slotwatch.conninfo, "place", lambda _: "there")
    monkeypatch.setattr(slotwatch.conninfo, "route", lambda url: ("there", url.removeprefix("/")))
    monkeypatch.setattr(slotwatch.slots, "describe_all", lambda *_: there)
    assert set(slotwatch.ask(sources[0], sources[1:])) == {"eu", "us"}


def test_whoever_is_not_known_there_is_asked_for_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy leads to several servers; and a database that is gone says nothing of the others."""
    answers = Answers(monkeypatch, "one/eu", "one/ap", "one/sa", "one/us")
    answers.facts = dict.fromkeys(["one/eu", "one/ap", "one/sa"], FACTS)
    answers.down = {"one/eu"}
    answers.known = {"one/ap": {"one/ap"}}
    assert set(answers.look()) == set(answers.facts)
    assert answers.asked == ["one/eu", "one/ap", "one/sa", "one/us"]
    assert set(answers.look()) == set(answers.facts)
    assert answers.asked == ["one/ap", "one/sa"], (
        "who did not answer rests, and who has no slot is asked for with others"
    )
    answers.facts["one/us"] = FACTS
    assert "one/us" in answers.look()
    assert answers.asked == ["one/ap", "one/sa"]


def test_a_fleet_without_slots_yet_is_not_asked_one_by_one_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"one/{number}" for number in range(20)]
    answers = Answers(monkeypatch, *names)
    assert answers.look() == {}
    assert answers.asked == names
    assert answers.look() == {}
    assert answers.asked == names[:1]


def test_a_server_that_is_silent_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one/eu", "two/us", "three/ap", "four/sa"]
    answers = Answers(monkeypatch, *names)
    answers.facts = dict.fromkeys(names, FACTS)
    answers.watch._every_s = 0.01
    silence, heard = threading.Event(), answers._ask

    def ask(source: Any, beside: Any) -> dict[str, SlotFacts]:
        found = heard(source, beside)
        if source.name in names[:2]:
            silence.wait()
        return found

    monkeypatch.setattr(slotwatch, "ask", ask)
    monkeypatch.setattr(slotwatch, "Turn", functools.partial(Turn, patience_s=0.05))

    async def look() -> None:
        watch = asyncio.create_task(answers.watch.run())
        await asyncio.to_thread(wait_until, lambda: answers.asked.count("four/sa") >= 3, "three answers")
        watch.cancel()

    asyncio.run(look())
    silence.set()
    assert set(answers.watch.facts) == set(names[2:])
    assert answers.asked.count("one/eu") == 1, "it is still being asked"
