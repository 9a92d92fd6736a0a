"""The share of a process that applies, beside others in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config, LakeConfig
from kuvasz.state.memory import MemoryFeeds
from kuvasz.state.shares.memory import MemoryGroups
from kuvasz.state.shares.ports import ApplierNode
from kuvasz.state.tables import State
from kuvasz.sync.group_shares import GroupShare
from kuvasz.sync.pattern_tables import PatternTables
from kuvasz.verbs.cluster import applying
from kuvasz.verbs.cluster.applying import GroupsApplied
from kuvasz.verbs.cluster.standby import map_digest


class Shares:
    """Two processes, of which one holds the first group and the other one the second."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "map.yaml"
        self.holders = MemoryGroups()
        self.before = self.read("items", "parts")
        self.now = self.read("parts", "items")
        digest = map_digest(self.before)
        self.holders.nodes = {node: ApplierNode(map=digest) for node in ("one", "two")}
        self.holders.node = "two"
        self.holders.hold({"us": 1}, digest)
        self.holders.node = "one"
        self.mine = GroupsApplied(self.holders)
        self.mine.begin(self.before)

    def read(self, eu: str, us: str) -> Config:
        """Return a map in which each of two groups has one table."""
        groups = [
            {"database": name, "urls": [{"url": f"postgresql:///{name}"}], "tables": {table: None}}
            for name, table in (("eu", eu), ("us", us))
        ]
        self._file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": groups}))
        return load(self._file, {}).config

    def other_follows(self) -> None:
        """Have the other process go by the new map."""
        self.holders.node = "two"
        other = GroupsApplied(self.holders)
        other.begin(self.before)
        other.follow(self.now)
        self.holders.node = "one"


@pytest.fixture
def shares(tmp_path: Path) -> Shares:
    return Shares(tmp_path)


def test_what_another_process_has_is_elsewhere_until_it_goes_by_the_same_map(shares: Shares) -> None:
    asked = ["eu", "us", "gone"]
    assert shares.mine.groups == {"eu"}
    assert not shares.mine.elsewhere(asked, shares.before), "by one map each has its own"
    assert shares.mine.elsewhere(asked, shares.now) == ["us"]
    shares.other_follows()
    assert not shares.mine.elsewhere(asked, shares.now)
    held = shares.holders.shared().held
    assert held["us"] == dataclasses.replace(held["us"], node="two", map=map_digest(shares.now), targets=1)
    assert held["eu"].map == map_digest(shares.before), "it has not been told of the other one"


def test_what_one_had_that_is_gone_is_not_waited_for(shares: Shares) -> None:
    assert shares.mine.elsewhere(["us"], shares.now) == ["us"]
    del shares.holders.nodes["two"]
    assert not shares.mine.elsewhere(["us"], shares.now)


def test_what_one_had_that_ended_in_order_is_taken_by_whichever_map(shares: Shares) -> None:
    shares.mine.end()
    del shares.holders.nodes["one"]
    shares.holders.node = "two"
    other = GroupsApplied(shares.holders)
    shares.holders.nodes["two"] = ApplierNode(map=map_digest(shares.now))
    shares.holders.hold({"us": 1}, map_digest(shares.now))
    other.begin(shares.now)
    assert other.groups == {"eu", "us"}


def test_who_has_lost_its_lease_has_nothing_to_give_back(shares: Shares) -> None:
    shares.holders.ended.add("one")
    shares.mine.end()
    assert shares.holders.shared().held.keys() == {"eu", "us"}


def test_what_others_have_seen_of_tables_is_learned_now_and_then(shares: Shares) -> None:
    feeds = MemoryFeeds()
    patterns = PatternTables(feeds, may_keep=True)
    app: Any = SimpleNamespace(config=shares.read("public.*", "parts"), patterns=patterns)
    patterns.applied(app.config)
    feeds.see({"eu": [("items", True, 1)]})
    version = patterns.version
    asyncio.run(shares.mine._see_tables(app))
    assert patterns.version == version, "not all the time"
    shares.mine._seen_at = 0.0
    asyncio.run(shares.mine._see_tables(app))
    assert patterns.version == version + 1
    assert patterns.applied(app.config).databases[0].entries.keys() == {"items"}


def test_a_source_that_leaves_the_map_while_nobody_has_its_group_is_not_read_any_more(shares: Shares) -> None:
    """Else it would be staged for ever: nobody has it to let go of it."""
    kept: list[str] = []

    class App(SimpleNamespace):
        async def apply(self, groups: frozenset[str]) -> bool:
            self.groups = groups
            return True

        def keep_orders(self) -> None:
            kept.append(",".join(group.database for group in self.config.databases))

    states = SimpleNamespace(snapshot=list)
    app: Any = App(config=shares.before, groups=frozenset({"eu"}), is_changing=False, states=states, sources=[])

    def look() -> None:
        while asyncio.run(shares.mine._look(app)):
            pass

    look()
    assert kept == ["eu,us"], "where several began at once none of them was alone"
    look()
    assert kept == ["eu,us"]
    del shares.holders.nodes["two"]
    groups = [{"database": "eu", "urls": [{"url": "postgresql:///eu"}], "tables": {"items": None}}]
    file = shares._file.with_name("other.yaml")
    file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": groups}))
    app.config = load(file, {}).config
    look()
    assert kept == ["eu,us", "eu"]
    look()
    assert kept == ["eu,us", "eu"]


@pytest.mark.parametrize(("watch", "may_drop"), [(True, False), (False, None)])
def test_a_map_that_another_one_took_by_itself_drops_nothing(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, watch: bool, may_drop: bool | None
) -> None:
    """It may be half a map: slots of what the other half has would be gone, and with them all that is not here."""
    monkeypatch.setattr(applying, "_again", lambda loaded: loaded)
    shares.other_follows()
    reloaded: list[bool | None] = []

    async def reload(by: str, *, may_drop: bool | None = None) -> None:
        assert by == "the cluster (two)"
        reloaded.append(may_drop)

    config = shares.before.model_copy(update={"map": shares.before.map.model_copy(update={"watch": watch})})
    shares.mine._shared = shares.holders.shared()
    live_map: Any = SimpleNamespace(loaded=SimpleNamespace(config=shares.now), reload=reload)
    asyncio.run(shares.mine._follow(cast("Any", SimpleNamespace(config=config)), live_map))
    assert reloaded == [may_drop]


@pytest.mark.parametrize("drains", [False, True])
def test_groups_that_go_together_stay_while_a_table_of_one_is_copied(shares: Shares, drains: bool) -> None:
    """The other one alone would be applied by nobody: neither here nor there is all of their unit."""
    applied: list[frozenset[str]] = []

    class App(SimpleNamespace):
        async def apply(self, groups: frozenset[str]) -> bool:
            applied.append(groups)
            self.groups = groups
            return True

    groups = [
        {"database": name, "urls": [{"url": f"postgresql:///{name}", "sid": name}], "tables": {"items": None}}
        for name in ("eu", "us")
    ]
    shares._file.write_text(json.dumps({"lake": {"namespace": "shop"}, "databases": groups}))
    config = load(shares._file, {}).config
    assert set(shares.mine._known(config)[1].values()) == {"eu"}, "both feed one target"
    copied = SimpleNamespace(database="eu_eu", state=State.COPYING)
    source = SimpleNamespace(source=SimpleNamespace(name="eu_eu"), mapped=SimpleNamespace(database="eu"))
    app: Any = App(config=config, groups=frozenset({"eu", "us"}), sources=[source])
    app.states = SimpleNamespace(snapshot=lambda: [copied])
    share = GroupShare(taken=[], given=["eu", "us"])
    assert asyncio.run(shares.mine._give(app, share, set(), drains=drains)) == drains
    assert applied == ([frozenset()] if drains else [])


class LaterLake(LakeConfig):
    """As a later version has it."""

    added: int = 0


class LaterConfig(Config):
    """The configuration of that version."""

    lake: LaterLake = LaterLake()


def test_a_map_is_the_same_one_for_a_version_that_knows_more_options(shares: Shares) -> None:
    """Else nobody takes over from one of the version before that is killed while a cluster gets a new one."""
    config = shares.now
    lake = LaterLake.model_construct(config.lake.model_fields_set, **dict(config.lake))
    later = LaterConfig.model_construct(config.model_fields_set, **{**dict(config), "lake": lake})
    assert later.model_dump(include={"lake"})["lake"]["added"] == 0
    assert map_digest(later) == map_digest(config) != map_digest(shares.before)
    lake.__dict__["added"] = 1
    assert map_digest(later) != map_digest(config), "whoever says so has another map"
