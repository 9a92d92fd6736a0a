"""Copies of one table that are ready at a time become visible together, and none fails for another one."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kuvasz.errors import ForeignChange, LakeError, LakeRewound, OutcomeUnknown, TableError, TableStuck
from kuvasz.lake.copies import copy_commits
from kuvasz.lake.copies.copy_commits import CopiedTable
from kuvasz.lake.table import table_lock
from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import Receipt
from tests.support.changes import ITEMS, Lines, Sender, feed, insert, target, work
from tests.support.local_lake import LocalWorld
from tests.support.waiting import wait_until

TENANTS = ("eu", "us", "asia")


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    local_world.prepare(*TENANTS)
    return local_world


def copied_at_once(world: LocalWorld, *sources: str) -> dict[str, Future[Any]]:
    """Have sources copied that all wait for the table by the time it is to be had."""
    with copying_at_once(world, *sources) as copies:
        return copies


@contextlib.contextmanager
def copying_at_once(world: LocalWorld, *sources: str) -> Iterator[dict[str, Future[Any]]]:
    """Do the same; they are over behind it."""
    lock, commits = world.loaded().lock, world.lake._copy_commits
    read, may_commit = threading.Semaphore(0), threading.Event()

    def on_read() -> None:
        read.release()
        assert may_commit.wait(30)

    def copy(number: int, source: str) -> Receipt:
        rows, position = Lines(((number, 10, source),)), SourcePosition(lsn=9000, taken_us=5000)
        return world.lake.copy(feed(source), ITEMS, [rows], position, lambda *_: None, on_read=on_read)

    with ThreadPoolExecutor(len(sources)) as pool:
        copies = {source: pool.submit(copy, number, source) for number, source in enumerate(sources)}
        for _ in sources:
            assert read.acquire(timeout=30)
        with lock:
            may_commit.set()
            wait_until(lambda: len(commits._waiting) == len(sources), "all of them wait for the table")
        yield copies


def test_those_that_wait_for_the_table_are_one_commit(world: LocalWorld) -> None:
    before = world.snapshots()
    for one in copied_at_once(world, *TENANTS).values():
        one.result()
    assert world.rows() == {("eu", 0): (10, "eu"), ("us", 1): (10, "us"), ("asia", 2): (10, "asia")}
    assert world.snapshots() == before + 1
    assert [world.position(source) for source in TENANTS] == [9000] * 3
    world.applied(work(Sender(start=9000).one(insert(0, 5))))
    assert world.of("eu") == {0: (5, "b")}, "its key is known"


def test_each_takes_the_place_of_its_own_sources_rows(world: LocalWorld) -> None:
    for source in TENANTS:
        world.copy(source, (7, 7, "old"))
    copied_at_once(world, "eu", "us")
    assert world.rows() == {("eu", 0): (10, "eu"), ("us", 1): (10, "us"), ("asia", 7): (7, "old")}


def test_columns_are_remembered_with_the_rows(local_world: LocalWorld) -> None:
    numbered = tuple(dataclasses.replace(column, attnum=n) for n, column in enumerate(ITEMS.columns, 1))
    relation, note = dataclasses.replace(ITEMS, columns=numbered), "kuvasz.columns.eu"
    local_world.lake.prepare(target(), feed(), relation)
    assert note not in local_world.stored().now.properties, "nothing of it is there yet"
    rows, position = Lines(((1, 10, "a"),)), SourcePosition(lsn=9000)
    local_world.lake.copy(feed(), relation, [rows], position, lambda *_: None)
    assert note in local_world.stored().now.properties


def test_one_that_is_refused_keeps_no_other_from_its_rows(world: LocalWorld) -> None:
    world.loaded().past._back["us"] = "someone set it back"
    copies = copied_at_once(world, *TENANTS)
    with pytest.raises(LakeRewound):
        copies["us"].result()
    assert world.rows() == {("eu", 0): (10, "eu"), ("asia", 2): (10, "asia")}
    assert world.orphans() == []


def test_all_fail_where_the_catalog_does_and_can_be_tried_again(world: LocalWorld) -> None:
    def refuse() -> None:
        raise LakeError("the catalog is away")

    world.stored().before_commit.append(refuse)
    for one in copied_at_once(world, *TENANTS).values():
        with pytest.raises(LakeError, match="the catalog is away"):
            one.result()
    assert world.rows() == {}
    copied_at_once(world, *TENANTS)
    assert len(world.rows()) == 3


def test_files_of_a_commit_of_which_nobody_knows_stay(world: LocalWorld) -> None:
    def lose() -> None:
        world.catalog.is_down = True
        raise OutcomeUnknown("the answer was lost")

    world.stored().after_commit.append(lose)
    for one in copied_at_once(world, *TENANTS).values():
        with pytest.raises(LakeError):
            one.result()
    world.catalog.is_down = False
    assert len(world.rows()) == 3, "it was made, and its files are there"


def test_a_history_that_is_copied_again_has_a_commit_of_its_own(local_world: LocalWorld) -> None:
    for source in ("eu", "us"):
        local_world.lake.prepare(target(table_type=TableType.HISTORY), feed(source), ITEMS)
    local_world.copy("eu", (0, 1, "a"))
    before = local_world.snapshots()
    for one in copied_at_once(local_world, "eu", "us").values():
        one.result()
    assert local_world.snapshots() == before + 2
    assert len(local_world.versions()) == 3


def test_those_that_come_while_another_one_is_committed_are_the_next_commit(world: LocalWorld) -> None:
    commits = world.lake._copy_commits
    is_committing, may_commit = threading.Event(), threading.Event()

    def hang() -> None:
        is_committing.set()
        assert may_commit.wait(30)

    world.stored().before_commit.append(hang)
    before = world.snapshots()
    with ThreadPoolExecutor(len(TENANTS)) as pool:
        first = pool.submit(world.copy, "eu", (0, 1, "a"))
        assert is_committing.wait(30)
        others = [pool.submit(world.copy, source, (1, 1, "b")) for source in ("us", "asia")]
        wait_until(lambda: len(commits._waiting) == 2, "the others are ready")
        may_commit.set()
        for one in (first, *others):
            one.result(30)
    assert world.snapshots() == before + 2, "both of them in one"
    assert commits._leading == {}
    assert len(world.rows()) == 3


def test_who_is_not_committed_in_time_is_committed_by_nobody(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_lock, "_WAIT_S", 0.05)
    lock, is_over = world.loaded().lock, threading.Event()

    def hold() -> None:
        with lock, lock.doubtful():
            is_over.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        with pytest.raises(TableStuck):
            world.copy("eu", (1, 1, "a"))
    finally:
        is_over.set()
        holder.join()
    world.copy("us", (2, 2, "b"))
    assert world.rows() == {("us", 2): (2, "b")}
    assert world.orphans() == []


def test_who_is_being_committed_waits_for_how_that_ends(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it to give up then, it would remove files that are about to be in the table."""
    monkeypatch.setattr(table_lock, "_LOOK_S", 0.05)
    may_commit, is_committing, leaving = threading.Event(), threading.Event(), threading.Semaphore(0)
    commits = world.lake._copy_commits
    leave = commits._leave

    def hang() -> None:
        is_committing.set()
        monkeypatch.setattr(table_lock, "_WAIT_S", 0.05)
        assert may_commit.wait(30)

    def seen_to_leave(copied: CopiedTable) -> bool:
        leaving.release()
        return leave(copied)

    monkeypatch.setattr(commits, "_leave", seen_to_leave)
    world.stored().before_commit.append(hang)

    def let_go() -> None:
        assert is_committing.wait(30)
        for _ in TENANTS[1:]:
            assert leaving.acquire(timeout=30), "the others know that it is not theirs any more"
        may_commit.set()

    letting_go = threading.Thread(target=let_go)
    letting_go.start()
    for one in copied_at_once(world, *TENANTS).values():
        one.result()
    letting_go.join()
    assert len(world.rows()) == 3


def hanging(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the next commit hang, and nobody wait long for it; returns what lets it go on."""
    may_commit = threading.Event()

    def hang() -> None:
        monkeypatch.setattr(table_lock, "_WAIT_S", 0.05)
        assert may_commit.wait(30)

    monkeypatch.setattr(copy_commits, "_LEAVE_S", 0.05)
    monkeypatch.setattr(table_lock, "_LOOK_S", 0.05)
    world.stored().before_commit.append(hang)
    return may_commit.set


def failed(copies: Mapping[str, Future[Any]]) -> list[BaseException]:
    return [error for one in copies.values() if one.done() and (error := one.exception()) is not None]


def test_who_is_being_committed_does_not_wait_for_ever(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that hangs kept the tasks of all its sources, and nothing of these went on."""
    go_on = hanging(world, monkeypatch)
    with copying_at_once(world, *TENANTS) as copies:
        wait_until(lambda: len(failed(copies)) == 2, "all but the one whose thread hangs are told")
        assert {type(error) for error in failed(copies)} == {TableStuck}
        assert {str(error) for error in failed(copies)} == {
            "table shop.items: catalog or store have not answered the commit of its copy\n"
            "hint: see what they wait for; it is copied again, and other tables go on"
        }
        monkeypatch.setattr(table_lock, "_WAIT_S", 10.0)
        go_on()
    assert len(world.rows()) == 3, "it is made in the end, with the files of those who left"
    world.copy("eu", (0, 1, "again"), lsn=9500)
    assert world.of("eu") == {0: (1, "again")}


def test_a_commit_that_is_worked_out_again_is_without_those_who_left(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their copies are read again: neither their rows nor their positions are known to anybody any more."""
    go_on = hanging(world, monkeypatch)
    conflict = world.stored().before_commit.pop()

    def refuse() -> None:
        conflict()
        raise ForeignChange("another writer was faster")

    world.stored().before_commit.append(refuse)
    with copying_at_once(world, *TENANTS) as copies:
        wait_until(lambda: len(failed(copies)) == 2, "all but the one whose thread hangs are told")
        monkeypatch.setattr(table_lock, "_WAIT_S", 10.0)
        go_on()
    (stayed,) = [source for source, one in copies.items() if one.exception() is None]
    assert {sid for sid, _ in world.rows()} == {stayed}
    assert [source for source in TENANTS if world.position(source) == 9000] == [stayed]
    assert [source for source, lsn in world.loaded().era.accepted.items() if lsn == 9000] == [stayed]
    assert world.orphans() == []


def test_whatever_fails_between_a_commit_and_its_answer_takes_no_file_away(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what nobody foresaw: seen in neglect, seed 991931, as a table that lacks a file and cannot be read."""
    commits = world.loaded().commits
    really = commits._table.commit

    def fail(commit: object) -> None:
        monkeypatch.undo()
        really(commit)  # type: ignore[arg-type]
        raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(commits._table, "commit", fail)
    for one in copied_at_once(world, *TENANTS).values():
        with pytest.raises(RuntimeError, match="nobody foresaw it"):
            one.result()
    world.loaded().table.refresh()
    assert len(world.rows()) == 3, "it was made"


def test_what_fails_behind_the_commit_takes_no_row_back(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int, __: int) -> None:
        monkeypatch.undo()
        raise TableError("the index cannot follow")

    monkeypatch.setattr(world.loaded().index, "note", fail)
    for one in copied_at_once(world, *TENANTS).values():
        with pytest.raises(TableError, match="the index cannot follow"):
            one.result()
    assert len(world.rows()) == 3, "it was made"


def test_nothing_is_put_in_the_place_of_rows(world: LocalWorld) -> None:
    world.copy("eu", (1, None, None), lsn=2000)
    before = world.rows()
    world.lake.forget("shop.items", "eu")
    skip = SourcePosition(lsn=3000, system_id="7001", is_skip=True)
    with pytest.raises(TableError, match="the lake has rows of it, which nothing would replace") as caught:
        world.lake.copy(feed("eu"), ITEMS, [], skip, lambda *_: None)
    assert caught.value.hint == "take `initial: skip` out of the map: it is copied then"
    assert world.rows() == before
    world.copy("eu", (2, None, None), lsn=4000)
    assert {key for sid, key in world.rows() if sid == "eu"} == {2}
