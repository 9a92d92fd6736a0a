"""Rows that were left out of a table that keeps what was: no later row has what it leaves out from before them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Failure
from tests.support.changes import ITEMS, SAME, TARGET, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld
from tests.support.worlds import MemoryWorld, World

GROWING = [TableType.APPEND, TableType.CHANGELOG]


def prepare(world: World, kind: TableType, *, rejects: bool) -> None:
    world.lake.prepare(dataclasses.replace(target(table_type=kind), rejects=rejects), feed(), ITEMS)


def rejected(world: World, kind: TableType) -> Sender:
    """Have a row rejected, and the map reject none any more."""
    prepare(world, kind, rejects=True)
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "old"), insert(2, 1, "old"))))
    world.applied(work(eu.one(update(1, "bad", "new"))))
    prepare(world, kind, rejects=False)
    return eu


def stops(world: World, eu: Sender) -> bool:
    """Whether an update stops its table that leaves out what it has from before."""
    (outcome,) = world.apply(work(eu.one(update(1, 2, SAME))))
    return isinstance(outcome, Failure)


@pytest.mark.parametrize("kind", [*GROWING, TableType.HISTORY])
@pytest.mark.parametrize("is_read_anew", [False, True])
def test_what_a_rejected_row_had_is_known_of_no_earlier_one(
    tmp_path: Path, kind: TableType, *, is_read_anew: bool
) -> None:
    world = LocalWorld(tmp_path, about="_kuvasz")
    eu = rejected(world, kind)
    if is_read_anew:
        world.loaded().index.clear()
    assert stops(world, eu), sorted(map(repr, world.table(TARGET).to_pylist()))


@pytest.mark.parametrize("kind", GROWING)
def test_the_lake_in_memory_knows_it_as_little(kind: TableType) -> None:
    world = MemoryWorld(8 << 20)
    assert stops(world, rejected(world, kind))


@pytest.mark.parametrize("kind", GROWING)
def test_a_copy_has_all_that_an_update_leaves_out(tmp_path: Path, kind: TableType) -> None:
    world = LocalWorld(tmp_path, about="_kuvasz")
    rejected(world, kind)
    world.lake.forget(TARGET, "eu")
    prepare(world, kind, rejects=False)
    world.copy("eu", (1, 7, "new"), lsn=2000)
    prepare(world, kind, rejects=False)
    world.applied(work(Sender(start=3000).one(update(1, 2, SAME))))
    assert {row["body"] for row in world.table(TARGET).to_pylist()} == {"new"}


@pytest.mark.parametrize("kind", [*GROWING, TableType.HISTORY])
@pytest.mark.parametrize("is_read_anew", [False, True])
def test_a_row_that_left_the_filter_may_have_changed_until_it_is_back(
    tmp_path: Path, kind: TableType, *, is_read_anew: bool
) -> None:
    """What leaves a filter is a deletion here, and what comes back need not bring all of its values."""
    world = LocalWorld(tmp_path)
    prepare(world, kind, rejects=False)
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "old"), insert(2, 1, "old"))))
    world.applied(work(eu.one(delete(1))))
    world.applied(work(eu.one(update(2, 2, SAME))))
    if is_read_anew and kind is not TableType.APPEND:  # which has no row of it
        world.loaded().index.clear()
    assert stops(world, eu), sorted(map(repr, world.table(TARGET).to_pylist()))


@pytest.mark.parametrize("kind", GROWING)
def test_the_lake_in_memory_knows_of_rows_that_left_it(kind: TableType) -> None:
    world = MemoryWorld(8 << 20)
    prepare(world, kind, rejects=False)
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1, "old"))))
    world.applied(work(eu.one(delete(1))))
    assert stops(world, eu)


def gone_over_a_gap(world: World, kind: TableType) -> Sender:
    """Have a source's changes lost, and its table go on with what it has."""
    prepare(world, kind, rejects=False)
    world.applied(work(Sender().one(insert(1, 1, "old"))))
    world.lake.forget(TARGET, "eu", to_repair=True)
    prepare(world, kind, rejects=False)
    at = SourcePosition(lsn=2000, system_id="7001")
    world.lake.repair(feed(), ITEMS, [], at, lambda *_: None)
    return Sender(start=3000)


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("is_begun_again", [False, True])
def test_what_was_lost_may_have_changed_what_an_update_leaves_out(
    tmp_path: Path, kind: TableType, *, is_begun_again: bool
) -> None:
    world = LocalWorld(tmp_path)
    eu = gone_over_a_gap(world, kind)
    if is_begun_again:
        prepare(world, kind, rejects=False)
    assert stops(world, eu), sorted(map(repr, world.table(TARGET).to_pylist()))


@pytest.mark.parametrize("kind", GROWING)
def test_the_lake_in_memory_knows_of_a_gap(kind: TableType) -> None:
    world = MemoryWorld(8 << 20)
    eu = gone_over_a_gap(world, kind)
    assert [row["body"] for row in world.table(TARGET).to_pylist()] == ["old"]
    assert stops(world, eu)
