"""Whose rows a file holds, what a TRUNCATE takes, and what becomes of a transaction that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import TableError
from kuvasz.index.positions import ABSENT
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.ports import Target
from tests.support.lake_table import World, at, keys_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A clone with the keys 1 to 3 in file 0."""
    world = World(tmp_path)
    world.add("a", 1, 2, 3)
    return world


def test_rows_of_a_transaction_are_everybodys_once_it_is_whole(world: World) -> None:
    pending = world.table.open["eu"] = OpenTransaction(1)
    world.table.index.insert(keys_of(2), at(9), at(0), pending)
    pending.changeset.delete(at(0), at(1))
    changeset = Changeset()
    world.table.index.sources.conclude("eu", changeset)
    assert (world.places(2), world.table.open) == ([(9, 0)], {})
    assert {number: list(rows) for number, rows in changeset.deletes.items()} == {0: [1]}


def test_a_truncate_takes_whole_files_of_one_source(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add("a", 1)
    world.add("b", 2)
    index, changeset = world.table.index, Changeset()
    index.places  # noqa: B018 (files are known with it)
    index.sources.truncate("eu", None, changeset)
    assert changeset.dropped == {0, 1}
    assert world.places(1, 2) == [(ABSENT, ABSENT)] * 2


def test_a_truncate_in_an_open_transaction_shows_with_its_end(world: World) -> None:
    pending = world.table.open["eu"] = OpenTransaction(1)
    index, changeset = world.table.index, Changeset()
    index.insert(keys_of(2), at(9), at(0), pending)
    index.sources.truncate("eu", None, pending.changeset)
    assert (world.places(1), world.places(1, 2, pending=pending)) == ([(0, 0)], [(ABSENT, ABSENT)] * 2)
    index.sources.conclude("eu", changeset)
    assert (changeset.dropped, world.places(1)) == ({0}, [(ABSENT, ABSENT)])


def test_a_file_of_several_sources_cannot_be_truncated(tmp_path: Path) -> None:
    world = World(tmp_path, target=Target(name="shop.items", has_sid=True))
    world.add("a", 1)
    world.table.index.places  # noqa: B018 (files are known with it)
    with pytest.raises(TableError, match="a TRUNCATE at source eu meets files that hold several sources' rows"):
        world.table.index.sources.truncate("eu", "eu", Changeset())


def test_a_file_is_of_the_source_whose_sid_it_has(tmp_path: Path) -> None:
    sources = World(tmp_path, target=Target(name="shop.items", has_sid=True)).table.index.sources
    assert (sources.is_of("a", "eu", "eu", "eu"), sources.is_of("a", "us", "eu", "eu")) == (True, False)
    alone = World(tmp_path).table.index.sources
    assert alone.is_of("a", None, "eu", "eu"), "there is no other source"
