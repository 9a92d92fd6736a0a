"""Versions read by position and written anew, without Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kuvasz.lake.executors.history_tasks import (
    CompareDone,
    CompareTask,
    CompareVersions,
    Places,
    TruncateDone,
    TruncateTask,
    TruncateVersions,
    Writing,
)
from kuvasz.lake.files.data_file import DataFileWriter, writing
from kuvasz.lake.format.layout import Layout
from kuvasz.modes.history import FIRST_US, FOREVER_US
from tests.support.lake_table import schema

SCHEMA = schema(
    (1, "id", "long"), (2, "n", "double"), (3, "kvsz_start", "timestamptz"), (4, "kvsz_end", "timestamptz"),
    (5, "kvsz_deleted", "boolean"),
).arrow()  # fmt: skip
WRITING = Writing(properties={}, schema=SCHEMA, bounded=(), layout=Layout())


def written(path: Path, *versions: tuple) -> str:
    writer = DataFileWriter({}, f"file://{path}", SCHEMA)
    columns = zip(zip(*versions, strict=True), SCHEMA, strict=True)
    arrays = [pa.array(values).cast(field.type) for values, field in columns]
    writer.write(pa.Table.from_arrays(arrays, schema=SCHEMA))
    writer.close()
    return f"file://{path}"


def versions(path: str) -> list[tuple]:
    table = pq.read_table(path.removeprefix("file://"))
    micros = [table.column(name).cast(pa.int64()).to_pylist() for name in ("kvsz_start", "kvsz_end")]
    return list(zip(*(table.column(name).to_pylist() for name in ("id", "n")), *micros,
                    table.column("kvsz_deleted").to_pylist(), strict=True))  # fmt: skip


def places(path: str, *rows: int) -> Places:
    count = np.zeros(len(rows), np.int32)
    return Places(files=(path,), file_of=count, position_of=np.array(rows, np.int32))


def test_a_copied_row_is_compared_with_the_version_before_it(tmp_path: Path) -> None:
    before = written(
        tmp_path / "before.parquet",
        (1, 1.5, FIRST_US, FOREVER_US, False), (2, 2.5, 50, FOREVER_US, False), (3, None, 60, 80, True),
        (4, float("nan"), FIRST_US, FOREVER_US, False), (5, 5.0, 900, FOREVER_US, False),
    )  # fmt: skip
    rows = ((1, 1.5), (2, None), (3, None), (4, float("nan")), (5, 0.0))
    copied = written(tmp_path / "copied.parquet", *((*row, 100, FOREVER_US, False) for row in rows))
    task = CompareTask(
        before=places(before, 0, 1, 2, 3, 4), copied=places(copied, 0, 1, 2, 3, 4), us=100,
        path=f"file://{tmp_path}/ended.parquet",
    )  # fmt: skip
    ((number, done),) = CompareVersions(writing=WRITING, seed=bytes(16))([(7, task)])
    assert number == 7
    assert isinstance(done, CompareDone)
    assert done.is_same.tolist() == [True, False, False, True, False]
    assert done.is_replaced.tolist() == [False, True, False, False, True]
    assert done.floor.tolist()[1:3] == [100, 80]
    assert done.floor.tolist()[4] == 900  # the source's clock was set back: the next takes its start
    (file,) = done.files
    assert versions(file.path) == [(2, 2.5, 50, 100, False)]


def test_versions_that_stay_are_not_ended(tmp_path: Path) -> None:
    ends = (FOREVER_US, FOREVER_US, 70, FOREVER_US)
    path = written(tmp_path / "a.parquet", *((key, 0.0, FIRST_US, end, False) for key, end in enumerate(ends)))
    task = TruncateTask(
        source=path, dead=np.array([3]), stays=np.array([0]), us=100, path=f"file://{tmp_path}/b.parquet", spec_id=0,
        partition=(),
    )  # fmt: skip
    ((_, done),) = TruncateVersions(writing=WRITING)([(0, task)])
    assert isinstance(done, TruncateDone)
    assert done.positions.tolist() == [0, 1, 2, -1]
    assert [row[3:] for row in versions(done.files[0].path)] == [(FOREVER_US, False), (100, True), (70, False)]
    ((_, done),) = TruncateVersions(writing=WRITING)([(0, dataclasses.replace(task, stays=np.array([0, 1])))])
    assert isinstance(done, TruncateDone)
    assert done.files == ()


def test_of_a_file_of_several_sources_one_s_versions_end(tmp_path: Path) -> None:
    """Here the key says whose they are."""
    owned = schema(
        (1, "id", "string"), (2, "n", "double"), (3, "kvsz_start", "timestamptz"), (4, "kvsz_end", "timestamptz"),
        (5, "kvsz_deleted", "boolean"),
    ).arrow()  # fmt: skip
    path = f"file://{tmp_path}/a.parquet"
    columns = (["eu", "us", "eu"], [1.0, 2.0, 3.0], [FIRST_US] * 3, [FOREVER_US, FOREVER_US, 70], [False] * 3)
    with writing({}, path, owned) as writer:
        arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, owned, strict=True)]
        writer.write(pa.Table.from_arrays(arrays, schema=owned))
        writer.close()
    task = TruncateTask(
        source=path, dead=np.array([], np.int64), stays=np.array([], np.int64), us=100,
        path=f"file://{tmp_path}/b.parquet", spec_id=0, partition=(), sid="eu", sid_id=1,
    )  # fmt: skip
    run = TruncateVersions(writing=dataclasses.replace(WRITING, schema=owned))
    ((_, done),) = run([(0, task)])
    assert isinstance(done, TruncateDone)
    assert [(row[0], *row[3:]) for row in versions(done.files[0].path)] == [
        ("eu", 100, True), ("us", FOREVER_US, False), ("eu", 70, False),
    ]  # fmt: skip
    ((_, done),) = run([(0, dataclasses.replace(task, sid="ap"))])
    assert isinstance(done, TruncateDone)
    assert done.files == (), "it has nothing there, so the file stays"
