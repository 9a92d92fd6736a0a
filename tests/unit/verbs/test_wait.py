"""Waiting for the lake, on answers of a kuvasz that is made up and a clock of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError
from kuvasz.verbs import remote, wait

TEN = "1970-01-01T10:00:00.000+00:00"


def table(name: str = "items", **facts: Any) -> dict[str, Any]:
    return {
        "table": f"public.{name}", "mapped_as": None, "target": f"shop.{name}", "state": "streaming", "error": None,
        "retry_at": None, "durable_lsn": "0/500", "valid_through": TEN,
    } | facts  # fmt: skip


def source(name: str, *tables: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"source": f"shop_{name}", "state": "streaming", "error": None, "tables": list(tables)} | facts


def error(retry: str = "human", kind: str = "DecodeError", hint: str | None = "look") -> dict[str, Any]:
    return {"kind": kind, "message": "no number", "hint": hint, "retry": retry}


class World:
    """A running kuvasz that says one thing after another, and a clock that goes on while one sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = 0.0
        self.answers: list[Any] = []
        self.facts: dict[str, Any] = {}
        self.looks = 0
        patch.setattr(remote, "status", self._status)
        patch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: self.clock, sleep=self._sleep))
        patch.setattr(wait, "_wal_end", lambda one: {"shop_eu": 0x500, "shop_us": 0x700}[one.name])

    def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    def _status(self, config: Config) -> dict[str, Any]:
        self.looks += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"version": "0.1", "sources": answer} | self.facts


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    urls = [{"url": f"postgresql:///{sid}", "sid": sid} for sid in ("eu", "us")]
    databases = [{"database": "shop", "urls": urls, "tables": {"items": None, "orders": None}}]
    file = tmp_path / "map.yaml"
    file.write_text(json.dumps({"databases": databases}))
    return load(file, {}).config


GOOD = [source("eu", table(), table("orders")), source("us", table(), table("orders"))]


def test_what_is_there_is_told_at_once(world: World, config: Config) -> None:
    world.answers = [GOOD]
    outcome = wait.run(config, through="1970-01-01 10:00")
    assert (wait.exit_code(outcome), world.clock) == (0, 0.0)
    assert wait.render(outcome) == (
        "reached after 0.0 s: 4 tables show everything through 1970-01-01 10:00:00.000+00:00"
    )


def test_it_looks_until_it_is_there(world: World, config: Config) -> None:
    behind = [source("eu", table(durable_lsn="0/4FF"))]
    world.answers = [behind, behind, behind, [source("eu", table())]]
    outcome = wait.run(config, lsns=["eu:0/500"], table="items")
    assert (wait.exit_code(outcome), world.looks) == (0, 4)
    assert wait.render(outcome) == "reached after 1.0 s: 1 table shows everything before shop_eu:0/500"


def test_what_is_with_nobody_is_not_there(world: World, config: Config) -> None:
    """Of several processes one is silent, or a group is just changing hands: the others' tables are not all."""
    world.answers, world.facts = [[source("eu", table(), table("orders"))]], {"silent": ["nobody has shop_us"]}
    outcome = wait.run(config, through="1970-01-01 10:00", timeout="2s")
    assert (wait.exit_code(outcome), outcome.is_reached, world.clock) == (1, False, 2.0)
    assert wait.render(outcome).splitlines() == [
        "not reached, after 2.0 s: everything through 1970-01-01 10:00:00.000+00:00; 0 of 2 tables are behind",
        "not all is known: nobody has shop_us",
    ]
    assert wait.as_json(outcome)["silent"] == ["nobody has shop_us"]
    only = wait.run(config, through="1970-01-01 10:00", sid="eu", timeout="0")
    assert (only.is_reached, wait.as_json(only)["silent"]) == (True, []), "what is waited for is there"
    world.answers = [GOOD]
    assert wait.run(config, through="1970-01-01 10:00", timeout="0").is_reached


def test_without_a_moment_it_is_where_the_wal_of_each_source_ends(world: World, config: Config) -> None:
    world.answers = [GOOD]
    outcome = wait.run(config, timeout="0")
    assert outcome.moment.lsns == {"shop_eu": 0x500, "shop_us": 0x700}
    assert [one.source for one in outcome.tables if not one.is_there] == ["shop_us", "shop_us"]
    only = wait.run(config, sid="eu", timeout="0")
    assert (only.moment.lsns, only.is_reached) == ({"shop_eu": 0x500}, True)


def test_where_the_wal_of_a_source_ends_that_does_not_stream_may_be_that_of_another_past(
    world: World, config: Config
) -> None:
    """Its server was restored from a backup: its WAL ends before what the lake has, and nobody has noticed yet."""
    away = {"state": "connecting"}
    world.answers = [[source("eu", table(durable_lsn="0/900"), **away)]]
    outcome = wait.run(config, sid="eu", table="items", timeout="0")
    assert (wait.exit_code(outcome), [one.why for one in outcome.tables]) == (1, ["its source is connecting"])
    given = wait.run(config, sid="eu", table="items", lsns=["eu:0/900"], timeout="0")
    assert wait.exit_code(given) == 0, "what somebody gives is of a past that he knows"
    lost = {"state": "error", "error": "shop_eu: it was restored\nhint: copy it again"}
    world.answers = [[source("eu", table(durable_lsn=None, valid_through=None), **lost)]]
    assert wait.exit_code(wait.run(config, sid="eu", table="items", through="1970-01-01 09:00")) == 5


def test_a_source_whose_tables_nobody_has_seen_yet_is_waited_for(world: World, config: Config) -> None:
    """They come of a pattern, and its server was away when kuvasz started: that the others are there is not all."""
    away = source("us", state="waiting", error="no answer\nhint: start it")
    world.answers = [[source("eu", table(), table("orders")), away]]
    outcome = wait.run(config, through="1970-01-01 10:00", timeout="0")
    assert (wait.exit_code(outcome), wait.render(outcome).splitlines()[1:]) == (
        1, ["source shop_us: its source is waiting: no answer"]
    )  # fmt: skip
    assert wait.exit_code(wait.run(config, through="1970-01-01 10:00", table="items", timeout="0")) == 0
    assert wait.exit_code(wait.run(config, through="1970-01-01 10:00", sid="eu", timeout="0")) == 0
    world.answers = [[source("eu", table()), source("us")]]
    assert wait.exit_code(wait.run(config, through="1970-01-01 10:00", timeout="0")) == 0, "it has none, as it seems"


def test_when_the_time_is_up_it_says_what_is_behind_and_by_how_much(world: World, config: Config) -> None:
    world.answers = [[
        source("eu", table(), table("orders", valid_through="1970-01-01T09:58:58.500+00:00")),
        source("us", table(valid_through=None, state="copying"), table("orders", valid_through=None)),
    ]]  # fmt: skip
    outcome = wait.run(config, through="1970-01-01 10:00", timeout="2s")
    assert (wait.exit_code(outcome), world.clock) == (1, 2.0)
    assert wait.render(outcome).splitlines() == [
        "not reached, after 2.0 s: everything through 1970-01-01 10:00:00.000+00:00; 3 of 4 tables are behind",
        "source shop_eu, table shop.orders: valid through 1970-01-01 09:58:58.500+00:00, 61.5 s behind",
        "source shop_us, table shop.items: it is copying",
        "source shop_us, table shop.orders: it is not known how far it is",
    ]
    shown = json.loads(json.dumps(wait.as_json(outcome)))
    assert (shown["reached"], shown["stuck"], shown["through"]) == (False, False, "1970-01-01 10:00:00.000+00:00")
    assert shown["tables"][1] == {
        "source": "shop_eu", "target": "shop.orders", "table": "public.orders", "state": "streaming",
        "is_there": False, "durable_lsn": "0/500", "valid_through": "1970-01-01 09:58:58.500+00:00",
        "behind_seconds": 61.5, "behind_bytes": None, "is_stuck": False, "hint": None,
        "why": "valid through 1970-01-01 09:58:58.500+00:00, 61.5 s behind",
    }  # fmt: skip


def test_behind_an_lsn_counts_wal(world: World, config: Config) -> None:
    world.answers = [
        [source("eu", table()), source("us", table(), state="waiting", error="it is gone\nhint: start it")]
    ]
    outcome = wait.run(config, lsns=["eu:0/D00", "us:0/501"], timeout="0")
    assert [(one.why, one.behind_bytes) for one in outcome.tables] == [
        ("has all before 0/500, 2.0 kB of WAL behind", 0x800),
        ("its source is waiting: it is gone", 1),
    ]


@pytest.mark.parametrize(
    ("facts", "of_source", "told"),
    [
        ({"state": "paused"}, {}, ["it is paused", "hint: kuvasz resume --table shop.items"]),
        ({"state": "error", "error": error()}, {}, ["no number", "hint: look"]),
        ({"state": "error", "error": error(hint=None)}, {}, ["no number", "hint: kuvasz retry --table shop.items"]),
        ({}, {"state": "error", "error": "slot lost\nhint: copy it again"}, ["slot lost", "hint: copy it again"]),
    ],
)
def test_what_waits_for_a_person_is_not_waited_for(
    world: World, config: Config, facts: dict[str, Any], of_source: dict[str, Any], told: list[str]
) -> None:
    known = {"durable_lsn": None, "valid_through": None} | facts
    world.answers = [[source("eu", table(**known), **of_source)]]
    outcome = wait.run(config, through="1970-01-01 10:00", sid="eu")
    assert (wait.exit_code(outcome), world.looks) == (5, 3)
    assert wait.render(outcome).splitlines() == [
        "does not come without you, after 0.5 s: everything through 1970-01-01 10:00:00.000+00:00;"
        " 1 of 1 tables are behind",
        f"source shop_eu, table shop.items: {told[0]}", told[1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "facts",
    [
        {"error": error(retry="timed")},
        {"error": error(kind="LakeRewound"), "retry_at": TEN},
        {"error": error(kind="EarlierError")},
    ],
)
def test_an_error_that_is_tried_again_is_waited_for(world: World, config: Config, facts: dict[str, Any]) -> None:
    failed = [source("eu", table(state="error", durable_lsn=None, valid_through=None, **facts))]
    world.answers = [*[failed] * 5, [source("eu", table())]]
    assert wait.run(config, through="1970-01-01 10:00", sid="eu").is_reached


def test_an_error_of_another_table_does_not_count(world: World, config: Config) -> None:
    world.answers = [[source("eu", table(), table("orders", state="paused", valid_through=None))]]
    assert wait.run(config, through="1970-01-01 10:00", table="items").is_reached


def test_who_was_there_is_waited_for_until_the_time_is_up(world: World, config: Config) -> None:
    gone = remote.NotRunning("no kuvasz answers")
    behind = [source("eu", table(valid_through=None))]
    world.answers = [behind, behind, gone, gone, GOOD]
    assert wait.run(config, through="1970-01-01 10:00").is_reached
    world.answers = [behind, gone]
    with pytest.raises(remote.NotRunning):
        wait.run(config, through="1970-01-01 10:00", timeout="1s")


def test_where_no_kuvasz_answers_nothing_is_waited_for(world: World, config: Config) -> None:
    world.answers = [remote.NotRunning("no kuvasz answers")]
    with pytest.raises(remote.NotRunning):
        wait.run(config)
    assert world.looks == 1


def test_an_earlier_version_does_not_say_how_far_it_is(world: World, config: Config) -> None:
    old = table()
    del old["valid_through"], old["durable_lsn"]
    world.answers = [[source("eu", old)]]
    with pytest.raises(remote.Refused) as told:
        wait.run(config)
    assert told.value.message == "the running kuvasz, 0.1, does not say how far its tables are valid"
    assert told.value.hint == "it is older than this one: start it anew"


def _no_table(config: Config) -> None:
    wait.run(config, table="item", sid="eu")


def _no_source(config: Config) -> None:
    wait.run(config, sid="ap")


def _no_duration(config: Config) -> None:
    wait.run(config, timeout="10")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (_no_table, "the map has no table 'item' of source 'eu'"),
        (_no_source, "the map has no source 'ap'"),
        (_no_duration, "--timeout must be a duration such as 500ms, 1s, 5m, 1h or 1d, not '10': did you mean 10s?"),
    ],
)
def test_what_is_not_there_is_told(world: World, config: Config, ask: Callable[[Config], None], message: str) -> None:
    world.answers = [GOOD]
    with pytest.raises(ConfigError) as told:
        ask(config)
    assert told.value.message == message


def test_a_table_of_the_map_that_nobody_has_seen_yet_is_waited_for(world: World, config: Config) -> None:
    world.answers = [[source("eu")]]
    outcome = wait.run(config, through="1970-01-01 10:00", timeout="1s")
    assert (wait.exit_code(outcome), world.clock) == (1, 1.0)
    assert wait.render(outcome) == "not reached after 1.0 s: the running kuvasz has no such table yet"
