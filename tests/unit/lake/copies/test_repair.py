"""Only what differs is changed, and in one commit, whoever else commits meanwhile."""

from __future__ import annotations

import pytest

from kuvasz.errors import ForeignChange
from kuvasz.lake.compare.comparison import Comparison
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition, TableType
from tests.support.changes import ITEMS, TARGET, Lines, Sender, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

AT = SourcePosition(lsn=9000)
US = 50_000


def repair(world: LocalWorld, *rows: tuple):
    return world.lake.repair(feed(), ITEMS, [Lines(rows)] if rows else [], AT, at_us=US + POSTGRES_EPOCH_US)


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    local_world.prepare("eu", "us")
    rows = [insert(1, 1), insert(2, 2), insert(3, 3)]
    local_world.applied(work(Sender().one(*rows), Sender("us").one(insert(1, 7))))
    return local_world


def test_missing_extra_and_other_rows_are_made_equal(world: LocalWorld) -> None:
    receipt = repair(world, (1, 1, "b"), (2, 20, "b"), (4, 4, "b"))
    assert world.rows() == {("eu", 1): (1, "b"), ("eu", 2): (20, "b"), ("eu", 4): (4, "b"), ("us", 1): (7, "b")}
    assert (receipt.rows, world.position("eu")) == (3, 9000)
    assert world.orphans() == []


def test_where_nothing_differs_the_position_moves_alone(world: LocalWorld) -> None:
    before = world.snapshots()
    receipt = repair(world, (1, 1, "b"), (2, 2, "b"), (3, 3, "b"))
    assert (receipt.rows, receipt.snapshot_id, world.snapshots()) == (0, None, before)
    assert world.position("eu") == 9000
    assert world.lake.stored(TARGET)["eu"].lsn == 9000


def test_the_stream_goes_on_over_what_was_mended(world: LocalWorld) -> None:
    repair(world, (1, 1, "b"), (2, 20, "b"))
    world.applied(work(Sender(start=9000).one(update(2, 21), insert(3, 33))))
    assert world.of("eu") == {1: (1, "b"), 2: (21, "b"), 3: (33, "b")}


def test_a_table_that_another_one_changed_meanwhile_is_compared_again(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, count = Comparison.difference, 0

    def difference(self: Comparison):
        nonlocal count
        found = compare(self)
        count += 1
        if count == 1:
            world.stored().touch()
        return found

    monkeypatch.setattr(Comparison, "difference", difference)
    repair(world, (1, 1, "b"), (2, 20, "b"))
    assert count == 2
    assert world.of("eu") == {1: (1, "b"), 2: (20, "b")}
    assert world.orphans() == []


def test_one_that_others_change_all_the_time_is_given_up(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = Comparison.difference

    def difference(self: Comparison):
        found = compare(self)
        world.stored().touch()
        return found

    monkeypatch.setattr(Comparison, "difference", difference)
    before = world.rows()
    with pytest.raises(ForeignChange, match="someone else changed it while it was compared"):
        repair(world, (1, 1, "b"))
    assert world.rows() == before
    assert world.orphans() == []


def test_a_historys_open_versions_end_when_the_snapshot_was_taken(local_world: LocalWorld) -> None:
    local_world.lake.prepare(target(table_type=TableType.HISTORY), feed(), ITEMS)
    local_world.copy("eu")
    local_world.applied(work(Sender().one(insert(1, 1), insert(2, 2), insert(3, 3))))
    repair(local_world, (1, 1, "b"), (2, 20, "b"), (4, 4, "b"))
    assert local_world.versions() == [
        (1, 1, 11_000, None, False), (2, 2, 11_000, US, False), (2, 20, US, None, False),
        (3, 3, 11_000, US, True), (4, 4, US, None, False),
    ]  # fmt: skip


def test_versions_in_files_that_another_engine_merged_end_as_well(history_world: LocalWorld) -> None:
    world = history_world
    world.applied(work(Sender().one(insert(1, 1), insert(2, 2), insert(3, 3)), Sender("us").one(insert(3, 7))))
    world.merge_files()
    repair(world, (1, 1, "b"), (2, 20, "b"))
    assert world.versions() == [
        (1, 1, 11_000, None, False), (2, 2, 11_000, US, False), (2, 20, US, None, False),
        (3, 3, 11_000, US, True), (3, 7, 11_000, None, False),
    ]  # fmt: skip


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG])
def test_what_a_growing_table_misses_is_in_no_snapshot(local_world: LocalWorld, table_type: TableType) -> None:
    local_world.lake.prepare(target(table_type=table_type), feed(), ITEMS)
    local_world.copy("eu", (1, 1, "b"))
    local_world.lake.forget(TARGET, "eu", to_repair=True)
    assert local_world.lake.notes.gap(TARGET, "eu") is not None
    receipt = repair(local_world, (1, 2, "b"), (2, 2, "b"))
    assert receipt.rows == 0
    assert local_world.table(TARGET).column("n").to_pylist() == [1]
    assert local_world.lake.notes.gap(TARGET, "eu") is None
    assert local_world.position("eu") == 9000
