"""Rows that no source's comparison looks at are counted, and no others."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.lake.compare import strays
from kuvasz.model import SourcePosition
from tests.support.changes import ITEMS, Lines, Sender, delete, feed, insert, target, work
from tests.support.local_lake import LocalWorld


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    """Three sources whose rows lie in one file, and a copy of one of them in a file of its own."""
    local_world.prepare("eu", "us", "ap")
    local_world.applied(work(*(Sender(name).one(insert(1), insert(2)) for name in ("eu", "us", "ap"))))
    local_world.copy("ap", (7, 7, "b"), (8, 8, "b"), lsn=9000)
    assert {entry.sid for entry in local_world.loaded().index.files} == {None, "ap"}
    return local_world


def count(world: LocalWorld, *sids: str | None) -> int:
    with world.loaded().lock:
        world.loaded().follow()
        return strays.count(world.jobs, world.loaded(), frozenset(sids))  # type: ignore[arg-type]


def test_rows_of_sources_that_feed_the_table_are_none(world: LocalWorld) -> None:
    assert count(world, "eu", "us", "ap") == 0


def test_rows_of_a_sid_that_nobody_has_are_counted_in_every_file(world: LocalWorld) -> None:
    assert count(world, "eu", "us") == 2
    assert count(world, "eu", "ap") == 2
    assert count(world, "eu") == 4
    assert count(world) == 6


def test_rows_that_are_dead_do_not_count(world: LocalWorld) -> None:
    world.applied(work(Sender("us", start=5000).one(delete(1)), Sender("ap", start=9000).one(delete(7))))
    assert count(world, "eu") == 2


def test_rows_of_a_source_table_that_is_no_member_any_more_are_counted(local_world: LocalWorld) -> None:
    wanted = dataclasses.replace(target(), has_members=True)
    for name in ("eu/11", "eu/12"):
        local_world.lake.prepare(wanted, feed(name, sid="eu"), ITEMS)
        rows = [Lines(((1, 1, name),))]
        local_world.lake.copy(feed(name, sid="eu"), ITEMS, rows, SourcePosition(lsn=1000), lambda *_: None)
    assert count(local_world, "eu") == 0
    del local_world.loaded().positions["eu/12"]
    assert count(local_world, "eu") == 1
