"""What maps before had, and what of it a start or a reload has to know."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import ConfigError, StateError
from kuvasz.model import SourcePosition
from kuvasz.sync.earlier_maps import EarlierMaps
from kuvasz.sync.rules.targets import feed_of, target_of
from tests.support.changes import ITEMS
from tests.support.scene import Scene


class World(Scene):
    """A scene with what was before it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.maps = EarlierMaps([self.source], self.shared)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_target_that_was_not_followed_since_the_last_start_has_a_gap(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.copy(world.items)
    world.copy(world.others)
    world.shared.state.feeds.keep({"shop": {"shop.others", "shop.gone"}, "shop/*": ()})
    world.maps.begin()
    assert (set(world.lake.positions("shop.items")), set(world.lake.positions("shop.others"))) == (set(), {"shop"})
    assert world.lake.notes.gap("shop.items", "shop") is not None
    assert "a table is in the map again, and missed changes meanwhile" in caplog.text
    world.copy(world.items)
    world.maps.begin()
    assert set(world.lake.positions("shop.items")) == {"shop"}, "from that start on it was followed"


def test_a_source_that_comes_back_has_not_the_rows_that_another_one_fed_meanwhile(world: World) -> None:
    """Its own are gone, whatever its position says; the slot that it had kept brings only what changed since."""
    world.copy(world.items)
    world.copy(world.others)
    world.maps.begin()
    heir = dataclasses.replace(world.source, name="store", database="store", tables=(world.items,))
    world.maps.add([heir])
    world.maps.let_go([heir])
    assert (set(world.lake.positions("shop.items")), set(world.lake.positions("shop.others"))) == (set(), {"shop"})
    assert world.lake.notes.gap("shop.items", "shop") is not None
    feeds = world.shared.state.feeds
    assert (feeds.known()["shop"], feeds.known()["store"]) == ({"shop.others"}, {"shop.items"})
    world.maps.add([world.source])
    world.maps.let_go([world.source])
    assert (feeds.known()["shop"], feeds.known()["store"]) == ({"shop.items", "shop.others"}, frozenset())


def test_a_start_with_another_sid_under_the_same_name_is_refused(world: World) -> None:
    """The lake has rows by the old one: beside them the stream would put others for the same keys."""
    world.maps.begin()
    assert world.shared.state.feeds.sids() == {"shop": None}
    world.shared.state.feeds.keep({}, {"shop": "old", "gone": "x"})
    with pytest.raises(ConfigError, match="source shop: its sid was old, and is None"):
        world.maps.begin()
    world.shared.state.feeds.keep({}, {"shop": None})
    world.maps.begin()
    assert world.maps.sids == {"shop": None, "gone": "x"}, "also of those that an earlier map had"


def test_a_source_that_another_process_had_loses_the_rows_whose_sid_one_has_here(world: World) -> None:
    """It was added there since this process began: its sid is known where both remember."""
    world.maps.begin()
    spec = dataclasses.replace(world.items, has_sid=True)
    gone = dataclasses.replace(world.source, name="gone", database="gone", sid="x", tables=(spec,))
    feed, relation = feed_of(gone, spec), dataclasses.replace(ITEMS, table=spec.table)
    world.lake.prepare(target_of(spec), feed, relation)
    world.lake.copy(feed, relation, [], SourcePosition(lsn=1000), lambda *_: None)
    feeds = world.shared.state.feeds
    feeds.keep({"gone": {"shop.items"}}, {"gone": "x"})
    heir = dataclasses.replace(gone, name="heir", database="heir")
    world.maps.read()
    world.maps.add([heir])
    world.maps.let_go([heir])
    assert not world.lake.positions("shop.items")
    assert (feeds.known()["gone"], feeds.known()["heir"]) == (frozenset(), {"shop.items"})


def test_nothing_is_taken_from_a_source_that_another_process_feeds_by_the_map_before(world: World) -> None:
    """What that has in hand would come between the rows of the source that has them by the new map."""
    world.copy(world.items)
    EarlierMaps([world.source], world.shared).begin()
    feeds, before = world.shared.state.feeds, dict(world.shared.state.feeds.known())
    heir = dataclasses.replace(world.source, name="store", database="store", tables=(world.items,))
    asked: list[frozenset[str]] = []
    others = ["shop"]

    def elsewhere(names: Any) -> list[str]:
        asked.append(frozenset(names))
        return others

    world.maps = EarlierMaps([world.source], world.shared, elsewhere)
    world.maps.begin()
    world.maps.add([heir])
    with pytest.raises(StateError, match=r"^another process still feeds rows from shop that are those of other sour"):
        world.maps.let_go([heir])
    assert (set(world.lake.positions("shop.items")), dict(feeds.known())) == ({"shop"}, before)
    others.clear()
    world.maps.let_go([heir])
    assert not world.lake.positions("shop.items")
    assert asked == [{"shop"}, {"shop"}]
    world.maps.let_go([heir])
    assert len(asked) == 2, "nothing is taken any more"
