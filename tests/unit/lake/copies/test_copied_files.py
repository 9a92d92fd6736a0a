"""The files of one copy: read range by range, and gone if it comes to nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kuvasz.errors import SourceError
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.model import Relation
from tests.support.changes import ITEMS, Lines, feed, target
from tests.support.local_lake import LocalWorld
from tests.support.shapes import KEYLESS, pairs

RANGES = [Lines(((1, 1, "a"), (2, 2, "b"))), Lines(((3, 3, "c"),)), Lines(())]


def begin(world: LocalWorld, folder: Path, relation: Relation = ITEMS) -> CopiedFiles:
    world.lake.prepare(target(), feed(), relation)
    keys = folder / "keys"
    keys.mkdir()
    with world.lake._order(feed(), relation, "copy") as order:
        return CopiedFiles(order, order.shape(), keys)


def ids(copied: CopiedFiles) -> list[int]:
    paths = [file.path.removeprefix("file://") for file in copied.files]
    return sorted(value for path in paths for value in pq.read_table(path).column("id").to_pylist())


def test_every_range_is_read_and_told(local_world: LocalWorld, tmp_path: Path) -> None:
    copied, told = begin(local_world, tmp_path), []
    copied.read(RANGES, 1000, lambda done, rows: told.append((done, rows)))
    assert ids(copied) == [1, 2, 3]
    assert copied.rows == 3
    assert [done for done, _ in told] == [1, 2, 3]
    assert told[-1][1] == 3
    assert local_world.rows() == {}, "no snapshot knows them yet"


@pytest.mark.parametrize("is_local", [True, False])
def test_the_keys_of_each_file_wait_on_disk(local_world: LocalWorld, tmp_path: Path, *, is_local: bool) -> None:
    """Where executors are elsewhere they come back with the result."""
    local_world.jobs.is_local = is_local
    copied = begin(local_world, tmp_path, relation=KEYLESS)
    copied.read(RANGES, 1000, lambda *_: None)
    found = {file.rows: len(set(pairs(copied.keys.keys(file.path)))) for file in copied.files}
    assert found == {2: 2, 1: 1}


@pytest.mark.parametrize("relation", [ITEMS, KEYLESS])
def test_keys_are_sorted_only_where_the_index_takes_files_at_once(
    local_world: LocalWorld, tmp_path: Path, relation: Relation
) -> None:
    """The rows of a table without a key are counted one by one."""
    assert begin(local_world, tmp_path, relation=relation).keys.is_sorted is (relation is ITEMS)


def test_a_range_that_fails_ends_the_copy_and_nothing_is_left(local_world: LocalWorld, tmp_path: Path) -> None:
    copied = begin(local_world, tmp_path)
    with pytest.raises(SourceError, match="the connection to eu was lost"):
        copied.read([RANGES[0], Lines(((9, 9, "z"),), fails=True)], 1000, lambda *_: None)
    copied.remove(SourceError("lost"))
    assert local_world.orphans() == []


def test_files_that_may_be_in_the_table_are_kept(local_world: LocalWorld, tmp_path: Path) -> None:
    copied = begin(local_world, tmp_path)
    copied.read(RANGES, 1000, lambda *_: None)
    copied.keep()
    copied.remove(SourceError("lost"))
    assert len(local_world.orphans()) == 2
