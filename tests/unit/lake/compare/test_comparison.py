"""A source's rows against those of a clone: what differs, key by key, run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kuvasz.errors import LakeError, SourceError
from kuvasz.fold.difference import Difference, DifferenceKind
from kuvasz.lake.compare import comparison as comparison_module
from kuvasz.lake.compare.comparison import Comparison, TooDifferent, batches, lake_files
from kuvasz.lake.executors.comparison_tasks import LakeFile, Reading, pairs
from tests.support.changes import ITEMS, Lines, Sender, delete, feed, insert, work
from tests.support.local_lake import LocalWorld


class Bench:
    """A table of two sources that share a file."""

    def __init__(self, world: LocalWorld, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.told: list[tuple[str, int, int]] = []
        world.prepare("eu", "us")
        eu, us = Sender(), Sender("us")
        world.applied(work(eu.one(*(insert(key, key) for key in range(1, 9))), us.one(insert(1, 7))))
        world.applied(work(eu.one(delete(8))))

    def files(self) -> list[LakeFile]:
        table = self.world.loaded()
        with table.lock:
            table.follow()
            return lake_files(table.index.files, "eu", "eu", has_sid=True)

    def against(self, *rows: tuple, fails: bool = False) -> Comparison:
        shape = self.world.loaded().columns.shapes.of(feed(), ITEMS)
        reading = Reading(shape=shape, properties={}, chunk_bytes=100)
        jobs: Any = self.world.jobs
        requests: Any = [Lines(rows[::2]), Lines(rows[1::2], fails=fails)]
        return Comparison(jobs, reading, requests, self.files(), parallelism=2, folder=self.folder,
                          on_progress=lambda *told: self.told.append(told))  # fmt: skip


EQUAL = [(key, key, "b") for key in range(1, 8)]


@pytest.fixture
def bench(local_world: LocalWorld, tmp_path: Path) -> Bench:
    folder = tmp_path / "spill"
    folder.mkdir()
    return Bench(local_world, folder)


def told(comparison: Comparison, found: Difference) -> dict[str, DifferenceKind]:
    texts = comparison.key_values(found.keys, "lake") | comparison.key_values(found.keys, "source")
    return {texts[number][0]: DifferenceKind(kind) for number, kind in enumerate(found.kinds.tolist())}


def test_equal_sides_have_no_difference_and_no_row_is_listed(bench: Bench) -> None:
    comparison = bench.against(*EQUAL)
    assert len(comparison.difference()) == 0
    assert comparison.rows == {"source": 7, "lake": 7}
    assert {phase for phase, *_ in bench.told} == {"sum up the source", "sum up the lake"}
    assert bench.told[-1][1:] == (1, 1)


def test_each_way_to_differ_is_told_with_its_key(bench: Bench) -> None:
    rows = [(1, 99, "b"), *EQUAL[2:], (20, 20, "b")]
    comparison = bench.against(*rows)
    found = comparison.difference()
    kinds = {"1": DifferenceKind.CHANGED, "2": DifferenceKind.EXTRA, "20": DifferenceKind.MISSING}
    assert told(comparison, found) == kinds
    assert comparison.shown == ("id",)


def test_the_places_of_the_lakes_rows_are_theirs(bench: Bench) -> None:
    found = bench.against(*EQUAL[1:]).difference()
    (number,) = found.files.tolist()
    assert bench.world.loaded().index.files[number].sid is None, "the file that both sources share"
    assert found.places.tolist() == [0]


def test_some_keys_are_compared_alone(bench: Bench) -> None:
    comparison = bench.against((1, 99, "b"), *EQUAL[2:])
    every = comparison.difference()
    some = every.keys.take(np.array([0]))
    assert len(comparison.difference_of(some)) == 1


def test_what_was_put_on_disk_is_gone_then(bench: Bench) -> None:
    comparison = bench.against(*EQUAL[1:])
    comparison.difference()
    comparison.close()
    assert list(bench.folder.iterdir()) == []


def test_too_many_differences_are_a_case_for_a_copy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_module, "MOST_KEYS", 3)
    with pytest.raises(TooDifferent):
        bench.against((50, 1, "b")).difference()


def test_rows_are_fetched_as_files_that_may_be_thrown_away(bench: Bench) -> None:
    rows = [(1, 99, "b"), *EQUAL[2:], (20, 20, "b")]
    comparison = bench.against(*rows)
    found = comparison.difference()
    wanted = found.keys.take(found.kinds != DifferenceKind.EXTRA)
    before = bench.world.orphans()
    fetched = comparison.fetch(wanted, bench.world.loaded())
    assert sum(file.rows for file, _ in pairs(fetched)) == 2
    assert len(bench.world.orphans()) > len(before)
    comparison.discard(fetched)
    assert bench.world.orphans() == before


def test_a_side_that_cannot_be_read_ends_it(bench: Bench) -> None:
    with pytest.raises(SourceError, match="the connection to eu was lost"):
        bench.against(*EQUAL, fails=True).difference()


def test_a_file_that_went_meanwhile_is_told(bench: Bench) -> None:
    comparison = bench.against(*EQUAL)
    for file in bench.files():
        Path(file.path.removeprefix("file://")).unlink()
    with pytest.raises(LakeError, match="a data file went while it was being compared"):
        comparison.difference()


def test_a_files_rank_is_its_age(bench: Bench) -> None:
    bench.world.copy("us", (1, 1, "b"), lsn=9000)
    bench.world.applied(work(Sender(start=5000).one(insert(30))))
    files = bench.files()
    assert all(file.is_mixed for file in files[:1])
    assert sorted(file.rank for file in files) == list(range(len(files)))
    newest = max(files, key=lambda file: file.rank)
    assert newest.path.endswith(".parquet")
    assert not any(bench.world.loaded().index.files[file.number].sid == "us" for file in files)


def test_small_files_are_read_together() -> None:
    def file(number: int, rows: int) -> LakeFile:
        return LakeFile(number=number, path=str(number), rows=rows, dead=None, is_mixed=False)

    files = [file(1, 3), file(2, 50), file(3, 4), file(4, 30)]
    found = [[one.number for one in batch.files] for batch in batches(files, 40)]
    assert found == [[2], [4, 3, 1]]
    assert batches([]) == []
