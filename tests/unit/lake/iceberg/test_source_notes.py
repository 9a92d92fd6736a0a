"""What is noted of a source's table is there for this process and the next."""

from __future__ import annotations

import pytest

from kuvasz.ports import SourceNotes
from tests.support.changes import ITEMS, TARGET, feed, target
from tests.support.local_lake import LocalWorld
from tests.support.source_table import SourceTable


def restarted(world: LocalWorld) -> SourceNotes:
    world.begin(world.catalog)
    world.lake.prepare(target(), feed(), ITEMS)
    return world.lake.notes


@pytest.fixture
def notes(local_world: LocalWorld) -> SourceNotes:
    local_world.prepare("eu", "us")
    return local_world.lake.notes


def test_partitions(local_world: LocalWorld, notes: SourceNotes) -> None:
    assert notes.partitions(TARGET, "eu") is None
    notes.remember_partitions(TARGET, "eu", frozenset({"a", "b"}))
    for seen in (notes, restarted(local_world)):
        assert seen.partitions(TARGET, "eu") == {"a", "b"}
        assert seen.partitions(TARGET, "us") is None


def test_how_it_is_published(local_world: LocalWorld, notes: SourceNotes) -> None:
    notes.remember_published(TARGET, "eu", "5:700")
    for seen in (notes, restarted(local_world)):
        assert (seen.published(TARGET, "eu"), seen.published(TARGET, "us")) == ("5:700", None)


@pytest.mark.parametrize("others", [1, 20])
def test_how_many_are_published(notes: SourceNotes, others: int) -> None:
    notes.remember_published(TARGET, "eu", "5:700")
    unknown = [f"s{number}" for number in range(others)]
    assert notes.published_of(TARGET, ["eu", *unknown]) == {"eu": "5:700"} | dict.fromkeys(unknown)


def test_what_is_parked(local_world: LocalWorld, notes: SourceNotes) -> None:
    notes.park(TARGET, "eu", "a1")
    assert restarted(local_world).parked(TARGET, "eu") == "a1"
    local_world.lake.notes.park(TARGET, "eu", None)
    assert restarted(local_world).parked(TARGET, "eu") is None


def test_a_gap_is_open_until_the_source_has_a_position_again(local_world: LocalWorld, notes: SourceNotes) -> None:
    assert notes.gap(TARGET, "eu") is None
    local_world.lake.forget(TARGET, "eu", to_repair=True)
    for seen in (notes, restarted(local_world)):
        gap = seen.gap(TARGET, "eu")
        assert gap is not None
        assert (gap.from_lsn, gap.is_open) == (1000, True)
    local_world.copy("eu", lsn=9000)
    assert local_world.lake.notes.gap(TARGET, "eu") is None


def test_columns_are_known_by_their_numbers(local_world: LocalWorld) -> None:
    notes = local_world.lake.notes
    assert notes.columns(TARGET, "eu") is None
    assert notes.partitions(TARGET, "eu") is None, "of a table that is not loaded nothing is known"
    local_world.prepare("eu", relation=SourceTable().catalog())
    known = notes.columns(TARGET, "eu")
    assert known is not None
    assert (known.oid, set(known.columns)) == (100, {1, 2, 3})
