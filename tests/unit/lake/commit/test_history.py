"""Versions of a history that end and begin, upon real files, without Spark."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.errors import SchemaError
from kuvasz.model import SourcePosition, TableType
from tests.support.changes import ITEMS, SAME, TARGET, Lines, Sender, delete, feed, insert, target, update, work
from tests.support.local_lake import LocalWorld


class Clock(Sender):
    """A source whose commits have the times that are asked for."""

    def at(self, us: int, *messages: bytes, lsn: int = 0, is_open: bool = False):
        segment = self.segment([(lsn or self.commit_lsn(), messages)], is_open=is_open)
        segment.transactions.commit_us[:] = us
        return segment


@pytest.fixture
def world(history_world: LocalWorld) -> LocalWorld:
    return history_world


def test_a_change_ends_a_version_and_begins_the_next(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1), insert(2, 2))))
    world.applied(work(eu.at(20, update(1, 11)), eu.at(30, delete(2))))
    assert world.versions() == [(1, 1, 10, 20, False), (1, 11, 20, None, False), (2, 2, 10, 30, True)]


def test_versions_that_begin_and_end_together_are_all_there(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(
        work(eu.at(10, insert(1, 1)), eu.at(20, update(1, 2)), eu.at(30, delete(1)), eu.at(40, insert(1, 3)))
    )
    expected = [(1, 1, 10, 20, False), (1, 2, 20, 30, True), (1, 3, 40, None, False)]
    assert world.versions() == expected


def test_of_one_transaction_the_last_change_of_a_key_counts(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1), update(1, 2), insert(2, 1), delete(2))))
    assert world.versions() == [(1, 2, 10, None, False)]


def test_a_large_value_that_did_not_change_comes_from_the_version_before(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1, "large"))))
    world.applied(work(eu.at(20, update(1, 2, SAME))))
    world.applied(work(eu.at(30, update(1, 3, SAME))))
    assert [row[1:4] for row in world.versions()] == [(1, 10, 20), (2, 20, 30), (3, 30, None)]
    assert set(world.table(TARGET).column("body").to_pylist()) == {"large"}


def test_a_clock_that_was_set_back_turns_no_version_round(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(100, insert(1, 1))))
    world.applied(work(eu.at(40, update(1, 2)), eu.at(50, update(1, 3))))
    found = world.versions()
    assert all(begin <= (end or begin) for _, _, begin, end, _ in found)
    assert [(n, begin, end) for _, n, begin, end, _ in found][-1] == (3, 100, None)
    world.applied(work(eu.at(60, delete(1))))
    assert all(end is not None for *_, end, _ in world.versions()), "it is gone, at whatever time"


def test_a_truncate_ends_what_is_open_of_its_source(world: LocalWorld) -> None:
    eu, us = Clock(), Clock("us")
    world.applied(work(eu.at(10, insert(1, 1), insert(2, 2)), us.at(10, insert(3, 3))))
    world.applied(work(eu.at(20, update(1, 11))))
    gone = eu.truncation()
    world.applied(work(gone))
    us_of_gone = gone.commit_us
    assert world.versions() == [
        (1, 1, 10, 20, False), (1, 11, 20, us_of_gone, True), (2, 2, 10, us_of_gone, True), (3, 3, 10, None, False),
    ]  # fmt: skip
    world.applied(work(eu.at(us_of_gone + 5, insert(1, 5))))
    assert world.versions()[2] == (1, 5, us_of_gone + 5, None, False)


def test_a_truncate_ends_what_is_open_in_files_that_another_engine_merged(world: LocalWorld) -> None:
    eu, us = Clock(), Clock("us")
    world.applied(work(eu.at(10, insert(1, 1), insert(2, 2)), us.at(10, insert(3, 3), insert(4, 4))))
    world.merge_files()
    gone = eu.truncation()
    world.applied(work(gone))
    us_of_gone = gone.commit_us
    assert world.versions() == [
        (1, 1, 10, us_of_gone, True), (2, 2, 10, us_of_gone, True), (3, 3, 10, None, False), (4, 4, 10, None, False),
    ]  # fmt: skip
    world.applied(work(us.at(30, update(3, 33), delete(4))))
    assert world.versions()[2:] == [(3, 3, 10, 30, False), (3, 33, 30, None, False), (4, 4, 10, 30, True)]


def test_truncates_of_two_sources_meet_in_one_merged_file(world: LocalWorld) -> None:
    eu, us = Clock(), Clock("us")
    world.applied(work(eu.at(10, insert(1, 1)), us.at(10, insert(3, 3))))
    world.merge_files()
    ends = [eu.truncation(), us.truncation()]
    world.applied(work(*ends))
    assert [row[3:] for row in world.versions()] == [(one.commit_us, True) for one in ends]
    assert world.orphans() == []


def test_a_transaction_in_parts_counts_at_its_end(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1, "large"), insert(2, 2))))
    lsn = eu.commit_lsn()
    world.applied(work(eu.at(20, update(1, 5), insert(3, 3), lsn=lsn, is_open=True), open_sources=["eu"]))
    before = [(1, 1, 10, None, False), (2, 2, 10, None, False)]
    assert world.versions() == before
    world.applied(work(eu.at(20, update(1, 6), delete(2), delete(3), lsn=lsn, is_open=True), open_sources=["eu"]))
    assert world.versions() == before
    world.applied(work(eu.at(20, insert(4, 4), lsn=lsn)))
    assert world.versions() == [
        (1, 1, 10, 20, False), (1, 6, 20, None, False), (2, 2, 10, 20, True), (4, 4, 20, None, False),
    ]  # fmt: skip
    assert world.orphans() == []


def test_a_truncate_within_a_transaction_in_parts_takes_its_own_rows_too(world: LocalWorld) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1))))
    lsn = eu.commit_lsn()
    gone = eu.truncation(lsn, is_open=True)
    us = gone.commit_us
    world.applied(work(eu.at(us, insert(2, 2), lsn=lsn, is_open=True), gone,
                       eu.at(us, insert(3, 3), lsn=lsn, is_open=True), open_sources=["eu"]))  # fmt: skip
    assert world.versions() == [(1, 1, 10, None, False)]
    world.applied(work(eu.at(us + 1, insert(4, 4)), through={"eu": lsn + 8}))
    assert world.versions() == [(1, 1, 10, us, True), (3, 3, us, None, False), (4, 4, us + 1, None, False)]
    assert world.orphans() == []


def test_a_task_that_fails_leaves_no_file_and_no_version(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    eu = Clock()
    world.applied(work(eu.at(10, insert(1, 1))))
    known = world.orphans()
    written = world.lake.write([work(eu.at(20, update(1, 2)))])
    monkeypatch.setattr("kuvasz.lake.executors.history_tasks.read_scattered", _fail)
    (failure,) = world.commit(written)
    assert "torn" in str(failure.error)
    assert world.versions() == [(1, 1, 10, None, False)]
    assert world.orphans() == known


def _fail(*_: object) -> None:
    raise ValueError("torn")


def test_a_first_copy_is_there_from_the_beginning_of_time(world: LocalWorld) -> None:
    at = SourcePosition(lsn=1000)
    world.lake.prepare(target("shop.other", table_type=TableType.HISTORY), feed(name="shop.other"), ITEMS)
    world.lake.copy(feed(name="shop.other"), ITEMS, [Lines(((1, 1, "b"),))], at, lambda *_: None)
    assert world.versions("shop.other") == [(1, 1, None, None, False)]


def test_a_key_of_another_type_ends_its_versions_by_a_copy_alone(local_world: LocalWorld) -> None:
    """The map has the key be a text: versions of before have it in `id__old`, where no change of a row finds them."""
    columns = tuple(dataclasses.replace(one, attnum=place) for place, one in enumerate(ITEMS.columns, 1))
    table = dataclasses.replace(ITEMS, columns=columns, attributes=len(columns), file=1)
    numbers = target(table_type=TableType.HISTORY)
    texts = dataclasses.replace(numbers, types={"id": "string"})
    local_world.lake.prepare(numbers, feed(), table)
    local_world.copy("eu", (1, 0, "one"), relation=table)
    with pytest.raises(SchemaError, match="column id was given another type, and rows are identified by it"):
        local_world.lake.prepare(texts, feed(), table)
    local_world.lake.forget(TARGET, "eu")
    local_world.lake.prepare(texts, feed(), table)
    local_world.copy("eu", (1, 0, "one"), lsn=2000, relation=table)
    local_world.applied(work(Sender(relation=table, start=2000).one(update(1, 1, "two"))))
    is_open = [row for row in local_world.table(TARGET).to_pylist() if row["kvsz_end"].year == 9999]
    assert [(row["id"], row["n"]) for row in is_open] == [("1", 1)]
