"""The copy of one source table: one commit at its end, whoever else commits meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import ForeignChange, LakeError, OutcomeUnknown
from kuvasz.model import SourcePosition, TableType
from tests.support.changes import ITEMS, TARGET, Lines, Sender, feed, insert, target, work
from tests.support.local_lake import LocalWorld


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    local_world.prepare("eu", "us")
    local_world.applied(work(Sender().one(insert(1, 1), insert(2, 2)), Sender("us").one(insert(1, 7))))
    return local_world


def test_it_takes_the_place_of_its_sources_rows_in_one_commit(world: LocalWorld) -> None:
    before, told = world.snapshots(), []
    lines = [Lines(((2, 20, "x"),)), Lines(((3, 30, "y"),))]
    at = SourcePosition(lsn=9000)
    receipt = world.lake.copy(feed(), ITEMS, lines, at, lambda *_: None, on_read=lambda: told.append(world.of("eu")))
    assert told == [{1: (1, "b"), 2: (2, "b")}], "nothing was seen before all was read"
    assert world.rows() == {("eu", 2): (20, "x"), ("eu", 3): (30, "y"), ("us", 1): (7, "b")}
    assert world.snapshots() == before + 1
    assert (receipt.rows, receipt.positions) == (2, {"eu": at})
    assert world.position("eu") == 9000
    assert list(Path(world.config.pipeline.state_folder, "copy").iterdir()) == []


def test_what_the_snapshot_has_is_not_applied_again(world: LocalWorld) -> None:
    world.copy("eu", (2, 20, "x"), lsn=9000)
    early, late = Sender(start=8000).one(insert(2, 1)), Sender(start=9000).one(insert(4, 4))
    world.applied(work(early, late))
    assert world.of("eu") == {2: (20, "x"), 4: (4, "b")}


def test_a_commit_that_meets_another_writer_is_worked_out_again(world: LocalWorld) -> None:
    world.stored().before_commit.append(world.stored().exchange_files)
    world.copy("eu", (2, 20, "x"), lsn=9000)
    assert world.rows() == {("eu", 2): (20, "x"), ("us", 1): (7, "b")}


def test_it_gives_way_a_few_times_and_then_fails_without_a_trace(world: LocalWorld) -> None:
    before = world.rows()
    count = 0

    def conflict() -> None:
        nonlocal count
        count += 1
        raise ForeignChange(f"table {TARGET}: conflict {count}")

    world.stored().before_commit += [conflict] * 9
    with pytest.raises(ForeignChange):
        world.copy("eu", (2, 20, "x"), lsn=9000)
    assert 1 < count < 9
    world.stored().before_commit.clear()
    assert world.rows() == before
    assert world.orphans() == []
    assert world.position("eu") < 9000


def test_files_of_a_commit_of_which_nobody_knows_stay(world: LocalWorld) -> None:
    def lose() -> None:
        world.catalog.is_down = True
        raise OutcomeUnknown("the answer was lost")

    world.stored().after_commit.append(lose)
    with pytest.raises(LakeError):
        world.copy("eu", (2, 20, "x"), lsn=9000)
    world.catalog.is_down = False
    assert world.of("eu") == {2: (20, "x")}, "it was made, and its files are there"


def test_no_room_for_what_must_be_kept_is_told(world: LocalWorld) -> None:
    folder = Path(world.config.pipeline.state_folder, "copy")
    if folder.exists():
        folder.rmdir()
    folder.write_text("a file in the way")
    with pytest.raises(LakeError) as caught:
        world.copy("eu", (2, 20, "x"), lsn=9000)
    assert caught.value.message.startswith(f"table {TARGET}: its copy cannot be kept below {folder}: ")
    assert caught.value.hint == "make room; it is tried again"


@pytest.mark.parametrize("table_type", [TableType.APPEND, TableType.CHANGELOG])
def test_an_open_transaction_of_the_source_is_forgotten(local_world: LocalWorld, table_type: TableType) -> None:
    local_world.lake.prepare(target(table_type=table_type), feed(), ITEMS)
    local_world.copy("eu")
    eu = Sender()
    local_world.applied(work(eu.part(eu.commit_lsn(), insert(1)), open_sources=["eu"]))
    local_world.copy("eu", (2, 20, "x"), lsn=9000)
    local_world.applied(work(Sender(start=9000).one(insert(3))))
    assert sorted(local_world.table(TARGET).column("id").to_pylist()) == [2, 3]
    assert local_world.orphans() == []
