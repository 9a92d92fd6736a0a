"""Live rows of files of any age of the schema, in the shape that the schema has now."""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from kuvasz.lake.executors import rewrite_tasks
from kuvasz.lake.files.data_file import DataFileWriter
from kuvasz.lake.format.schema import LakeSchema
from tests.support.lake_table import schema


def written(path: Path, of: LakeSchema, *columns: list) -> str:
    location = f"file://{path}"
    writer = DataFileWriter({}, location, of.arrow())
    arrays = [pa.array(values, field.type) for values, field in zip(columns, of.arrow(), strict=True)]
    writer.write(pa.Table.from_arrays(arrays, schema=of.arrow()))
    writer.close()
    return location


def test_columns_are_found_by_their_id_and_widened(tmp_path: Path) -> None:
    old = schema(
        (1, "a", "int"), (2, "b", "float"), (3, "c", "decimal(4, 2)"), (4, "gone", "string"), (5, "u", "uuid")
    )
    new = schema(
        (5, "u", "uuid"), (3, "c", "decimal(9, 2)"), (2, "a", "double"), (1, "b", "long"), (9, "n", "string")
    )
    u = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").bytes
    path = written(
        tmp_path / "a.parquet", old, [1, 2], [0.5, None], [decimal.Decimal("1.50"), None], ["x", "y"], [u, None]
    )
    (table,) = rewrite_tasks.read_live(path.removeprefix("file://"), np.array([0]), new.arrow())
    assert table.to_pylist() == [{"u": None, "c": None, "a": None, "b": 2, "n": None}]
    (table,) = rewrite_tasks.read_live(path.removeprefix("file://"), np.array([1]), new.arrow())
    assert table.to_pylist() == [{"u": u, "c": decimal.Decimal("1.50"), "a": 0.5, "b": 1, "n": None}]


def test_a_column_that_a_file_lacks_has_its_initial_default(tmp_path: Path) -> None:
    defaults = (
        ("int", 5, 5), ("long", 6, 6), ("string", "a 'b'", "a 'b'"), ("boolean", False, False), ("double", 1.5, 1.5),
        ("float", 2.5, 2.5), ("decimal(8, 2)", "12.30", decimal.Decimal("12.30")),
        ("date", "2024-02-29", datetime.date(2024, 2, 29)), ("binary", "00FF", b"\x00\xff"),
        ("timestamp", "2024-02-29T01:02:03.456789", datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)),  # noqa: DTZ001
        ("timestamptz", "2024-02-29T01:02:03.456789+00:00",
         datetime.datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=datetime.UTC)),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").bytes),
    )  # fmt: skip
    old = schema((1, "id", "int"))
    new = schema((1, "id", "int"), *((n, f"c{n}", kind, json_) for n, (kind, json_, _) in enumerate(defaults, 2)))
    path = written(tmp_path / "a.parquet", old, [1])
    (table,) = rewrite_tasks.read_live(path.removeprefix("file://"), np.empty(0, np.int64), new.arrow())
    assert table.to_pylist() == [{"id": 1, **{f"c{n}": value for n, (_, _, value) in enumerate(defaults, 2)}}]


def test_row_groups_are_joined_and_dead_rows_left_out(tmp_path: Path) -> None:
    of = schema(
        (1, "id", "int"), (2, "tags", {"type": "list", "element-id": 3, "element": "int", "element-required": False})
    )
    inputs = []
    for number in range(5):
        values = list(range(number * 10, number * 10 + 10))
        path = written(tmp_path / f"{number}.parquet", of, values, [[value] for value in values])
        inputs.append(rewrite_tasks.RewriteInput(path=path, dead=BitMap64([number, 9]).serialize()))
    job = rewrite_tasks.RewriteFiles(properties={}, schema=of.arrow(), bounded=("id",))
    target = f"file://{tmp_path}/all.parquet"
    ((number, done),) = job([(7, rewrite_tasks.RewriteTask(inputs=tuple(inputs), path=target))])
    assert (number, done.error, done.file.rows) == (7, None, 40)
    file = pq.ParquetFile(io.BytesIO((tmp_path / "all.parquet").read_bytes()))
    assert file.num_row_groups == 1
    ids = [value for n in range(5) for value in range(n * 10, n * 10 + 10) if value % 10 not in {n, 9}]
    assert file.read().column("id").to_pylist() == ids
    assert file.read().column("tags").to_pylist() == [[value] for value in ids]


def test_where_no_row_lives_no_file_is_left(tmp_path: Path) -> None:
    of = schema((1, "id", "int"))
    path = written(tmp_path / "a.parquet", of, [1, 2])
    task = rewrite_tasks.RewriteTask(
        inputs=(rewrite_tasks.RewriteInput(path=path, dead=BitMap64([0, 1]).serialize()),),
        path=f"file://{tmp_path}/b.parquet",
    )
    ((_, done),) = rewrite_tasks.RewriteFiles(properties={}, schema=of.arrow(), bounded=())([(0, task)])
    assert (done.error, done.file) == (None, None)
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_rows_of_several_sources_are_sorted_by_sid_and_keep_their_order(tmp_path: Path, passes: int) -> None:
    of = schema((1, "sid", "string"), (2, "id", "int"))
    inputs, alive = [], []
    for number in range(3):
        sids = [f"s{(number + row) % 4}" for row in range(10)]
        path = written(tmp_path / f"{number}.parquet", of, sids, list(range(number * 10, number * 10 + 10)))
        inputs.append(rewrite_tasks.RewriteInput(path=path, dead=BitMap64([number]).serialize()))
        alive += [(sid, number * 10 + row) for row, sid in enumerate(sids) if row != number]
    job = rewrite_tasks.RewriteFiles(properties={}, schema=of.arrow(), bounded=("sid", "id"))
    target = f"file://{tmp_path}/all.parquet"
    task = rewrite_tasks.RewriteTask(inputs=tuple(inputs), path=target, passes=passes)
    ((_, done),) = job([(0, task)])
    assert (done.error, done.file.sids) == (None, ("s0", "s3"))
    found = [tuple(row.values()) for row in pq.read_table(tmp_path / "all.parquet").to_pylist()]
    assert found == sorted(alive), "ids ascend with age here"
    assert [alive[place] for place in done.order] == found
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups <= passes


def test_no_row_alive_is_no_file(tmp_path: Path) -> None:
    of = schema((1, "sid", "string"))
    path = written(tmp_path / "a.parquet", of, ["s1"])
    task = rewrite_tasks.RewriteTask(
        inputs=(rewrite_tasks.RewriteInput(path=path, dead=BitMap64([0]).serialize()),),
        path=f"file://{tmp_path}/all.parquet", passes=3,
    )  # fmt: skip
    ((_, done),) = rewrite_tasks.RewriteFiles(properties={}, schema=of.arrow(), bounded=("sid",))([(0, task)])
    assert (done.error, done.file) == (None, None)
    assert not (tmp_path / "all.parquet").exists()
