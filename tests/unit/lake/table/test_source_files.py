"""Whose rows a file holds, what a TRUNCATE takes, and what becomes of a transaction that is whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kuvasz.errors import LakeError
from kuvasz.index.positions import ABSENT
from kuvasz.lake.files.data_file import DataFile, writing
from kuvasz.lake.files.files import Changeset, FileEntry
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.ports import Target
from tests.support.lake_table import World, at, file_of, keys_of


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


def shared_file(folder: Path, name: str, *sids: str | None) -> DataFile:
    """Write a file with a row of each sid."""
    schema = pa.schema([pa.field("sid", pa.string(), metadata={b"PARQUET:field_id": "2"})])
    with writing({}, f"file://{folder}/{name}.parquet", schema, ["sid"]) as writer:
        writer.write(pa.table([pa.array(sids, pa.string())], schema=schema))
        return writer.close()


def test_a_truncate_takes_the_rows_of_its_source_out_of_shared_files(tmp_path: Path) -> None:
    world = World(tmp_path, target=Target(name="shop.items", has_sid=True))
    committed, fresh = shared_file(tmp_path, "a", "eu", "us", "eu"), shared_file(tmp_path, "b", "us", "eu", None)
    world.add(committed.path, 1, 2, 3)
    index, changeset = world.table.index, Changeset()
    index.places  # noqa: B018 (files are known with it)
    (number,) = index.add_files([fresh], changeset, None)
    index.sources.truncate("eu", "eu", changeset)
    assert {file: list(rows) for file, rows in changeset.deletes.items()} == {0: [0, 2], number: [1]}
    assert (changeset.dropped, set(changeset.added)) == (set(), {number})


def test_a_file_that_cannot_hold_a_source_is_not_read(tmp_path: Path) -> None:
    world = World(tmp_path, target=Target(name="shop.items", has_sid=True))
    index, changeset = world.table.index, Changeset()
    index.places  # noqa: B018 (files are known with it)
    index.files.add(FileEntry(number=0, path="nowhere", rows=2, sid=None, sids=("eu", "us")))
    index.sources.truncate("zz", "zz", changeset)
    assert not changeset.deletes
    with pytest.raises(LakeError, match=r"table shop\.items: file nowhere cannot be read: "):
        index.sources.truncate("ie", "ie", changeset)


def test_a_partition_of_one_source_alone_is_its_own_though_the_task_was_not(tmp_path: Path) -> None:
    world = World(tmp_path, target=Target(name="shop.items", has_sid=True))
    changeset = Changeset()
    files = [shared_file(tmp_path, "a", "eu", "eu"), shared_file(tmp_path, "b", "eu", "us"), file_of("c", 1)]
    world.table.index.add_files(files, changeset, None)
    assert [owner for _, owner in changeset.added.values()] == ["eu", None, None]


def test_a_file_is_of_the_source_whose_sid_it_has(tmp_path: Path) -> None:
    sources = World(tmp_path, target=Target(name="shop.items", has_sid=True)).table.index.sources
    assert (sources.is_of("a", "eu", "eu", "eu"), sources.is_of("a", "us", "eu", "eu")) == (True, False)
    alone = World(tmp_path).table.index.sources
    assert alone.is_of("a", None, "eu", "eu"), "there is no other source"
