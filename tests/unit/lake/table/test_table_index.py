"""Where rows are: what is committed, and what an open transaction has over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64

from kuvasz.errors import TableError
from kuvasz.index.positions import ABSENT
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.model import TableType
from tests.support.lake_table import World, at, file_of, keys_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A clone with the keys 1 to 3 in file 0."""
    world = World(tmp_path)
    world.add("a", 1, 2, 3)
    return world


def test_it_is_read_at_its_first_use(world: World) -> None:
    index = world.table.index
    assert (index.is_open, world.read) == (False, [])
    assert world.places(1, 4) == [(0, 0), (ABSENT, ABSENT)]
    assert (index.is_open, world.read) == (True, ["a"])


def test_an_open_transaction_sees_its_own_rows_first(world: World) -> None:
    pending, index = OpenTransaction(1), world.table.index
    index.insert(keys_of(2, 4), at(9, 9), at(0, 1), pending)
    assert world.places(1, 2, 4, pending=pending) == [(0, 0), (9, 0), (9, 1)]
    assert world.places(1, 2, 4) == [(0, 0), (0, 1), (ABSENT, ABSENT)]
    pending.truncates = (None,)
    assert world.places(1, 2, pending=pending) == [(ABSENT, ABSENT), (9, 0)], (
        "what was there before went with the TRUNCATE"
    )


def test_an_earlier_version_has_to_be_there_and_alive(world: World) -> None:
    index = world.table.index
    assert [part.tolist() for part in index.find_earlier(keys_of(3), "eu")] == [[0], [2]]
    index.files.find("a").dead = BitMap64([2])
    with pytest.raises(TableError):
        index.find_earlier(keys_of(3), "eu")
    with pytest.raises(TableError):
        index.find_earlier(keys_of(8), "eu")


def test_rows_are_alive_until_they_or_their_files_go(world: World) -> None:
    index, changeset = world.table.index, Changeset()
    changeset.add(5, file_of("new", 1), None)
    index.places  # noqa: B018 (files are known with it)
    index.files.find("a").dead = BitMap64([1])
    files, rows = index.files.alive(at(0, 0, 4, 5, ABSENT), at(0, 1, 0, 0, 0), changeset)
    assert (files.tolist(), rows.tolist()) == ([0, ABSENT, ABSENT, 5, ABSENT], [0, 1, 0, 0, 0])


def test_undo_takes_back_what_no_commit_has_shown(world: World) -> None:
    index = world.table.index
    index.places.insert(keys_of(1), at(9), at(0))
    index.undo()
    assert world.places(1) == [(0, 0)]
    index.places.insert(keys_of(1), at(9), at(0))
    index.places.mark()
    index.note(1, 1)
    index.undo()
    assert world.places(1) == [(9, 0)]


def test_a_reading_that_fails_leaves_nothing_half_known(world: World) -> None:
    index, keys = world.table.index, world.keys.pop("a")
    with pytest.raises(KeyError):
        index.places  # noqa: B018 (it is read now)
    assert (index.is_open, len(index.files)) == (False, 0)
    world.keys["a"] = keys
    assert world.places(3) == [(0, 2)]


def test_where_rows_are_numbered_anew_open_transactions_begin_again(tmp_path: Path) -> None:
    world = World(tmp_path, TableType.CLONE, key=())
    world.add("a", 1)
    pending = world.table.open["eu"] = OpenTransaction(1)
    world.table.index.places  # noqa: B018 (it is read now)
    world.table.index.reset()
    assert pending.is_void
    world.table.index.clear()
    assert not world.table.index.is_open
