"""Parquet data files, written and read through PyIceberg's FileIO so that every store Iceberg reaches works.

Runs on executors. The facts of a file go back to the driver as the JSON that Iceberg's ContentFileParser reads, so
the driver never opens what was written. Files carry field ids; no name mapping is needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kuvasz.lake.files.arrangement import arrange
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.folder_files import Files
from kuvasz.lake.format.layout import PLAIN, Layout, Values
from kuvasz.lake.format.schema import SID
from kuvasz.model import Int32s, UInt32s
from kuvasz.modes import defaults

_ID = b"PARQUET:field_id"

#: Stores in which a file is there while it is being written.
_IN_PLACE = frozenset({"file", "hdfs"})

#: Characters of a string bound (Iceberg spec, table property write.metadata.metrics.default "truncate(16)").
_BOUND_CHARACTERS = 16

#: Rows of a row group: an earlier version of a row is read one row group at a time.
_ROW_GROUP_ROWS = 128 * 1024

#: Rows whose sids are in memory at a time.
_BATCH_ROWS = 64 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A written file and its facts."""

    path: str
    rows: int
    size: int  #: bytes
    json: str  #: as org.apache.iceberg.ContentFileParser takes it
    spec_id: int = 0
    partition: Values = ()
    sids: tuple[Any, Any] | None = None  #: bounds of the column sid, whose ever it is; None if it has none


class DataFileWriter:
    """One Parquet file in the making. `close` gives its facts; nothing else may be called after it.

    Args:
        properties: The properties of the FileIO, as PyIceberg takes them.
        path: Full location of the new file.
        schema: Arrow schema with field ids.
        bounded: Names of columns that get bounds: the key's.
        layout: The layout of the table; rows are to come in its order.
        partition: The values that all rows have.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        path: str,
        schema: pa.Schema,
        bounded: Iterable[str] = (),
        *,
        layout: Layout = PLAIN,
        partition: Values = (),
    ) -> None:
        self._path = path
        self._layout = layout
        self._partition = partition
        self._schema = schema
        self._io = file_io(properties, path)
        self._stream = self._io.new_output(path).create(overwrite=True)
        self._footers: list[pq.FileMetaData] = []  # once it is closed
        self._bounded = [name for name in bounded if name in schema.names and _has_order(schema.field(name).type)]
        self._writer = pq.ParquetWriter(
            self._stream,
            _stored(schema),
            metadata_collector=self._footers,
            compression=layout.codec,
            compression_level=layout.level,
            use_dictionary=False,
            write_statistics=self._bounded,
            store_schema=False,
            version="2.6",
        )
        self._rows = 0
        self._nulls = np.zeros(len(schema), np.int64)
        self._bounds: dict[str, tuple[Any, Any]] = {}

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        if table.num_rows == 0:
            return
        self._writer.write_table(_store(table), row_group_size=_ROW_GROUP_ROWS)
        self._rows += table.num_rows
        self._nulls += [column.null_count for column in table.columns]
        for name in self._bounded:
            low, high = pc.min_max(table.column(name)).values()
            if low.is_valid:
                before = self._bounds.get(name)
                low_value, high_value = _plain(low), _plain(high)
                self._bounds[name] = (
                    (low_value, high_value)
                    if before is None
                    else (min(before[0], low_value), max(before[1], high_value))
                )

    def close(self) -> DataFile:
        """Finish the file."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        check_size(self._io, self._path, size)
        return DataFile(
            path=self._path,
            rows=self._rows,
            size=size,
            json=self._facts(size),
            spec_id=self._layout.spec_id,
            partition=self._partition,
            sids=self._bounds.get(SID),
        )

    def abandon(self) -> None:
        """Close without finishing, and delete what is there; used on errors, so it raises none of its own."""
        for part in (self._writer, self._stream):
            with contextlib.suppress(Exception):
                part.close()
        with contextlib.suppress(Exception):
            remove(self._io, [self._path])

    def _facts(self, size: int) -> str:
        flat = [(field_id(field), index, field) for index, field in enumerate(self._schema)
                if not pa.types.is_nested(field.type)]  # fmt: skip
        lower = {}
        upper = {}
        for number, _, field in flat:
            if field.name in self._bounds:
                low, high = bound_bytes(self._bounds[field.name], field, is_sid=field.name == SID)
                if low is not None:
                    lower[number] = low.hex().upper()
                if high is not None:
                    upper[number] = high.hex().upper()
        facts = {
            "spec-id": self._layout.spec_id,
            "content": "data",
            "file-path": self._path,
            "file-format": "parquet",
            "partition": self._partition,
            "file-size-in-bytes": size,
            "record-count": self._rows,
            "value-counts": _map({number: self._rows for number, _, _ in flat}),
            "null-value-counts": _map({number: int(self._nulls[index]) for number, index, _ in flat}),
            "lower-bounds": _map(lower),
            "upper-bounds": _map(upper),
            "split-offsets": _row_group_offsets(self._footers[0]),
            "sort-order-id": self._layout.order_id,
        }
        return json.dumps(facts)


def _row_group_offsets(footer: pq.FileMetaData) -> list[int]:
    """Return where a file's row groups begin: readers share it no finer (Iceberg spec, ``split_offsets``)."""
    return [footer.row_group(number).column(0).data_page_offset for number in range(footer.num_row_groups)]


@contextlib.contextmanager
def writing(
    properties: Mapping[str, str],
    path: str,
    schema: pa.Schema,
    bounded: Iterable[str] = (),
    *,
    layout: Layout = PLAIN,
    partition: Values = (),
) -> Iterator[DataFileWriter]:
    """Give a writer that the body closes; if the body fails, nothing is left of the file."""
    writer = DataFileWriter(properties, path, schema, bounded, layout=layout, partition=partition)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


def write_rows(
    properties: Mapping[str, str], path: str, rows: pa.Table, bounded: Iterable[str], layout: Layout
) -> tuple[tuple[DataFile, ...], Int32s | None]:
    """Write rows as a table's layout wants them: one file per partition, each sorted.

    Args:
        properties: The properties of the FileIO.
        path: The path of the file; further ones get a number before its ending.
        rows: With the table's schema.
        bounded: As for `DataFileWriter`.
        layout: The layout of the table.

    Returns:
        The files, none without rows; and each row's place in all of them, one behind another, None if they lie as
        they came.
    """
    if rows.num_rows == 0:
        return (), None
    if layout.is_plain:
        with writing(properties, path, rows.schema, bounded, layout=layout) as writer:
            writer.write(rows)
            return (writer.close(),), None
    bounded = tuple(bounded)
    parts = arrange(layout, rows)
    files: list[DataFile] = []
    try:
        for number, (partition, order) in enumerate(parts):
            place = numbered(path, number)
            with writing(properties, place, rows.schema, bounded, layout=layout, partition=partition) as writer:
                writer.write(rows.take(pa.array(order)))
                files.append(writer.close())
    except BaseException:
        remove(file_io(properties, path), [file.path for file in files])
        raise
    places = np.empty(rows.num_rows, np.int32)
    places[np.concatenate([order for _, order in parts])] = np.arange(rows.num_rows, dtype=np.int32)
    return tuple(files), places


def place_in(files: Sequence[DataFile], numbers: Sequence[int], rows: Int32s) -> tuple[UInt32s, UInt32s]:
    """Return file number and position of rows that are counted through several files.

    Args:
        files: One behind another.
        numbers: Theirs, and perhaps one for the rows behind them.
        rows: Row numbers.
    """
    if len(files) == 1 and len(numbers) == 2:
        is_first = rows < files[0].rows
        file = np.where(is_first, numbers[0], numbers[1])
        return file.astype(np.uint32), np.where(is_first, rows, rows - files[0].rows).astype(np.uint32)
    ends = np.cumsum([file.rows for file in files], dtype=np.int64)
    which = np.searchsorted(ends, rows, side="right")
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    return np.asarray(numbers, np.uint32)[which], (rows - begins[which]).astype(np.uint32)


def numbered(path: str, number: int) -> str:
    """Return the path of one of several files."""
    return path if number == 0 else f"{path.removesuffix('.parquet')}-{number}.parquet"


def _map(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def field_id(field: pa.Field) -> int:
    """Return the Iceberg id an Arrow field carries."""
    return int((field.metadata or {})[_ID])


def _stored(schema: pa.Schema) -> pa.Schema:
    """Replace plain 16-byte UUIDs by Arrow's extension type, which Parquet annotates as UUID."""
    return pa.schema([field.with_type(pa.uuid()) if _is_uuid(field.type) else field for field in schema])


def _store(table: pa.Table) -> pa.Table:
    if not any(_is_uuid(field.type) for field in table.schema):
        return table
    columns = [
        pa.chunked_array([pa.ExtensionArray.from_storage(pa.uuid(), chunk) for chunk in column.chunks], pa.uuid())
        if _is_uuid(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=_stored(table.schema))


def _has_order(kind: pa.DataType) -> bool:
    """Whether all readers put values of a type in one order: who takes them in another passes over files with a row.

    Of lists they do not. Nor of UUIDs: Iceberg's spec goes by their bytes, and Java's halves of them have signs, by
    which Spark finds no row of a file whose least one begins with 0 and whose greatest with f. Nor of floats: NaN is
    greater than all for Spark and for PostgreSQL, and Iceberg's bounds leave it out.
    """
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or _is_uuid(kind))


def _is_uuid(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind)) and kind.byte_width == 16


def _plain(scalar: pa.Scalar) -> Any:  # noqa: ANN401 (one of Arrow's Python values)
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return scalar.as_py()


def bound_bytes(bounds: tuple[Any, Any], field: pa.Field, *, is_sid: bool) -> tuple[bytes | None, bytes | None]:
    """Return lower and upper bound in Iceberg's single-value form (spec, appendix D), None where there is none."""
    low, high = bounds
    kind = field.type
    if pa.types.is_string(kind) and not is_sid:
        return low[:_BOUND_CHARACTERS].encode(), _upper_text(high)
    if pa.types.is_binary(kind):
        return low[:_BOUND_CHARACTERS], high if len(high) <= _BOUND_CHARACTERS else None
    return _single(low, kind), _single(high, kind)


def _single(value: Any, kind: pa.DataType) -> bytes | None:  # noqa: ANN401 (a table)
    if pa.types.is_string(kind):
        return str(value).encode()
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_int32(kind) or pa.types.is_date32(kind):
        return struct.pack("<i", value)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return struct.pack("<q", value)
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale, _WIDE))
        # The fewest bytes that hold it (spec, appendix D): -128 takes one.
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
    return None


def _wide() -> Any:  # noqa: ANN401
    import decimal

    return decimal.Context(prec=80)


_WIDE = _wide()


def _upper_text(text: str) -> bytes | None:
    """Return an upper bound of a string: itself if short, else a cut one whose last character is raised."""
    if len(text) <= _BOUND_CHARACTERS:
        return text.encode()
    cut = text[:_BOUND_CHARACTERS]
    for index in range(len(cut) - 1, -1, -1):
        raised = ord(cut[index]) + 1
        if 0xD800 <= raised <= 0xDFFF:
            raised = 0xE000
        if raised <= 0x10FFFF:
            return (cut[:index] + chr(raised)).encode()
    return None


def read_rows(properties: Mapping[str, str], path: str, positions: Sequence[int], schema: pa.Schema) -> pa.Table:
    """Return the rows at ascending or repeated positions of a data file, in the order asked for.

    Args:
        properties: The properties of the FileIO.
        path: The file.
        positions: Row numbers, 0 is the first.
        schema: Fields to read, found by their ids: the file may have other names and narrower types for them. One
            that the file lacks comes back as its default, or NULL.
    """
    file = pq.ParquetFile(file_io(properties, path).new_input(path).open())
    by_id = _names_by_id(file.schema_arrow)
    wanted = np.asarray(positions, np.int64)
    ends = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)])
    groups = np.searchsorted(ends, wanted, side="right")
    present = [name for field in schema if (name := by_id.get(field_id(field))) is not None]
    pieces = []
    order = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        first = int(ends[group - 1]) if group else 0
        pieces.append(file.read_row_group(int(group), columns=present).take(pa.array(wanted[rows] - first)))
        order.append(rows)
    back = np.argsort(np.concatenate(order), kind="stable")
    found = pa.concat_tables(pieces).take(pa.array(back))
    return pa.Table.from_arrays(
        [_read_as(field, found.column(by_id[field_id(field)])) if field_id(field) in by_id
         else defaults.column(field, len(wanted)) for field in schema],
        schema=schema,
    )  # fmt: skip


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, found by their ids where both have them; one that is lacking is its default."""
    by_id = {field_id(field): place for place, field in enumerate(table.schema) if _ID in (field.metadata or {})}
    by_name = {field.name: place for place, field in enumerate(table.schema) if _ID not in (field.metadata or {})}
    columns = []
    for field in schema:
        place = by_id.get(field_id(field), by_name.get(field.name))
        found = defaults.column(field, len(table)) if place is None else _read_as(field, table.column(place))
        columns.append(found)
    return pa.Table.from_arrays(columns, schema=schema)


def _names_by_id(schema: pa.Schema) -> dict[int, str]:
    return {field_id(field): field.name for field in schema if field.metadata}


def _read_as(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if isinstance(column.type, pa.UuidType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.binary(16))
    return column.cast(field.type)


def read_fields(properties: Mapping[str, str], path: str, schema: pa.Schema) -> pa.Table:
    """Return the fields of a schema from a data file, found by their ids; one that it lacks is its default."""
    file = pq.ParquetFile(file_io(properties, path).new_input(path).open())
    by_id = _names_by_id(file.schema_arrow)
    found = file.read(columns=[by_id[field_id(field)] for field in schema if field_id(field) in by_id])
    return with_schema(found, schema)


def read_columns(properties: Mapping[str, str], path: str, ids: Sequence[int]) -> pa.Table:
    """Return the columns of a data file that carry the given field ids, in that order, named by them.

    One that the file lacks comes back as NULL.
    """
    file = pq.ParquetFile(file_io(properties, path).new_input(path).open())
    by_id = _names_by_id(file.schema_arrow)
    found = file.read(columns=[by_id[number] for number in ids if number in by_id])
    columns = [found.column(by_id[number]) if number in by_id else pa.nulls(found.num_rows) for number in ids]
    return pa.table(columns, names=[str(number) for number in ids])


def rows_of(properties: Mapping[str, str], path: str, sid_id: int, sid: str | None) -> UInt32s:
    """Return the positions of the rows of one source in a data file that holds several sources'.

    In memory are some rows' sids at a time.
    """
    file = pq.ParquetFile(file_io(properties, path).new_input(path).open())
    name = _names_by_id(file.schema_arrow).get(sid_id)
    if name is None:
        return np.arange(file.metadata.num_rows if sid is None else 0, dtype=np.uint32)
    found = [np.empty(0, np.uint32)]
    begin = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=[name]):
        column = batch.column(0)
        is_mine = column.is_null() if sid is None else pc.fill_null(pc.equal(column, sid), fill_value=False)
        found.append((begin + np.flatnonzero(is_mine.to_numpy(zero_copy_only=False))).astype(np.uint32))
        begin += batch.num_rows
    return np.concatenate(found)


def remove(io: Files, paths: Iterable[str]) -> None:
    """Delete files that no snapshot knows, if that can be done; one that is gone already is fine."""
    for path in paths:
        with contextlib.suppress(Exception):  # a store's client has errors of its own
            io.delete(path)


def check_size(io: Files, path: str, size: int) -> None:
    """Make sure that a file is there as a whole before any commit names it.

    Only where a file can be there in part: an object store has the length with the request, and takes all or nothing.

    Raises:
        OSError: The file is not there as a whole.
    """
    if path.split("://", 1)[0] in _IN_PLACE or "://" not in path:
        found = len(io.new_input(path))
        if found != size:
            raise OSError(errno.EIO, f"{path} has {found} bytes of {size} that were written")
