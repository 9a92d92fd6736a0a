"""Both sides of a comparison as a task reads them, upon real files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from kuvasz.errors import LakeError, SourceError
from kuvasz.fold.digest import bucket_of
from kuvasz.fold.keys import Keys
from kuvasz.lake.executors.comparison_tasks import (
    Fetch,
    LakeFile,
    LakeFiles,
    List,
    NumberedRange,
    Reading,
    RunParts,
    Show,
    Summarize,
    pairs,
)
from kuvasz.lake.executors.tasks import from_ipc
from kuvasz.lake.files.data_file import write_rows
from kuvasz.lake.format.layout import PLAIN
from tests.support.changes import Lines, insert
from tests.support.shapes import CLONE, apply

ROWS = [(1, 10, "a"), (2, 20, "b"), (3, 30, "c"), (4, 40, None)]
READING = Reading(shape=CLONE, properties={}, chunk_bytes=100)


@pytest.fixture
def file(tmp_path: Path) -> LakeFile:
    """The same rows in the lake."""
    path = f"file://{tmp_path}/a.parquet"
    rows = apply(*(insert(*row) for row in ROWS), to=CLONE).rows
    ((written,), _) = write_rows({}, path, rows, (), PLAIN)
    return LakeFile(number=7, path=path, rows=written.rows, dead=None, is_mixed=False)


def run(job: Any, *parts: Any) -> list[Any]:
    outcomes = list(RunParts(job=job)(parts))
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.value for outcome in outcomes]


def source(*rows: tuple, fails: bool = False) -> Any:
    return Lines(rows, fails=fails)


def read(file: LakeFile) -> list[tuple[int, int]]:
    """Place and id of each row that is read."""
    return [
        (int(place), key)
        for rows in READING.rows(LakeFiles(files=(file,)))
        for place, key in zip(rows.places, rows.table.column("id").to_pylist(), strict=True)
    ]


def ids(*numbers: int) -> Keys:
    """Their keys, ascending."""
    found = CLONE.hash([pa.array(numbers, pa.int64())], len(numbers))
    return found.take(np.lexsort((found.lo, found.hi)))


def test_equal_rows_sum_up_alike_on_both_sides(file: LakeFile) -> None:
    mine, other = run(Summarize(reading=READING, buckets=8), source(*ROWS), LakeFiles(files=(file,)))
    assert len(mine.differing(other)) == 0
    (third,) = run(Summarize(reading=READING, buckets=8), source((1, 11, "a"), *ROWS[1:]))
    assert third.differing(other).tolist() == [int(bucket_of(ids(1), 8)[0])]


def test_dead_rows_are_not_read_and_the_others_keep_their_places(file: LakeFile) -> None:
    assert read(dataclasses.replace(file, dead=BitMap64([0, 2]).serialize())) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(("begin", "end", "expected"), [(1, 3, [(1, 2), (2, 3)]), (3, None, [(3, 4)]), (4, 4, [])])
def test_a_piece_of_a_file_is_read_alone(
    file: LakeFile, begin: int, end: int | None, expected: list[tuple[int, int]]
) -> None:
    assert read(dataclasses.replace(file, begin=begin, end=end)) == expected


def test_of_a_file_of_several_sources_only_the_sources_own_rows_are_read(file: LakeFile) -> None:
    other = dataclasses.replace(READING, shape=dataclasses.replace(CLONE, sid="us"))
    mixed = LakeFiles(files=(dataclasses.replace(file, is_mixed=True),))
    assert sum(len(rows.keys) for rows in READING.rows(mixed)) == 4
    assert list(other.rows(mixed)) == []


def test_rows_of_wanted_buckets_or_keys_are_listed_with_their_places(file: LakeFile) -> None:
    part = LakeFiles(files=(file,))
    (found,) = run(List(reading=READING, wanted=ids(2, 4), groups=1), part)
    assert (found[0].files.tolist(), sorted(found[0].places.tolist())) == ([7, 7], [1, 3])
    group_of = np.full(8, -1, np.int32)
    group_of[bucket_of(ids(3), 8)] = 5
    (found,) = run(List(reading=READING, group_of=group_of), part)
    assert 2 in found[5].places.tolist()
    assert found.keys() == {5}


def test_wanted_rows_are_written_with_their_keys(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/fetched-{{}}.parquet"
    job = Fetch(reading=READING, wanted=ids(2, 3), bounded=(), layout=PLAIN, path=path)
    (fetched, none) = run(
        job, NumberedRange(number=4, request=source(*ROWS)), NumberedRange(number=5, request=source())
    )
    ((file, keys),) = pairs([fetched, none])
    assert (file.rows, file.path) == (2, f"file://{tmp_path}/fetched-4-0.parquet")
    assert set(keys.lo.tolist()) == set(ids(2, 3).lo.tolist())


def test_what_was_written_goes_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kuvasz.lake.executors.comparison_tasks._PORTION_BYTES", 1)
    path = f"file://{tmp_path}/fetched-{{}}.parquet"
    job = Fetch(reading=READING, wanted=ids(1, 2, 3), bounded=(), layout=PLAIN, path=path)
    with pytest.raises(SourceError):
        run(job, NumberedRange(number=0, request=source(*ROWS, fails=True)))
    assert list(tmp_path.iterdir()) == []


def test_the_columns_by_which_people_know_a_row_are_told(file: LakeFile) -> None:
    (found,) = run(Show(reading=READING, wanted=ids(2)), LakeFiles(files=(file,)))
    ((data, which),) = found
    names = [READING.shape.bindings[place].name for place in READING.shown]
    assert (from_ipc(data).to_pylist(), which.tolist()) == ([dict.fromkeys(names) | {"id": 2}], [0])


def test_an_error_is_the_outcome_of_its_part_alone(file: LakeFile, tmp_path: Path) -> None:
    gone = dataclasses.replace(file, path=f"file://{tmp_path}/gone.parquet")
    parts: list[Any] = [LakeFiles(files=(gone,)), source(*ROWS, fails=True), LakeFiles(files=(file,))]
    first, second, third = RunParts(job=Summarize(reading=READING, buckets=8))(parts)
    assert isinstance(first.error, LakeError)
    assert first.error.message.startswith("a data file went while it was being compared: ")
    assert isinstance(second.error, SourceError)
    assert third.error is None
