"""One content hash of a table's rows, spelled in each SQL dialect that looks at them.

A row is brought to one text (its columns, separated), hashed with MD5, and the first 60 bits are summed over all
rows: the sum does not depend on the order of rows, counts duplicates, and differs when any value of any row does.
PostgreSQL, Spark and DuckDB compute the same number for the same rows, so two tables are compared by content
without moving them.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Form(enum.Enum):
    """How a column's value becomes text that all dialects agree on."""

    TEXT = "text"  #: integers, decimals of one scale, booleans, text, JSON kept as text: a plain cast
    INSTANT = "instant"  #: timestamptz: microseconds since 1970-01-01 UTC


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowField:
    """One column that takes part."""

    name: str
    form: Form = Form.TEXT


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowFingerprint:
    """What a table's rows come to."""

    rows: int
    total: int  #: sum over the rows of 60 bits of their hash


#: Between two columns, and in the place of NULL: control characters that the compared tables do not hold.
_SEPARATOR, _NULL = "chr(31)", "chr(30)"


def postgres_query(table: str, fields: Iterable[RowField]) -> str:
    """Return the query (count, total) for PostgreSQL; `table` is quoted already, if it must be."""
    texts = [
        f'(extract(epoch FROM "{field.name}") * 1000000)::bigint::text' if field.form is Form.INSTANT
        else f'"{field.name}"::text'
        for field in fields
    ]  # fmt: skip
    digest = f"('x' || substr(md5({_row(texts)}), 1, 15))::bit(60)::bigint"
    return f"SELECT count(*), coalesce(sum({digest}), 0)::numeric(38,0) FROM {table}"


def spark_query(table: str, fields: Iterable[RowField]) -> str:
    """Return the query (sid, count, total) for Spark: a row per source, all in one reading of the table."""
    texts = [
        f"CAST(unix_micros(`{field.name}`) AS string)"
        if field.form is Form.INSTANT
        else f"CAST(`{field.name}` AS string)"
        for field in fields
    ]
    digest = f"CAST(conv(substr(md5({_row(texts)}), 1, 15), 16, 10) AS decimal(38,0))"
    return f"SELECT sid, count(*), sum({digest}) FROM {table} GROUP BY sid"


def duckdb_query(relation: str, fields: Iterable[RowField], *, sid: str | None = None) -> str:
    """Return the query (count, total) for DuckDB, of one source's rows where `sid` is given."""
    texts = [
        f'epoch_us("{field.name}")::varchar' if field.form is Form.INSTANT else f'"{field.name}"::varchar'
        for field in fields
    ]
    digest = f"('0x' || substr(md5({_row(texts)}), 1, 15))::bigint"
    return f"SELECT count(*), coalesce(sum({digest}), 0)::hugeint FROM {relation}{_of(sid)}"


def _row(texts: Iterable[str]) -> str:
    return f"concat_ws({_SEPARATOR}, {', '.join(f'coalesce({text}, {_NULL})' for text in texts)})"


def _of(sid: str | None) -> str:
    return "" if sid is None else f" WHERE sid = '{sid}'"
