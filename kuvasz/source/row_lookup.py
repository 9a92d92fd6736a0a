"""Rows of a source table that have some values: what it has now of a row that somebody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz.errors import place_of
from kuvasz.source import failure, sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from kuvasz.model import TableName

#: Rows that are returned at most: a key has one.
_MOST = 100


def rows(
    connection: psycopg.Connection[Any], table: TableName, columns: Sequence[str], wanted: Mapping[str, str]
) -> list[dict[str, str | None]]:
    """Return the first rows that have some values, as PostgreSQL prints them, each column by its name.

    A value is compared as the column's own type, so that the server can take an index.

    Args:
        connection: An ordinary session.
        table: The table; of a partitioned one the rows of all partitions.
        columns: What is wanted of them.
        wanted: Column -> its value as text.

    Raises:
        SourceError: The query failed, or a value is none of its column's type.
    """
    shown = ", ".join(f"{_name(name)}::text" for name in columns)
    where = " AND ".join(f"{_name(name)} = %s" for name in wanted)
    query = f"SELECT {shown} FROM {sql.qualified(table).replace('%', '%%')} WHERE {where} LIMIT {_MOST}"
    with failure.translated(place_of(table=table), "look for a row"):
        found = connection.execute(query, list(wanted.values())).fetchall()
    return [dict(zip(columns, row, strict=True)) for row in found]


def _name(name: str) -> str:
    """Return a name as a statement with parameters has it."""
    return sql.identifier(name).replace("%", "%%")


__all__ = ["rows"]
