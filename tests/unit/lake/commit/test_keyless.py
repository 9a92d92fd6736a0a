"""Rows without a key: of equal ones the last copies go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kuvasz.errors import TableError
from kuvasz.lake.commit.keyless import KeylessRows
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.open_transactions import OpenTransaction
from kuvasz.lake.table.row_counts import RowCounts
from tests.support.lake_table import World, file_of, keys_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    """File 0 has the rows 1, 1 and 2."""
    world = World(tmp_path, key=())
    world.add("a", 1, 1, 2)
    return world


def change(path: str, **delta: int) -> ChunkDone:
    """Return what came of a chunk: `k1=-1` means that of row 1 there is one less."""
    keys, counts = keys_of(*(int(name[1:]) for name in delta)), np.array([*delta.values()], np.int32)
    more = np.maximum(counts, 0)
    files = (file_of(path, int(more.sum())),) if more.any() else ()
    written = np.where(more > 0, np.cumsum(more) - more, -1).astype(np.int32)
    return ChunkDone(files=files, keys=keys, written=written, delta=counts)


def take(world: World, done: ChunkDone, layer: Changeset, pending: OpenTransaction | None = None) -> None:
    KeylessRows("shop.items", world.table.index, (layer,), pending).apply(done, lambda _: "eu", None)


def count(world: World, layer: Changeset, *rows: int) -> list[int]:
    index = world.table.index
    return RowCounts(index.places.lookup, index.files, (layer,)).of(keys_of(*rows)).tolist()


def test_copies_go_and_come(world: World) -> None:
    layer = Changeset()
    take(world, change("b", k1=-1, k2=2, k3=1), layer)
    assert count(world, layer, 1, 2, 3) == [1, 3, 1]
    assert {number: list(rows) for number, rows in layer.deletes.items()} == {0: [1]}, "the last copy goes"
    take(world, change("c", k1=-1, k3=-1), layer)
    assert count(world, layer, 1, 2, 3) == [0, 3, 0]


def test_a_row_that_is_not_there_cannot_go(world: World) -> None:
    with pytest.raises(TableError, match="2 rows that were changed or deleted are not in the lake") as caught:
        take(world, change("b", k1=-3, k4=-1), Changeset())
    assert "kuvasz resync --table shop.items" in caught.value.hint


def test_an_open_transaction_keeps_its_rows_to_itself(world: World) -> None:
    pending = world.table.open["eu"] = OpenTransaction(1)
    take(world, change("b", k1=1, k2=-1), pending.changeset, pending)
    assert count(world, Changeset(), 1, 2) == [2, 1]
    take(world, change("c", k1=-3), pending.changeset, pending)
    changeset = Changeset()
    world.table.index.sources.conclude("eu", changeset)
    assert count(world, changeset, 1, 2) == [0, 0]
