"""What was followed from one start to the next."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.config.sources import Source
from kuvasz.sync.rules.feeders import feeders

MAP = """
databases:
- database: shop
  urls: [{url: postgresql:///eu, sid: eu}, {url: postgresql:///us, sid: us}]
  tables:
    items: {target: archive.items}
    others:
    events: {partitions_regex: "events_[0-9]+"}
"""

ITEMS, OTHERS, EVENTS = "archive.items", "kuvasz.others", "kuvasz.events"


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return list(config_sources.resolve(load(file, {}).config))


def without(source: Source, *targets: str) -> Source:
    return dataclasses.replace(source, tables=tuple(s for s in source.tables if s.identifier not in targets))


def test_of_sources_that_nobody_knows_everything_lasts(sources: list[Source]) -> None:
    found = feeders(sources, {})
    expected = {"shop_eu": {ITEMS, OTHERS}, "shop_eu/*": {EVENTS}, "shop_us": {ITEMS, OTHERS}, "shop_us/*": {EVENTS}}
    assert found.now == found.lasting == expected
    assert found.changed == frozenset()
    assert not found.are_same


def test_a_target_that_left_or_came_did_not_last(sources: list[Source]) -> None:
    before = feeders(sources, {}).now
    eu, us = sources
    gone = feeders([without(eu, ITEMS, EVENTS), us], before)
    assert (gone.lasting["shop_eu"], gone.lasting["shop_eu/*"]) == ({OTHERS}, frozenset())
    assert gone.changed == {ITEMS, EVENTS}
    assert [gone.feeds(ITEMS, "shop_eu"), gone.feeds(ITEMS, "shop_us"), gone.feeds(EVENTS, "shop_us/7")] == [
        False, True, True,
    ]  # fmt: skip
    back = feeders(sources, gone.now)
    assert (back.lasting["shop_eu"], back.lasting["shop_eu/*"]) == ({OTHERS}, frozenset())
    assert back.changed == {ITEMS, EVENTS}
    assert back.feeds(ITEMS, "shop_eu")
    assert back.lasting["shop_us"] == {ITEMS, OTHERS}
    assert not back.are_same
    again = feeders(sources, back.now)
    assert (again.lasting, again.are_same) == (before, True)
    assert feeders([us], back.now).are_same


def test_sources_that_are_not_in_the_map_are_nobodys_concern(sources: list[Source]) -> None:
    before = feeders(sources, {}).now
    assert feeders(sources[:1], before).changed == frozenset()
    assert set(feeders(sources[:1], before).now) == {"shop_eu", "shop_eu/*"}


def test_members_and_an_entry_of_its_own_are_told_apart(sources: list[Source]) -> None:
    known = {"shop_eu": frozenset({ITEMS, OTHERS, EVENTS}), "shop_eu/*": frozenset[str]()}
    found = feeders(sources[:1], known)
    assert (found.lasting["shop_eu/*"], found.changed) == (frozenset(), {EVENTS})
    assert [found.feeds(EVENTS, name) for name in ("shop_eu", "shop_eu/7")] == [False, True]
