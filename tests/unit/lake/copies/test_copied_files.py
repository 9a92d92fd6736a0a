"""The files of one copy: read range by range, and gone if it comes to nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kuvasz.errors import SourceError, SourceSlow
from kuvasz.lake.copies import copied_files
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.model import Relation
from kuvasz.ports import ANY_PACE, AnyPace, CopyPace
from tests.support.changes import ITEMS, Lines, feed, target
from tests.support.local_lake import LocalWorld
from tests.support.shapes import KEYLESS, pairs

RANGES = [Lines(((1, 1, "a"), (2, 2, "b"))), Lines(((3, 3, "c"),)), Lines(())]


def begin(world: LocalWorld, folder: Path, relation: Relation = ITEMS, pace: CopyPace = ANY_PACE) -> CopiedFiles:
    world.lake.prepare(target(), feed(), relation)
    keys = folder / "keys"
    keys.mkdir()
    with world.lake._order(feed(), relation, "copy", pace) as order:
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


@dataclasses.dataclass(frozen=True)
class Slow(Lines):
    """Rows that come slowly."""

    told: list[str] = dataclasses.field(default_factory=list)
    is_hurried: bool = False

    @property
    def size(self) -> int:
        return 2 << 20  # more than is read by whoever copies it

    def bounded(self, most_bytes: int) -> Slow:
        return self

    def hurried(self) -> Slow:
        return dataclasses.replace(self, is_hurried=True)

    def read(self, chunk_bytes: int) -> Iterator[bytes]:
        self.told.append("hurried" if self.is_hurried else "here")
        for line in super().read(chunk_bytes):
            yield line
            if self.is_hurried:
                raise SourceSlow("its rows come slowly")


class Noted(AnyPace):
    """A pace that takes note."""

    is_slow = False

    def note_slow(self, *, is_slow: bool) -> None:
        self.is_slow = is_slow


@pytest.mark.parametrize("is_fast", [False, True])
def test_rows_that_come_slowly_are_read_where_no_core_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, local_world: LocalWorld, tmp_path: Path, *, is_fast: bool
) -> None:
    """One that is fast by then goes on where the others are read."""
    monkeypatch.setattr(copied_files, "_FAST_BYTES_PER_S", 0 if is_fast else 1 << 60)
    copied, told = begin(local_world, tmp_path, pace=Noted()), []
    local_world.jobs.parallelism = 1
    copied.read([Slow(((1, 1, "a"), (2, 2, "b")), told=told), Slow(((3, 3, "c"),), told=told)], 1000, lambda *_: None)
    assert told == ["hurried", "here", *(["hurried"] if is_fast else []), "here"]
    assert ids(copied) == [1, 2, 3]
    data = Path(copied.files[0].path.removeprefix("file://")).parent
    assert len(list(data.iterdir())) == len(copied.files), "what was begun in vain is gone"


class SlowAndSmall(Slow):
    size = 100


def test_small_ones_that_come_slowly_have_no_small_ones_wait_either(local_world: LocalWorld, tmp_path: Path) -> None:
    """A source with a schema per tenant has as many at a time as there are turns for all sources."""
    pace = Noted()
    copied, told = begin(local_world, tmp_path, pace=pace), []
    local_world.jobs.parallelism = 1
    rows = ((1, 1, "a"), (2, 2, "b"))
    copied.read([SlowAndSmall(rows, told=told), SlowAndSmall(((3, 3, "c"),), told=told)], 1000, lambda *_: None)
    assert (told, pace.is_slow) == (["hurried", "here", "here"], True)
    assert ids(copied) == [1, 2, 3]


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
