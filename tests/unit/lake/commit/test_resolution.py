"""Rows that jobs have written enter a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kuvasz.errors import TableError
from kuvasz.index import bulk
from kuvasz.index.positions import ABSENT
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.model import TableType
from tests.support.lake_table import World, file_of, keys_of


def chunk(
    path: str, keys: list[int], written: list[int], waits_for: list[int] | None = None, rows: int = 0
) -> ChunkDone:
    """Return what came of a chunk; rows behind those of its file wait."""
    files = (file_of(path, rows),) if rows else ()
    sources = None if waits_for is None else keys_of(*waits_for)
    return ChunkDone(files=files, keys=keys_of(*keys), written=np.array(written, np.int32), sources=sources)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A clone with the keys 1 to 3 in file 0."""
    world = World(tmp_path)
    world.add("a", 1, 2, 3)
    assert world.places(1, 2, 3) == [(0, 0), (0, 1), (0, 2)]
    return world


def take(world: World, done: ChunkDone, layer: Changeset, waiting: int = 99):
    return Resolution(world.table.rows, layer).apply(done, "eu", waiting, layer, None)


def test_earlier_versions_die_and_new_ones_are_known(world: World) -> None:
    changeset = Changeset()
    assert take(world, chunk("b", [2, 3, 4], [1, -1, 0], rows=2), changeset) is None
    assert {number: list(rows) for number, rows in changeset.deletes.items()} == {0: [1, 2]}
    ((number, (file, _)),) = changeset.added.items()
    assert file.path == "b"
    assert world.places(1, 2, 4) == [(0, 0), (number, 1), (number, 0)]


def test_where_rows_only_come_nothing_dies(tmp_path: Path) -> None:
    world = World(tmp_path, TableType.APPEND)
    changeset = Changeset()
    take(world, chunk("b", [1], [0], rows=1), changeset)
    take(world, chunk("c", [1], [0], rows=1), changeset)
    assert not changeset.deletes
    assert world.places(1) == [(max(changeset.added), 0)]


def test_an_open_transaction_keeps_its_rows_to_itself(world: World) -> None:
    pending = world.table.open["eu"] = OpenTransaction(1)
    take(world, chunk("b", [1], [0], rows=1), pending.changeset)
    assert world.places(1) == [(0, 0)]
    take(world, chunk("c", [1], [-1]), pending.changeset)
    (own,) = pending.changeset.added
    assert {number: list(rows) for number, rows in pending.changeset.deletes.items()} == {0: [0], own: [0]}


def test_rows_that_wait_need_their_earlier_versions(world: World) -> None:
    changeset = Changeset()
    earlier = take(world, chunk("b", [1], [0], waits_for=[1]), changeset, waiting=50)
    assert [found.tolist() for found in earlier] == [[0], [0]]
    assert world.places(1) == [(50, 0)]
    with pytest.raises(TableError, match="1 "):
        take(world, chunk("b", [7], [0], waits_for=[7]), changeset)


def test_rows_that_waited_go_where_they_belong(world: World) -> None:
    """Of three rows that wait one is deleted and one replaced by later chunks of the same commit."""
    changeset = Changeset()
    resolution = Resolution(world.table.rows, changeset)
    done = chunk("b", [1, 2, 3], [0, 1, 2], waits_for=[1, 2, 3])
    resolution.apply(done, "eu", 50, changeset, None)
    take(world, chunk("c", [2], [-1]), changeset)
    take(world, chunk("d", [3], [0], rows=1), changeset)
    replaced = world.places(3)
    completed = ChunkDone(files=(file_of("p", 1), file_of("q", 2)), written=np.array([1, 0, 2], np.int32))
    files, rows = resolution.complete(50, done, completed, "eu", changeset, None)
    p, q = (number for number, (file, _) in changeset.added.items() if file.path in "pq")
    assert list(zip(files.tolist(), rows.tolist(), strict=True)) == [(q, 0), (p, 0), (q, 1)]
    assert world.places(1) == [(q, 0)]
    assert world.places(3) == replaced
    assert {number: list(dead) for number, dead in changeset.deletes.items()} == {0: [0, 1, 2], p: [0], q: [1]}


def test_copied_files_are_adopted(world: World) -> None:
    changeset = Changeset()
    numbered = [(7, file_of("c", 2)), (8, file_of("d", 1))]
    Resolution(world.table.rows, changeset).adopt(numbered, [keys_of(5, 6), keys_of(7)], None)
    assert set(changeset.added) == {7, 8}
    assert world.places(5, 6, 7) == [(7, 0), (7, 1), (8, 0)]
    Resolution(world.table.rows, changeset).adopt_sorted([(9, file_of("e", 1))], [bulk.of_one_file(keys_of(8))], None)
    assert world.places(8) == [(9, 0)]


def test_copied_files_of_a_table_without_a_key_are_counted(tmp_path: Path) -> None:
    world = World(tmp_path, key=())
    assert world.table.definition.is_bag
    changeset = Changeset()
    Resolution(world.table.rows, changeset).adopt([(7, file_of("c", 3))], [keys_of(5, 5, 6)], None)
    assert world.table.index.places.entries == 3, "equal rows are told apart"


def test_where_no_key_is_known_nothing_is_indexed(tmp_path: Path) -> None:
    world = World(tmp_path, TableType.APPEND, key=())
    changeset = Changeset()
    Resolution(world.table.rows, changeset).adopt([(7, file_of("c", 1))], [], None)
    assert set(changeset.added) == {7}
    assert world.places(5) == [(ABSENT, ABSENT)]
