from __future__ import annotations

import decimal
import json
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types
from pyiceberg.conversions import to_bytes

from kuvasz.lake.files import data_file
from kuvasz.lake.files.data_file import DataFile, DataFileWriter
from kuvasz.lake.files.file_io import file_io


def field(name: str, kind: pa.DataType, number: int = 1) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def write(folder: Path, table: pa.Table, bounded: tuple[str, ...] = (), *, parts: int = 1) -> DataFile:
    path = f"file://{folder}/{uuid.uuid4().hex}.parquet"
    with data_file.writing({}, path, table.schema, bounded) as writer:
        step = -(-len(table) // parts) or 1
        for start in range(0, len(table), step):
            writer.write(table.slice(start, step))
        return writer.close()


def bounds(file: DataFile, side: str) -> dict[int, bytes]:
    found = json.loads(file.json)[side]
    return {number: bytes.fromhex(text) for number, text in zip(found["keys"], found["values"], strict=True)}


CASES = [
    (pa.int32(), types.IntegerType(), [5, -7, None, 2**31 - 1]),
    (pa.int64(), types.LongType(), [5, -(2**63), None]),
    (pa.bool_(), types.BooleanType(), [True, False]),
    (pa.date32(), types.DateType(), [0, -800, 19000]),
    (pa.timestamp("us"), types.TimestampType(), [0, -(10**15), 10**15]),
    (pa.timestamp("us", "UTC"), types.TimestamptzType(), [0, 253402300800000000 * 10]),
    (pa.string(), types.StringType(), ["b", "a", "é"]),
    (pa.binary(), types.BinaryType(), [b"\x00", b"\xff" * 16]),
    (pa.decimal128(12, 2), types.DecimalType(12, 2), [decimal.Decimal("-1.28"), decimal.Decimal("127.00")]),
    (pa.decimal128(38, 0), types.DecimalType(38, 0), [decimal.Decimal(10**37), decimal.Decimal(0)]),
]


@pytest.mark.parametrize(("kind", "iceberg", "values"), CASES, ids=lambda one: str(one)[:20])
def test_bounds_are_in_icebergs_form(tmp_path: Path, kind: pa.DataType, iceberg: object, values: list) -> None:
    table = pa.table([pa.array(values, kind)], schema=pa.schema([field("c", kind)]))
    file = write(tmp_path, table, ("c",), parts=2)
    known = [value for value in values if value is not None]
    assert bounds(file, "lower-bounds") == {1: to_bytes(iceberg, min(known))}
    assert bounds(file, "upper-bounds") == {1: to_bytes(iceberg, max(known))}
    facts = json.loads(file.json)
    assert (file.rows, facts["record-count"]) == (len(values), len(values))
    assert facts["null-value-counts"]["values"] == [values.count(None)]
    assert file.size == facts["file-size-in-bytes"] == Path(file.path.removeprefix("file://")).stat().st_size


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.text(min_size=1), min_size=1))
def test_bounds_of_texts_enclose_them(values: list[str]) -> None:
    low, high = data_file.bound_bytes((min(values), max(values)), field("c", pa.string()), is_sid=False)
    assert low is not None
    assert low.decode() <= min(values)
    assert len(low.decode()) <= 16
    assert high is None or high.decode() >= max(values)
    whole = data_file.bound_bytes((min(values), max(values)), field("sid", pa.string()), is_sid=True)
    assert whole == (min(values).encode(), max(values).encode())


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.binary(min_size=1), min_size=1))
def test_bounds_of_bytes_enclose_them(values: list[bytes]) -> None:
    low, high = data_file.bound_bytes((min(values), max(values)), field("c", pa.binary()), is_sid=False)
    assert low is not None
    assert low <= min(values)
    assert high is None or high >= max(values)


def test_a_column_of_nulls_and_one_that_is_not_bounded_have_none(tmp_path: Path) -> None:
    schema = pa.schema([field("a", pa.int32()), field("b", pa.int32(), 2)])
    file = write(tmp_path, pa.table([pa.nulls(2, pa.int32()), pa.array([1, 2], pa.int32())], schema=schema), ("a",))
    assert bounds(file, "lower-bounds") == bounds(file, "upper-bounds") == {}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(16), [bytes(16), b"\xff" * 16]),
        (pa.float32(), [1.0, 2.0]),
        (pa.float64(), [1.0, float("nan")]),
        (pa.list_(pa.field("element", pa.int32(), metadata={b"PARQUET:field_id": b"2"})), [[1], [2]]),
    ],
)
def test_what_readers_order_in_more_than_one_way_has_no_bounds(
    tmp_path: Path, kind: pa.DataType, values: list
) -> None:
    file = write(tmp_path, pa.table([pa.array(values, kind)], schema=pa.schema([field("c", kind)])), ("c",))
    assert bounds(file, "lower-bounds") == bounds(file, "upper-bounds") == {}
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    assert not footer.row_group(0).column(0).is_stats_set, "readers go by those, too"


ROWS = 1000


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of several row groups."""
    schema = pa.schema([field("id", pa.int64()), field("u", pa.binary(16), 2)])
    uuids = [uuid.UUID(int=number).bytes for number in range(ROWS)]
    table = pa.table([pa.array(range(ROWS)), pa.array(uuids, pa.binary(16))], schema=schema)
    return write(tmp_path_factory.mktemp("rows"), table, ("id",), parts=7).path


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=30))
def test_rows_are_read_by_position_over_row_groups(grouped: str, positions: list[int]) -> None:
    assert pq.ParquetFile(grouped.removeprefix("file://")).num_row_groups == 7
    schema = pa.schema([field("new name", pa.int64()), field("u", pa.binary(16), 2), field("later", pa.string(), 3)])
    found = data_file.read_rows({}, grouped, positions, schema)
    assert found.schema == schema
    assert found.column("new name").to_pylist() == positions
    assert found.column("later").null_count == len(positions)


def test_readers_may_share_a_file_by_its_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([field("id", pa.int64()), field("name", pa.string(), 2)])
    rows = 300_000
    file = write(tmp_path, pa.table([range(rows), ["a"] * rows], schema=schema))
    offsets = json.loads(file.json)["split-offsets"]
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    starts = [footer.row_group(number).to_dict()["columns"][0]["data_page_offset"] for number in range(3)]
    assert (footer.num_row_groups, offsets, offsets[0]) == (3, starts, 4)


def test_rows_are_read_into_wider_types(tmp_path: Path) -> None:
    schema = pa.schema([field("a", pa.int32()), field("b", pa.decimal128(5, 2), 2), field("c", pa.float32(), 3)])
    rows = pa.table([[1, None], [decimal.Decimal("1.25"), None], [0.1, None]], schema=schema)
    wider = pa.schema([field("a", pa.int64()), field("b", pa.decimal128(9, 2), 2), field("c", pa.float64(), 3)])
    found = data_file.read_rows({}, write(tmp_path, rows, ()).path, [1, 0], wider)
    assert found.to_pydict() == {
        "a": [None, 1], "b": [None, decimal.Decimal("1.25")], "c": [None, float(np.float32(0.1))]
    }  # fmt: skip


def test_uuids_are_annotated_and_read_back(grouped: str) -> None:
    schema = pq.ParquetFile(grouped.removeprefix("file://")).schema
    assert "UUID" in str(schema.column(1).logical_type)
    found = data_file.read_columns({}, grouped, [2, 1, 9])
    assert found.column_names == ["2", "1", "9"]
    assert found.column("1").to_pylist()[:3] == [0, 1, 2]
    assert found.column("9").null_count == ROWS


def test_a_file_whose_writing_fails_is_gone(tmp_path: Path) -> None:
    schema = pa.schema([field("a", pa.int32())])
    path = f"file://{tmp_path}/x.parquet"
    with pytest.raises(pa.ArrowInvalid), data_file.writing({}, path, schema) as writer:  # noqa: PT012
        writer.write(pa.table([pa.array([1], pa.int32())], schema=schema))
        writer.write(pa.table([pa.array(["x"])], names=["a"]).cast(schema))
    assert list(tmp_path.iterdir()) == []
    writer = DataFileWriter({}, path, schema)
    writer.close()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    io = file_io({}, f"file://{tmp_path}")
    (tmp_path / "a").touch()
    data_file.remove(io, [f"file://{tmp_path}/b", f"file://{tmp_path}/a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sid", "expected"), [("eu", [0, 3, 4]), ("us", [1, 6]), (None, [2, 5]), ("zz", [])], ids=str
)
def test_rows_of_a_source_are_found_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sid: str | None, expected: list[int]
) -> None:
    sids = pa.array(["eu", "us", None, "eu", "eu", None, "us"], pa.string())
    file = write(tmp_path, pa.table([sids], schema=pa.schema([field("sid", pa.string(), 3)])), parts=2)
    monkeypatch.setattr(data_file, "_BATCH_ROWS", 2)
    assert data_file.rows_of({}, file.path, 3, sid).tolist() == expected
    assert data_file.rows_of({}, file.path, 4, sid).tolist() == ([] if sid else list(range(7))), "a field it lacks"
