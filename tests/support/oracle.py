"""PostgreSQL is the oracle: the rows of a source and of the lake in one canonical form, and a readable difference.

Rows are multisets of tuples, whatever read them. The canonical form of a value:

    boolean, integers, text   as Python has them
    float4, float8            float, of float4 the nearest double of its 32 bits; "NaN" and "-0.0" as text
    decimal                   Decimal
    date, timestamp(tz)       date, datetime (timestamptz in UTC); beyond Python's years ISO text
    bytea                     bytes
    uuid                      its text
    list, map                 tuple; tuple of sorted ("key", "value") pairs

What the lake keeps as text (numeric without precision, intervals, JSON, ranges, …) is PostgreSQL's own text. The
source is read with psycopg's parsers, the lake with Arrow's: neither is code of kuvasz.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import functools
import math
import operator
import struct
import urllib.parse
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pyroaring
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A multiset of rows: `rows` maps a tuple of values, in the order of `columns`, to how often it is there."""

    columns: tuple[str, ...]
    rows: collections.Counter

    def __add__(self, other: Rows) -> Rows:
        """Rows of two sources of one target; a column that only one of them has is NULL in the other's rows."""
        columns = self.columns + tuple(name for name in other.columns if name not in self.columns)
        return Rows(columns=columns, rows=self.select(columns).rows + other.select(columns).rows)

    def __len__(self) -> int:
        return self.rows.total()

    def select(self, columns: Sequence[str]) -> Rows:
        """The same rows with these columns in this order; NULL where there is no such column."""
        if tuple(columns) == self.columns:
            return self
        places = [self.columns.index(name) if name in self.columns else None for name in columns]
        rows: collections.Counter = collections.Counter()
        if len(places) > 1 and set(places) == set(range(len(self.columns))):  # as many rows in another order
            rows.update(dict(zip(map(operator.itemgetter(*places), self.rows), self.rows.values(), strict=True)))
            return Rows(columns=tuple(columns), rows=rows)
        for row, count in self.rows.items():
            rows[tuple(None if place is None else row[place] for place in places)] += count
        return Rows(columns=tuple(columns), rows=rows)


# --- comparison


def assert_equal(source: Rows, lake: Rows, *, key: Sequence[str] = (), shown: int = 5) -> None:
    """Fail with the first differing rows, unless both hold the same rows.

    Args:
        source: What should be there.
        lake: What is there; a further column is a difference, their order is not.
        key: Columns that tell rows apart: rows of one key are then shown together, with the differing columns.
        shown: Differences printed at most.
    """
    assert set(source.columns) == set(lake.columns), (
        f"columns differ: only at the source {sorted(set(source.columns) - set(lake.columns))},"
        f" only in the lake {sorted(set(lake.columns) - set(source.columns))}"
    )
    lake = lake.select(source.columns)
    if not dict.__eq__(source.rows, lake.rows):  # no count is zero, and a counter asks for each row twice
        raise AssertionError(difference(source, lake, key=key, shown=shown))


def difference(source: Rows, lake: Rows, *, key: Sequence[str] = (), shown: int = 5) -> str:
    """Describe how two multisets over the same columns differ."""
    missing, extra = source.rows - lake.rows, lake.rows - source.rows
    places = [source.columns.index(name) for name in key] or list(range(len(source.columns)))
    by_key: dict[tuple, tuple[list, list]] = collections.defaultdict(lambda: ([], []))
    for side, rows in enumerate((missing, extra)):
        for row in rows.elements():
            by_key[tuple(row[place] for place in places)][side].append(row)
    lines = [
        f"{len(source)} rows at the source, {len(lake)} in the lake;"
        f" {missing.total()} missing in the lake, {extra.total()} too many there"
    ]
    for found in sorted(by_key, key=repr)[:shown]:
        lines += _difference_of_key(source.columns, key, found, *by_key[found])
    if len(by_key) > shown:
        lines.append(f"… and {len(by_key) - shown} more")
    return "\n".join(lines)


def _difference_of_key(
    columns: tuple[str, ...], key: Sequence[str], found: tuple, left: list, right: list
) -> list[str]:
    title = ", ".join(f"{name}={value!r}" for name, value in zip(key, found, strict=True)) if key else "row"
    if len(left) == 1 and len(right) == 1:
        pairs = zip(columns, left[0], right[0], strict=True)
        changed = [
            f"    {name}: source {a!r}, lake {b!r}" for name, a, b in pairs if a != b or type(a) is not type(b)
        ]
        return [f"  {title} differs:", *changed]
    return [f"  {title} {place}: {dict(zip(columns, row, strict=True))!r}"
            for place, rows in (("missing in the lake", left), ("too many in the lake", right))
            for row in rows]  # fmt: skip


# --- the source

#: Types whose value psycopg's parsers read; all others are text in the lake.
_NATIVE = ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "bytea", "uuid",
           "text", "varchar", "bpchar", "name")  # fmt: skip
_INSTANTS = ("timestamp", "timestamptz", "date")

_DESCRIBE = """
WITH RECURSIVE typed AS (
    SELECT attnum, attname, atttypid AS oid, atttypmod AS typmod, attndims::int AS dimensions
    FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
      AND CASE WHEN %s::text[] IS NULL THEN attgenerated = '' ELSE attname = ANY (%s) END
  UNION ALL
    SELECT attnum, attname, typbasetype, CASE WHEN typed.typmod < 0 THEN typtypmod ELSE typed.typmod END,
           greatest(dimensions, typndims)::int
    FROM typed JOIN pg_type ON pg_type.oid = typed.oid WHERE typtype = 'd'
)
SELECT attname, t.typname, typed.typmod, dimensions, e.typname
FROM typed JOIN pg_type t ON t.oid = typed.oid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE t.typtype <> 'd' ORDER BY attnum
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """How one column of the source is asked for, and what is made of the answer."""

    name: str
    expression: sql.Composable
    canonical: Callable[[Any], Any]


def source_rows(
    url: str,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    sid: str | None = None,
    where: str = "true",
    rename: Mapping[str, str] | None = None,
) -> Rows:
    """Return the rows of a source's table as the lake should hold them.

    Args:
        url: The database.
        table: As SQL has it, quoted where needed: ``public."Mixed Case"``.
        columns: Some of its columns; by default all but generated ones.
        sid: Added as a last column ``sid`` if given.
        where: A condition in PostgreSQL's SQL.
        rename: Source column -> column of the target.
    """
    wanted = None if columns is None else list(columns)
    with psycopg.connect(url, options="-c timezone=UTC -c intervalstyle=postgres -c datestyle=ISO") as connection:
        described = connection.execute(_DESCRIBE, (table, wanted, wanted)).fetchall()
        fields = [_field(*row) for row in described]
        if wanted is not None:
            fields.sort(key=lambda field: wanted.index(field.name))
        chosen = sql.SQL(", ").join(field.expression for field in fields)
        cursor = connection.execute(sql.SQL("SELECT ") + chosen + sql.SQL(f" FROM {table} WHERE {where}"))
        tail = () if sid is None else (sid,)
        rows = _counted(fields, cursor.fetchall(), tail)
    names = tuple((rename or {}).get(field.name, field.name) for field in fields)
    return Rows(columns=names + (() if sid is None else ("sid",)), rows=rows)


def _counted(fields: Sequence[_Field], found: Sequence[tuple], tail: tuple) -> collections.Counter:
    """Return what is made of the source's answer, column by column: most of them are what they are."""
    if not fields or not found:
        return collections.Counter([tail] * len(found))
    columns = [
        values
        if field.canonical is _same
        else [None if value is None else field.canonical(value) for value in values]
        for field, values in zip(fields, zip(*found, strict=True), strict=True)
    ]
    return collections.Counter(zip(*columns, *([one] * len(found) for one in tail), strict=True))


def _field(name: str, kind: str, typmod: int, dimensions: int, element: str | None) -> _Field:
    column = sql.Identifier(name)
    if element is not None and kind not in ("oidvector", "int2vector"):
        return _list_field(name, element, typmod, dimensions)
    if kind in _INSTANTS:
        # In microseconds, exactly (extract() of these is numeric): Python's datetime ends at the year 9999.
        template = "CASE WHEN isfinite({0}) THEN trunc(extract(epoch FROM {0}) * 1000000)::text ELSE {0}::text END"
        return _Field(name=name, expression=sql.SQL(template).format(column), canonical=_INSTANT_MAKERS[kind])
    if kind == "numeric" and _is_decimal(typmod):
        return _Field(name=name, expression=column, canonical=canonical)
    if kind == "hstore":
        pairs = sql.SQL("ARRAY(SELECT ARRAY[key, value] FROM each({}) ORDER BY key)").format(column)
        guarded = sql.SQL("CASE WHEN {} IS NOT NULL THEN {} END").format(column, pairs)
        return _Field(name=name, expression=guarded, canonical=lambda value: tuple(map(tuple, value)))
    if kind == "vector":
        return _Field(
            name=name, expression=sql.SQL("{}::float4[]").format(column),
            canonical=lambda value: tuple(map(_float4, value)),
        )  # fmt: skip
    if kind in _NATIVE:
        return _Field(name=name, expression=column, canonical=_MAKERS.get(kind, canonical))
    return _text_field(name)


def _text_field(name: str) -> _Field:
    # format() applies the type's output function, as the wire does, where a cast to text may do otherwise. And
    # num_nulls() because a composite value of NULLs only IS NULL in SQL: it is a value all the same.
    template = "CASE WHEN num_nulls({0}) = 0 THEN format('%s', {0}) END"
    return _Field(name=name, expression=sql.SQL(template).format(sql.Identifier(name)), canonical=str)


def _list_field(name: str, element: str, typmod: int, dimensions: int) -> _Field:
    column = sql.Identifier(name)
    if dimensions > 1:
        return _text_field(name)
    if element == "float4":
        make: Callable[[Any], Any] = _float4
    elif element in (*_NATIVE, *_INSTANTS) or (element == "numeric" and _is_decimal(typmod)):
        make = canonical
    else:
        # Element by element: a cast to text[] prints some types otherwise than their output function (inet).
        template = (
            "CASE WHEN {0} IS NOT NULL THEN ARRAY(SELECT CASE WHEN num_nulls(e) = 0 THEN format('%s', e) END"
            " FROM (SELECT unnest({0}) AS e) AS elements) END"
        )
        return _Field(name=name, expression=sql.SQL(template).format(column), canonical=tuple)
    return _Field(
        name=name, expression=column,
        canonical=lambda value: tuple(None if item is None else make(item) for item in value),
    )  # fmt: skip


def _is_decimal(typmod: int) -> bool:
    """Say whether numeric(p,s) has an Iceberg decimal (numeric's typmod: manual, section 8.1.2; s has 11 bits)."""
    precision, scale = (typmod - 4) >> 16, (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    # numeric(10,-2) has 12 digits before the point, numeric(3,5) has 5 behind it.
    return typmod >= 4 and max(precision, precision - scale, scale) <= 38


# --- the lake


def lake_rows_spark(session: Any, table: str, columns: Sequence[str] | None = None, *, where: str = "true") -> Rows:
    """Return the rows of a lake table as Spark reads them; `table` with its catalog, `where` in Spark SQL."""
    frame = session.table(table)
    if where != "true":  # what holds for each row is parsed and analyzed all the same, a fifth of such a read
        frame = frame.where(where)
    return rows_of_arrow((frame.select(*columns) if columns else frame).toArrow())


def lake_rows_pyiceberg(
    properties: Mapping[str, str],
    identifier: str,
    columns: Sequence[str] | None = None,
    *,
    catalog: str = "kuvasz",
) -> Rows:
    """Return the rows of a lake table as PyIceberg reads them; `identifier` is ``namespace.table``."""
    table = open_table(properties, identifier, catalog=catalog)
    return rows_of_arrow(table.scan(selected_fields=tuple(columns or ("*",))).to_arrow())


#: The property of a catalog that says by which branch its tables are read.
BRANCH = "tests.branch"

#: Where the metadata of a table was, and its rows then.
_seen: dict[tuple[str, str], tuple[str, Rows]] = {}


def lake_rows_seen(properties: Mapping[str, str], identifier: str, *, catalog: str = "kuvasz") -> Rows:
    """Return the rows of a lake table, read again only once its metadata is another: for what is waited for.

    Not for what is asserted: a table whose files are gone has the same metadata as before.
    """
    table = open_table(properties, identifier, catalog=catalog)
    name = (properties.get("uri", ""), identifier)
    where, rows = _seen.get(name, ("", None))
    if rows is None or where != table.metadata_location:
        rows = rows_of_arrow(table.scan().to_arrow())
        _seen[name] = (table.metadata_location, rows)
    return rows


@functools.cache
def _duckdb() -> Any:
    """Return DuckDB, which takes 30 ms of CPU to begin: five times what it takes to read a table of the tests."""
    import duckdb

    # What a file has is read again each time: tests damage files, and put others in their places.
    return duckdb.connect(config={"enable_external_file_cache": False})


def lake_rows_duckdb(
    properties: Mapping[str, str],
    identifier: str,
    columns: Sequence[str] | None = None,
    *,
    catalog: str = "kuvasz",
) -> Rows:
    """Return the rows of a lake table as DuckDB's own Parquet reader sees them.

    DuckDB's Iceberg extension has to be downloaded, so the plan (which files, which deletes) comes from PyIceberg;
    columns are matched by field id, and deleted positions are taken out by DuckDB, with deletion vectors read here
    (Iceberg spec, "Deletion vectors"; Puffin spec, "deletion-vector-v1 blob type"). Files on local disk only.
    """
    table = open_table(properties, identifier, catalog=catalog)
    names = [field.name for field in table.schema().fields if columns is None or field.name in columns]
    mapping = ", ".join(map(_duckdb_field, table.schema().fields))
    found: list[pa.Table] = []
    with _duckdb().cursor() as connection:
        connection.execute("SET timezone = 'UTC'")
        for task in table.scan().plan_files():
            connection.register("deleted", pa.table({"pos": pa.array(_deleted_positions(task), pa.int64())}))
            path = _path(task.file.file_path)
            arrow = connection.sql(
                f"SELECT {', '.join(_quoted(name) for name in names)}"
                f" FROM read_parquet('{path}', schema = MAP {{{mapping}}}, file_row_number = true)"
                " WHERE file_row_number NOT IN (SELECT pos FROM deleted)"
            ).to_arrow_table()  # fmt: skip
            found.append(arrow)
    return rows_of_arrow(pa.concat_tables(found)) if found else Rows(columns=tuple(names), rows=collections.Counter())


def open_table(properties: Mapping[str, str], identifier: str, *, catalog: str = "kuvasz") -> Any:
    """Return PyIceberg's table; see `open_catalog`. It shows what the branch has that the properties name."""
    found = open_catalog(properties, catalog=catalog).load_table(identifier)
    if (ref := found.metadata.refs.get(properties.get(BRANCH, "main"))) is not None:
        found.metadata = found.metadata.model_copy(update={"current_snapshot_id": ref.snapshot_id})
    return found


def open_catalog(properties: Mapping[str, str], *, catalog: str = "kuvasz") -> Any:
    """Return PyIceberg's catalog. Properties may be Spark's spelling of a SQL catalog (``jdbc:sqlite:FILE``)."""
    chosen = {"type": "sql", **properties}
    uri = chosen.get("uri", "")
    if uri.startswith("jdbc:sqlite:"):
        chosen |= {"type": "sql", "uri": f"sqlite:///{uri.removeprefix('jdbc:sqlite:')}"}
    file = Path(chosen.get("uri", "").removeprefix("sqlite:///"))
    if file.is_file():
        return _catalog(catalog, tuple(chosen.items()), file.stat().st_ino)
    return _catalog.__wrapped__(catalog, tuple(chosen.items()), 0)


@functools.lru_cache(maxsize=4)
def _catalog(name: str, properties: tuple[tuple[str, str], ...], file: int) -> Any:
    """Return a catalog, the same one for the same file: to open it takes most of what it takes to find a table."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **dict(properties))


def rows_of_arrow(table: pa.Table) -> Rows:
    """Return an Arrow table's rows in the canonical form."""
    columns = [_column(column) for column in table.columns]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    return Rows(columns=tuple(table.column_names), rows=collections.Counter(rows))


def _column(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) and isinstance(kind, pa.UuidType):
        return [None if value is None else str(value) for value in column.to_pylist()]
    if pa.types.is_fixed_size_binary(kind):  # Iceberg's uuid, where a reader gives its bytes
        return [None if value is None else str(uuid.UUID(bytes=value)) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        make = _INSTANT_MAKERS["timestamp" if kind.tz is None else "timestamptz"]
        micros = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return [None if value is None else make(value) for value in micros]
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32()).to_pylist()
        return [None if value is None else _date(value * _DAY_US) for value in days]
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_pylist()
    if pa.types.is_map(kind):
        return [None if value is None else tuple(sorted(value)) for value in column.to_pylist()]
    return [None if value is None else canonical(value) for value in column.to_pylist()]


def _duckdb_field(field: Any) -> str:
    # A column added with a default: rows written before it hold that (Iceberg spec, "Default values").
    value = field.initial_default
    default = "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"
    name, kind = field.name.replace("'", "''"), _duckdb_type(field.field_type)
    return f"{field.field_id}: {{name: '{name}', type: '{kind}', default_value: {default}}}"


def _duckdb_type(kind: Any) -> str:
    text = str(kind)
    if text.startswith("list<"):
        return f"{_duckdb_type(kind.element_type)}[]"
    if text.startswith("map<"):
        return f"MAP({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.value_type)})"
    names = {"boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
             "string": "VARCHAR", "binary": "BLOB", "date": "DATE", "timestamp": "TIMESTAMP", "uuid": "UUID",
             "timestamptz": "TIMESTAMP WITH TIME ZONE"}  # fmt: skip
    return names.get(text, text.upper())


def _deleted_positions(task: Any) -> list[int]:
    """Return the deleted positions of one data file, from its deletion vector or its position delete files."""
    import pyarrow.parquet

    positions: list[int] = []
    for delete in task.delete_files:
        path = _path(delete.file_path)
        if path.endswith(".puffin"):
            for referenced, bitmap in deletion_vectors(path):
                if referenced == task.file.file_path:
                    positions += bitmap
        else:
            rows = pyarrow.parquet.read_table(path, columns=["file_path", "pos"])
            positions += rows.filter(pa.compute.equal(rows["file_path"], task.file.file_path))["pos"].to_pylist()
    return positions


def deletion_vectors(path: str) -> Iterable[tuple[str, list[int]]]:
    """Yield (data file, deleted positions) for each deletion vector of a Puffin file (Puffin spec, "Footer")."""
    import json
    from pathlib import Path

    content = Path(path).read_bytes()
    assert content[:4] == content[-4:] == b"PFA1", path
    [size] = struct.unpack("<i", content[-12:-8])
    for blob in json.loads(content[-12 - size : -12])["blobs"]:
        assert blob["type"] == "deletion-vector-v1", blob
        raw = content[blob["offset"] : blob["offset"] + blob["length"]]
        [length] = struct.unpack(">i", raw[:4])
        assert raw[4:8] == b"\xd1\xd3\x39\x64", "the magic of a deletion vector"
        bitmap = pyroaring.BitMap64.deserialize(raw[8 : 4 + length])
        assert len(bitmap) == int(blob["properties"]["cardinality"]), blob
        yield blob["properties"]["referenced-data-file"], list(bitmap)


def _path(location: str) -> str:
    return urllib.parse.unquote(location.removeprefix("file://").removeprefix("file:"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --- values

_DAY_US = 86_400_000_000
_FIRST_US = -62_135_596_800_000_000  #: 0001-01-01
_END_US = 253_402_300_800_000_000  #: 10000-01-01
_KEPT = 100_000  #: instants of rows: those of one transaction are alike
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001


def canonical(value: Any) -> Any:
    """Return a value's canonical form; never called with None."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return "NaN"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    if isinstance(value, list | np.ndarray):
        return tuple(None if item is None else canonical(item) for item in value)
    return value


def _float4(value: float) -> Any:
    return canonical(float(np.float32(value)))


def _same(value: Any) -> Any:
    """Return the canonical form of an integer, a boolean or a text: itself."""
    return value


@functools.lru_cache(_KEPT)
def _timestamp(micros: int | str) -> Any:
    if isinstance(micros, str) and micros.lstrip("-").isalpha():
        return micros  # infinity, -infinity
    number = int(micros)
    if _FIRST_US <= number < _END_US:
        return _EPOCH + datetime.timedelta(microseconds=number)
    return str(np.datetime64(number, "us"))


@functools.lru_cache(_KEPT)
def _timestamptz(micros: int | str) -> Any:
    value = _timestamp(micros)
    return value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value


@functools.lru_cache(_KEPT)
def _date(micros: int | str) -> Any:
    value = _timestamp(micros)
    return value.date() if isinstance(value, datetime.datetime) else value.partition("T")[0]


#: Of native types whose values are not made canonical by looking at each.
_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "float4": _float4, **dict.fromkeys(("bool", "int2", "int4", "int8", "oid", "text", "varchar", "bpchar"), _same),
}  # fmt: skip
_INSTANT_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "date": _date,
}
