"""Sources of a map asked for, added and dropped by requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kuvasz.admin import live_map
from kuvasz.config.load import Loaded
from kuvasz.errors import MapBusy
from tests.support.writable_world import WritableWorld

NEW = {"database": "shop", "sid": "de", "url": "postgresql://repl:pw@de/shop"}


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")


@pytest.fixture
def world(tmp_path: Path) -> WritableWorld:
    return WritableWorld(tmp_path)


def test_sources_are_listed_by_patterns(world: WritableWorld) -> None:
    status, found = world.ask("/api/source?sid=e*", method="GET")
    assert (status, [one["source"] for one in found]) == (200, ["shop_eu"])
    assert "a-secret" not in str(found)
    assert len(world.ask("/api/source", method="GET")[1]) == 2
    status, shown = world.ask("/api/source/shop_us", method="GET")
    assert (status, shown["sid"], [one["target"] for one in shown["table_list"]]) == (
        200, "us", ["shop.items", "shop.others"],
    )  # fmt: skip
    assert world.ask("/api/source/shop", method="GET")[0] == 404
    status, refused = world.ask("/api/source?group=x", method="GET")
    assert (status, refused["error"]) == (400, "the unknown parameter 'group'")


@pytest.mark.parametrize(("path", "method"), [("/api/source", "POST"), ("/api/source/shop_us", "DELETE")])
def test_what_only_has_to_wait_is_told_by_its_code(
    world: WritableWorld, path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_map, "_SETTLE_S", 0.0)
    world.busy = MapBusy("the map before it is still being put into use")
    status, refused = world.ask(path, method=method, body={**NEW, "unchecked": True})
    assert (status, refused["code"]) == (409, "map_busy")


def test_a_source_is_looked_at_and_added_with_the_comments_kept(world: WritableWorld) -> None:
    looked: list[tuple[set[str], Any]] = []

    def check(loaded: Loaded, query: Any) -> list[dict[str, Any]]:
        looked.append(({url.sid or "" for url in loaded.config.databases[0].urls}, query))
        return [
            {"check": "wal_level", "value": "replica", "ok": False, "severity": "required", "fix": "ALTER SYSTEM"}
        ]

    before = world.text
    world.looks["check"] = check
    status, refused = world.ask("/api/source", body=NEW)
    assert (status, refused["error"], refused["hint"]) == (
        409, "shop_de cannot be replicated: wal_level: replica", "ALTER SYSTEM",
    )  # fmt: skip
    assert looked == [({"eu", "us", "de"}, {"source": ["shop_de"]})]
    assert (world.text, world.taken) == (before, [])
    status, shown = world.ask("/api/source", body={**NEW, "unchecked": True})
    assert (status, shown["source"], shown["url"]) == (200, "shop_de", "postgresql://repl:***@de/shop")
    assert len(looked) == 1
    said = '    sid: us\n  - {url: "postgresql://repl:pw@de/shop", sid: de}\n'
    assert world.text == before.replace("    sid: us\n", said)
    assert [one.name for one in world.taken[-1].added] == ["shop_de"]
    status, refused = world.ask("/api/source", body=NEW)
    assert (status, refused["error"]) == (409, "the group 'shop' has the source 'de' already")
    status, refused = world.ask("/api/source", body={**NEW, "url": "postgresql://${HOME}/x", "sid": "x"})
    assert status == 400


def test_a_source_is_dropped_and_its_slot_as_is_said(world: WritableWorld) -> None:
    before = world.text
    assert world.ask("/api/source/shop_de", method="DELETE")[0] == 404
    assert world.ask("/api/source/shop_us?slot=maybe", method="DELETE")[0] == 400
    assert world.text == before
    assert world.ask("/api/source/shop_us?slot=drop", method="DELETE") == (200, "null")
    assert world.text == before.replace("  - url: postgresql://us1/shop\n    sid: us\n", "")
    assert [one.name for one in world.taken[-1].removed] == ["shop_us"]
    assert world.dropping == [True]


def test_a_read_only_map_stays(tmp_path: Path) -> None:
    world = WritableWorld(tmp_path, is_writable=False)
    assert world.ask("/api/source", body=NEW)[0] == 405
    assert world.ask("/api/source/shop_us", method="DELETE")[0] == 405


def test_commands_reach_the_sources_of_a_pattern(world: WritableWorld) -> None:
    status, told = world.ask("/api/pause", body={"sid": "u*", "database": "sh*"})
    assert (status, {one["source"] for one in told["tables"]}) == (202, {"shop_us"})
    assert world.ask("/api/pause", body={"sid": "*", "database": "other"})[0] == 404
