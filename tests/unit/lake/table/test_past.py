"""Whether a lake table was set back, told by its properties, its snapshots and a witness of its positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kuvasz.errors import LakeRewound
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.notes import ANCHOR_PROPERTY, REWOUND_PREFIX, SET_BACK_PROPERTY
from kuvasz.lake.table.past import Past
from kuvasz.model import SourcePosition
from kuvasz.state.memory import MemoryWitness

NAME = "shop.items"


class Table:
    """An Iceberg table: its properties, and the newest anchor that its snapshots name."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.anchor: str | None = None
        self.has_all_snapshots = True

    @property
    def snapshots(self) -> Table:
        return self

    def newest_of_summaries(self, name: str) -> tuple[str | None, bool]:
        assert name == ANCHOR_PROPERTY
        return self.anchor, self.has_all_snapshots

    def property_of(self, name: str) -> str | None:
        return self.properties.get(name)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.properties |= properties


class World:
    """A table of two sources that was committed once."""

    def __init__(self) -> None:
        self.table, self.witness = Table(), MemoryWitness()
        self.positions = {"eu": SourcePosition(lsn=0x100), "us": SourcePosition(lsn=0x200)}
        self.cleared = 0
        self.show(self.positions)
        self.table.properties[ANCHOR_PROPERTY] = self.table.anchor = "a2"
        self.past = self.begin(self.positions)
        self.past.note()

    def begin(self, positions: Mapping[str, SourcePosition]) -> Past:
        """Return the table's past as a process sees it that begins with these positions."""
        table: Any = self.table
        index: Any = self
        return Past(NAME, table, positions, index, self.witness)

    def clear(self) -> None:
        self.cleared += 1

    def show(self, positions: Mapping[str, SourcePosition]) -> None:
        """Have the table's properties show positions."""
        kept = {name: text for name, text in self.table.properties.items() if source_positions.PREFIX not in name}
        shown = {source_positions.PREFIX + name: source_positions.render(one) for name, one in positions.items()}
        self.table.properties = kept | shown

    @property
    def noted(self) -> dict[str, str]:
        return {name: why for name, why in self.table.properties.items() if name.startswith(REWOUND_PREFIX)}


@pytest.fixture
def world() -> World:
    return World()


def test_a_table_that_goes_on_is_let_go_on(world: World) -> None:
    world.past.check()
    world.positions["eu"] = SourcePosition(lsn=0x180)
    world.show(world.positions)
    world.table.properties[ANCHOR_PROPERTY] = world.table.anchor = "a3"
    world.past.check()
    world.past.refuse("eu")
    world.past.refuse_all(["eu", "us"])
    assert (world.noted, world.cleared) == ({}, 0)


@pytest.mark.parametrize("newest", ["a1", None])
def test_an_older_snapshot_is_seen_by_its_anchor(world: World, newest: str | None) -> None:
    world.table.anchor = newest
    with pytest.raises(LakeRewound) as told:
        world.past.check()
    assert world.table.properties[SET_BACK_PROPERTY], "an index of before says nothing, whoever has it"
    why = "its rows are those of an older snapshot, or someone replaced them"
    assert str(told.value) == (
        f"source eu, table shop.items: someone set the table back in the lake: {why}\nhint: copy it again: kuvasz"
        " resync --table shop.items; or `on_lake_rewound: repair` compares and mends it"
    )
    assert world.noted == {"kuvasz.rewound.eu": why, "kuvasz.rewound.us": why}
    assert world.cleared == 1, "rows that were dead may live again"


def test_snapshots_that_were_expired_say_nothing(world: World) -> None:
    world.table.anchor, world.table.has_all_snapshots = None, False
    world.past.check()
    assert world.noted == {}


def test_a_table_without_an_anchor_is_of_an_earlier_version(world: World) -> None:
    del world.table.properties[ANCHOR_PROPERTY]
    world.table.anchor = None
    world.past.check()
    assert world.noted == {}


def test_an_older_catalog_is_seen_by_the_positions_of_this_process(world: World) -> None:
    world.show({"eu": SourcePosition(lsn=0x80), "us": world.positions["us"]})
    with pytest.raises(LakeRewound, match=r"source eu, .* its position was 0/100 and is 0/80 now"):
        world.past.check()
    assert list(world.noted) == ["kuvasz.rewound.eu"]


def test_an_older_catalog_is_seen_by_the_next_process_through_its_witness(world: World) -> None:
    old = {"eu": SourcePosition(lsn=0x80), "us": SourcePosition(lsn=0x200)}
    world.show(old)
    with pytest.raises(LakeRewound, match=r"source eu, .* its position was 0/100 and is 0/80 now"):
        world.begin(old).check()


def test_who_has_no_witness_goes_by_what_it_has_seen_itself(world: World) -> None:
    old = {"eu": SourcePosition(lsn=0x80)}
    world.show(old)
    table: Any = world.table
    index: Any = world
    past = Past(NAME, table, old, index, None)
    past.note()
    past.check()
    past.forget("eu")
    assert world.noted == {}


def test_a_position_that_is_gone_from_the_lake_is_missed(world: World) -> None:
    world.show({"us": world.positions["us"]})
    with pytest.raises(LakeRewound, match=r"source eu, .* its position was 0/100 and is gone"):
        world.past.check()


def test_what_was_noted_once_is_not_told_again_and_refused_until_it_is_forgotten(world: World) -> None:
    world.show({"eu": SourcePosition(lsn=0x80), "us": world.positions["us"]})
    with pytest.raises(LakeRewound):
        world.past.check()
    world.past.check()
    assert world.cleared == 1
    world.past.refuse_all(["us"])
    world.past.refuse("us")
    for refuse in (world.past.refuse, lambda source: world.past.refuse_all([source])):
        with pytest.raises(LakeRewound, match=r"source eu, table shop\.items"):
            refuse("eu")
    del world.table.properties["kuvasz.rewound.eu"]
    world.past.refuse("eu")
    with pytest.raises(LakeRewound):
        world.past.refuse_all(["eu"])
    world.past.forget("eu")
    world.past.refuse_all(["eu"])
    assert world.witness.known(NAME) == {"us": 0x200}


def test_what_another_process_noted_is_refused_as_well(world: World) -> None:
    world.table.properties["kuvasz.rewound.us"] = "its position was 0/200 and is gone"
    with pytest.raises(LakeRewound, match=r"source us, .* its position was 0/200 and is gone"):
        world.past.refuse("us")


def test_a_position_that_was_dropped_and_is_there_again_is_seen_by_the_next_process(world: World) -> None:
    dropped = {"eu": SourcePosition(lsn=0x100, history=1), "us": world.positions["us"]}
    world.past.forget("eu")
    world.past.give_up("eu", dropped["eu"])
    del world.positions["eu"]
    world.show({"us": dropped["us"]})
    world.past.check()
    world.begin(world.positions).check()
    world.show(dropped)
    world.past.check()  # of a table that is copied again by this process, which replaces it
    with pytest.raises(LakeRewound, match=r"source eu, .* its position 0/100 had been given up and is there again"):
        world.begin(dropped).check()
    assert list(world.noted) == ["kuvasz.rewound.eu"]


def test_a_new_position_below_one_that_was_dropped_is_a_new_one(world: World) -> None:
    """A standby took over that lacks the place of the old one, and the process was killed before it could note it."""
    world.past.forget("eu")
    world.past.give_up("eu", SourcePosition(lsn=0x100, history=1))
    fresh = {"eu": SourcePosition(lsn=0x80, history=1), "us": world.positions["us"]}
    world.past.expect(fresh)
    world.show(fresh)
    world.begin(fresh).check()
    earlier = fresh | {"eu": SourcePosition(lsn=0x7F, history=1)}
    world.show(earlier)
    with pytest.raises(LakeRewound, match=r"source eu, .* its position 0/7F had been given up and is there again"):
        world.begin(earlier).check()


@pytest.mark.parametrize("now", [SourcePosition(lsn=0x101, history=1), SourcePosition(lsn=0x10, history=2)])
def test_a_position_after_one_that_was_dropped_is_a_new_one(world: World, now: SourcePosition) -> None:
    """Also if its process was killed before it could note it, and of a source that was restored."""
    world.past.forget("eu")
    world.past.give_up("eu", SourcePosition(lsn=0x100, history=1))
    fresh = {"eu": now, "us": world.positions["us"]}
    world.show(fresh)
    past = world.begin(fresh)
    past.check()
    assert world.witness.given_up(NAME) == {"eu": (1, 0x100)}
    past.note()
    assert world.witness.given_up(NAME) == {}
