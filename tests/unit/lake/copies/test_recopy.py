"""A history whose source is copied again, upon real files, without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from kuvasz.lake.files.files import Changeset
from kuvasz.model import POSTGRES_EPOCH_US, SourcePosition, TableType
from tests.support.changes import ITEMS, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld

COPIED = 50_000


@pytest.fixture
def world(history_world: LocalWorld) -> LocalWorld:
    return history_world


def copy_again(world: LocalWorld, *rows: tuple, us: int = COPIED) -> None:
    world.lake.forget(TARGET, "eu")
    position = SourcePosition(lsn=10_000, taken_us=us + POSTGRES_EPOCH_US)
    world.lake.copy(feed("eu"), ITEMS, [Lines(rows)] if rows else [], position, lambda *_: None)


def test_what_was_stays_and_what_is_otherwise_is_so_from_the_copy_on(world: LocalWorld) -> None:
    eu = Sender()
    world.applied(work(eu.one(insert(1, 1), insert(2, 2), insert(3, 3)), eu.one(update(2, 22), delete(3))))
    before = world.versions()
    copy_again(world, (1, 1, "b"), (2, 23, "b"), (3, 33, "b"), (4, 4, "b"))
    assert world.versions() == sorted([
        *(row for row in before if row[:2] != (2, 22)),
        (2, 22, 12_000, COPIED, False), (2, 23, COPIED, None, False),
        (3, 33, COPIED, None, False), (4, 4, COPIED, None, False),
    ], key=lambda row: (row[0], row[2]))  # fmt: skip


def test_a_copy_that_shows_nothing_new_leaves_every_file_as_it_was(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1), insert(2, 2))))
    before = [file.data["file-path"] for file in world.stored().now.files]
    copy_again(world, (1, 1, "b"), (2, 2, "b"))
    assert [file.data["file-path"] for file in world.stored().now.files] == before
    assert world.orphans() == []


def test_what_the_copy_has_not_got_ends_deleted_and_no_other_source_is_touched(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1), insert(2, 2)), Sender("us").one(insert(1, 7))))
    copy_again(world, (1, 1, "b"))
    assert world.versions() == [
        (1, 1, 11_000, None, False),
        (1, 7, 11_000, None, False),
        (2, 2, 11_000, COPIED, True),
    ]
    copy_again(world)
    assert {row[1]: row[4] for row in world.versions()} == {1: True, 7: False, 2: True}


def test_the_stream_goes_on_from_the_copied_versions(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1))))
    copy_again(world, (1, 2, "b"), (5, 5, "b"))
    later = Sender(start=20_000)
    world.applied(work(later.one(update(1, 3), delete(5))))
    assert world.versions()[-3:] == [
        (1, 2, COPIED, 201_000, False), (1, 3, 201_000, None, False), (5, 5, COPIED, 201_000, True),
    ]  # fmt: skip


def test_a_copy_of_a_clock_that_was_set_back_begins_when_the_version_before_did(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1))))
    copy_again(world, (1, 2, "b"), us=50)
    assert world.versions()[-1] == (1, 2, 11_000, None, False)
    assert all(end is None or begin <= end for _, _, begin, end, _ in world.versions())


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize("has_own_file", [True, False])
def test_what_another_engine_merged_with_other_sources_rows_ends_as_well(
    world: LocalWorld, *, has_own_file: bool, is_bounded: bool
) -> None:
    """Such a file does not say whose rows it holds: eu's past was erased, or what had gone stayed open for ever."""
    eu, us = Sender(), Sender("us")
    world.applied(work(eu.one(insert(1, 1), insert(2, 2)), us.one(insert(1, 7), insert(9, 9))))
    world.applied(work(eu.one(update(1, 11)), us.one(update(1, 8))))
    world.merge_files(is_bounded=is_bounded)
    world.applied(work(eu.one(insert(3, 3))) if has_own_file else work())
    before = set(world.versions())
    copy_again(world, (1, 11, "b"), (4, 4, "b"))
    gone = {row for row in before if row[0] in (2, 3)}
    assert len(gone) == 1 + has_own_file
    expected = (before - gone) | {(*row[:3], COPIED, True) for row in gone} | {(4, 4, COPIED, None, False)}
    assert set(world.versions()) == expected
    world.applied(work(Sender("us", start=20_000).one(update(1, 70), delete(9))))
    assert {row[3:] for row in world.versions() if row[:2] in {(1, 8), (9, 9)}} == {
        (201_000, False), (201_000, True),
    }, "the index knows where the other source's versions are"  # fmt: skip
    assert world.orphans() == []


def test_a_source_of_which_a_merged_file_has_dead_rows_alone_is_copied_as_ever(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1)), Sender("us").one(insert(2, 7))))
    world.merge_files()
    table, changeset = world.loaded(), Changeset()
    with table.lock:
        table.follow()
        (entry,) = table.index.files
        mine = table.index.sources.rows_in(entry.path, "eu")
        changeset.delete(np.full(len(mine), entry.number, np.uint32), mine)
        table.commits.make(changeset, {})
    copy_again(world, (1, 1, "b"))
    assert world.versions() == [(1, 1, None, None, False), (2, 7, 11_000, None, False)]


def test_a_source_of_which_a_merged_file_has_no_row_is_copied_as_ever(world: LocalWorld) -> None:
    world.applied(work(Sender().one(insert(1, 1)), Sender("us").one(insert(1, 7))))
    world.merge_files()
    world.lake.prepare(target(table_type=TableType.HISTORY), feed("ie"), ITEMS)
    world.lake.copy(
        feed("ie"), ITEMS, [Lines(((5, 5, "b"),))], SourcePosition(lsn=10_000, taken_us=9), lambda *_: None
    )
    assert world.versions()[-1] == (5, 5, None, None, False), "it is not known since when"
