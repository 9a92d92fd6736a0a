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

SIDS = {"shop_eu": "eu", "shop_us": "us"}

ITEMS, OTHERS, EVENTS = "archive.items", "kuvasz.others", "kuvasz.events"


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    return list(config_sources.resolve(load(file, {}).config))


def without(source: Source, *targets: str) -> Source:
    return dataclasses.replace(source, tables=tuple(s for s in source.tables if s.identifier not in targets))


def test_of_sources_that_nobody_knows_everything_lasts(sources: list[Source]) -> None:
    found = feeders(sources, {}, SIDS)
    expected = {"shop_eu": {ITEMS, OTHERS}, "shop_eu/*": {EVENTS}, "shop_us": {ITEMS, OTHERS}, "shop_us/*": {EVENTS}}
    assert found.now == found.lasting == expected
    assert found.changed == frozenset()
    assert not found.are_same


def test_a_target_that_left_or_came_did_not_last(sources: list[Source]) -> None:
    before = feeders(sources, {}, SIDS).now
    eu, us = sources
    gone = feeders([without(eu, ITEMS, EVENTS), us], before, SIDS)
    assert (gone.lasting["shop_eu"], gone.lasting["shop_eu/*"]) == ({OTHERS}, frozenset())
    assert gone.changed == {ITEMS, EVENTS}
    assert [gone.feeds(ITEMS, "shop_eu"), gone.feeds(ITEMS, "shop_us"), gone.feeds(EVENTS, "shop_us/7")] == [
        False, True, True,
    ]  # fmt: skip
    back = feeders(sources, gone.now, SIDS)
    assert (back.lasting["shop_eu"], back.lasting["shop_eu/*"]) == ({OTHERS}, frozenset())
    assert back.changed == {ITEMS, EVENTS}
    assert back.feeds(ITEMS, "shop_eu")
    assert back.lasting["shop_us"] == {ITEMS, OTHERS}
    assert not back.are_same
    again = feeders(sources, back.now, SIDS)
    assert (again.lasting, again.are_same) == (before, True)
    assert feeders([us], back.now, SIDS).are_same


def test_sources_that_are_not_in_the_map_are_nobodys_concern(sources: list[Source]) -> None:
    before = feeders(sources, {}, SIDS).now
    assert feeders(sources[:1], before, SIDS).changed == frozenset()
    assert set(feeders(sources[:1], before, SIDS).now) == {"shop_eu", "shop_eu/*"}


def test_members_and_an_entry_of_its_own_are_told_apart(sources: list[Source]) -> None:
    known = {"shop_eu": frozenset({ITEMS, OTHERS, EVENTS}), "shop_eu/*": frozenset[str]()}
    found = feeders(sources[:1], known, SIDS)
    assert (found.lasting["shop_eu/*"], found.changed) == (frozenset(), {EVENTS})
    assert [found.feeds(EVENTS, name) for name in ("shop_eu", "shop_eu/7")] == [False, True]


def test_a_source_that_left_the_map_has_lost_the_rows_that_another_one_feeds_now(sources: list[Source]) -> None:
    eu, us = sources
    before = feeders(sources, {}, SIDS).now
    heir = dataclasses.replace(without(eu, OTHERS), name="store_eu", database="store")
    sids = {**SIDS, "store_eu": "eu"}
    found = feeders([heir], before, sids)
    assert found.now == {
        "store_eu": {ITEMS}, "store_eu/*": {EVENTS}, "shop_eu": {OTHERS}, "shop_eu/*": frozenset(),
    }  # fmt: skip
    assert (found.lasting["shop_eu"], found.changed) == ({OTHERS}, {ITEMS, EVENTS})
    assert [found.feeds(ITEMS, "store_eu"), found.feeds(ITEMS, "shop_eu"), found.feeds(OTHERS, "shop_eu")] == [
        True, False, True,
    ]  # fmt: skip
    back = feeders([eu, us], {**before, **found.now}, sids)
    assert (back.lasting["shop_eu"], back.lasting["shop_us"]) == ({OTHERS}, {ITEMS, OTHERS})
    assert back.now["store_eu"] == frozenset()


def test_where_rows_have_no_sid_they_are_those_of_the_one_source_that_has_the_target(sources: list[Source]) -> None:
    eu, us = sources
    alone = tuple(dataclasses.replace(spec, has_sid=False) for spec in us.tables)
    found = feeders([dataclasses.replace(us, tables=alone)], feeders([eu], {}, SIDS).now, SIDS)
    assert found.now["shop_eu"] == frozenset()


def test_a_tenant_is_fed_by_nobody_but_its_source(sources: list[Source]) -> None:
    assert not feeders(sources[:1], {}, SIDS).feeds(ITEMS, "shop/16385@eu")
