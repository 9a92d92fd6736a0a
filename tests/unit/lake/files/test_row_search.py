"""Rows found in files by their values, and positions that are deleted of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from kuvasz.lake.files import puffin
from kuvasz.lake.files.row_search import PositionDeletes, positions_of


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


ID, NAME, LATER = field("id", pa.int64(), 1), field("name", pa.string(), 2), field("later", pa.string(), 3)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Three row groups, whose ids are still narrower, and whose names were called otherwise."""
    schema = pa.schema([field("id", pa.int32(), 1), field("title", pa.string(), 2)])
    ids, names = [1, 2, 2, 3, None, 2, 9], ["a", "a", "b", "b", "b", "b", None]
    pq.write_table(pa.table([ids, names], schema=schema), tmp_path / "a.parquet", row_group_size=3)
    return f"file://{tmp_path}/a.parquet"


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        ([(ID, 2)], [1, 2, 5]),
        ([(ID, 2), (NAME, "b")], [2, 5]),
        ([(NAME, "b"), (ID, 3)], [3]),
        ([(ID, 7)], []),
        ([(ID, 9)], [6]),
        ([(ID, 1 << 40)], []),
        ([(LATER, "x")], []),
        ([(ID, 2), (LATER, "x")], []),
    ],
)
def test_rows_are_found_by_ids_of_fields(file: str, wanted: list, positions: list[int]) -> None:
    fields, values = [one for one, _ in wanted], [pa.scalar(value, one.type) for one, value in wanted]
    assert positions_of({}, file, fields, values).tolist() == positions


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_what_is_no_number_is_found_and_nothing_else(tmp_path: Path, kind: pa.DataType) -> None:
    weight, nan = field("weight", kind, 1), float("nan")
    table = pa.table([pa.array([1.0, nan, None, nan, float("inf"), 2.0, nan, nan, nan], kind)], pa.schema([weight]))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    for value, positions in ((nan, [1, 3, 6, 7, 8]), (float("inf"), [4]), (2.0, [5])):
        found = positions_of({}, f"file://{tmp_path}/a.parquet", [weight], [pa.scalar(value, kind)])
        assert found.tolist() == positions


def test_row_groups_that_cannot_have_a_value_are_not_read(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, n, **given: (read.append(n), real(self, n, **given))[1]
    )
    assert positions_of({}, file, [ID], [pa.scalar(3, pa.int64())]).tolist() == [3]
    assert read == [1]


def test_deleted_positions_are_of_one_data_file(tmp_path: Path) -> None:
    content, (_, second) = puffin.encode([("a", BitMap64([1])), ("b", BitMap64([2, 5]))])
    (tmp_path / "d.puffin").write_bytes(content)
    vector = PositionDeletes(
        path=f"file://{tmp_path}/d.puffin", data_file="b", offset=second.offset, size=second.size
    )
    assert list(vector.positions({}, "b")) == [2, 5]
    schema = pa.schema([field("file_path", pa.string(), 2147483546), field("pos", pa.int64(), 2147483545)])
    pq.write_table(pa.table([["a", "b", "a"], [1, 2, 7]], schema=schema), tmp_path / "d.parquet")
    plain = PositionDeletes(path=f"file://{tmp_path}/d.parquet", data_file=None)
    assert list(plain.positions({}, "a")) == [1, 7]
