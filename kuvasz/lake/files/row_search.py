"""Rows of a data file that have some values, found by its statistics, and the positions that are deleted of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kuvasz.lake.files import puffin
from kuvasz.lake.files.data_file import field_id, with_schema
from kuvasz.lake.files.file_io import file_io
from kuvasz.model import Int64s

#: Ids of the columns of position delete files (Iceberg spec, "Reserved Field IDs").
_PATH_ID, _POSITION_ID = 2147483546, 2147483545


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PositionDeletes:
    """Where positions stand that are deleted of data files: a vector of one, or a file of positions."""

    path: str
    data_file: str | None  #: the only one that it is about; None: it may be about several
    offset: int | None = None  #: of a vector in its file; None: it is no vector
    size: int = 0  #: of the vector

    def positions(self, properties: Mapping[str, str], data_file: str) -> BitMap64:
        """Return the positions that are deleted of a data file."""
        source = file_io(properties, self.path).new_input(self.path)
        if self.offset is None:
            schema = pa.schema([_with_id("path", pa.string(), _PATH_ID), _with_id("at", pa.int64(), _POSITION_ID)])
            rows = with_schema(pq.ParquetFile(source.open()).read(), schema)
            mine = pc.equal(rows.column("path"), data_file)
            return BitMap64(rows.column("at").filter(mine).to_pylist())
        with source.open() as stream:
            stream.seek(self.offset)
            return puffin.decode(bytes(stream.read(self.size)))


def _with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def positions_of(
    properties: Mapping[str, str], path: str, fields: Sequence[pa.Field], values: Sequence[pa.Scalar]
) -> Int64s:
    """Return where the rows of a data file are that have a value in each of some columns.

    Row groups whose statistics say that they have none are not read, nor are other columns.

    Args:
        properties: The properties of the FileIO.
        path: The file.
        fields: With ids, as in the table's schema.
        values: One for each.
    """
    schema = pa.schema(fields)
    with file_io(properties, path).new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        by_id = {field_id(field): field.name for field in file.schema_arrow if field.metadata}
        present = [by_id[number] for field in fields if (number := field_id(field)) in by_id]
        found, begin = [np.empty(0, np.int64)], 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if not any(_is_outside(_statistics(group, name), value, field)
                       for name, value, field in _known(by_id, fields, values)):  # fmt: skip
                rows = file.read_row_group(number, columns=present)
                rows = with_schema(rows, schema) if present else _lacking(schema, group.num_rows)
                found.append(begin + np.flatnonzero(_equal(rows, values)))
            begin += group.num_rows
    return np.concatenate(found)


def _known(
    by_id: Mapping[int, str], fields: Sequence[pa.Field], values: Sequence[pa.Scalar]
) -> list[tuple[str, pa.Scalar, pa.Field]]:
    pairs = zip(fields, values, strict=True)
    return [(by_id[field_id(field)], value, field) for field, value in pairs if field_id(field) in by_id]


def _lacking(schema: pa.Schema, count: int) -> pa.Table:
    """Return rows of a file that has none of the columns: each is its default."""
    return with_schema(pa.table({"": pa.nulls(count)}), schema)


def _statistics(group: Any, name: str) -> Any:  # noqa: ANN401 (Arrow's)
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == name:
            return column.statistics
    return None


def _is_outside(statistics: Any, value: pa.Scalar, field: pa.Field) -> bool:  # noqa: ANN401 (Arrow's)
    """Whether no row of a row group can have a value; False where nobody knows."""
    if statistics is None or not statistics.has_min_max:
        return False
    try:
        low, high = pa.scalar(statistics.min, field.type), pa.scalar(statistics.max, field.type)
        return bool(pc.less(value, low).as_py() or pc.greater(value, high).as_py())
    except (pa.ArrowException, TypeError, ValueError):  # of a type that has no order here
        return False


def _equal(rows: pa.Table, values: Sequence[pa.Scalar]) -> np.ndarray:
    mask = np.ones(rows.num_rows, bool)
    for column, value in zip(rows.columns, values, strict=True):
        same = pc.is_nan(column) if is_nan(value) else pc.equal(column, value)
        mask &= pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False)
    return mask


def is_nan(value: pa.Scalar) -> bool:
    """Whether a value is a NaN, which PostgreSQL takes for equal to itself, and Arrow for equal to nothing."""
    return bool(pa.types.is_floating(value.type) and value.is_valid and math.isnan(value.as_py()))


__all__ = ["PositionDeletes", "is_nan", "positions_of"]
