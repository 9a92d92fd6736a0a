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
    connection: psycopg.Connection[Any],
    table: TableName,
    columns: Sequence[str],
    wanted: Mapping[str, str],
    *,
    is_partitioned: bool = False,
) -> list[dict[str, str | None]]:
    """Return the first rows that have some values, as PostgreSQL prints them, each column by its name.

    A value is compared as the column's own type, so that the server can take an index. What the table's owner has run
    by that, see `kuvasz.source.snapshot.LEAVING`, writes nothing and leaves nothing.

    Args:
        connection: An ordinary session.
        table: The table; rows of tables that inherit from it are not its own.
        columns: What is wanted of them.
        wanted: Column -> its value as text.
        is_partitioned: Whether it is: then the rows of all partitions are meant.

    Raises:
        SourceError: The query failed, or a value is none of its column's type.
    """
    shown = ", ".join(map(_name, columns))  # as they are printed: a cast to text may be of somebody's own
    where = " AND ".join(f"{_name(name)} = %s" for name in wanted)
    name = f"{'' if is_partitioned else 'ONLY '}{sql.qualified(table).replace('%', '%%')}"
    query = f"SELECT {shown} FROM {name} WHERE {where} LIMIT {_MOST}"
    with (
        failure.translated(place_of(table=table), "look for a row"),
        connection.transaction(force_rollback=True),
    ):
        connection.execute("SET TRANSACTION READ ONLY")
        found = connection.execute(query, list(wanted.values())).pgresult
        assert found is not None
        return [
            {name: _text(found.get_value(row, place)) for place, name in enumerate(columns)}
            for row in range(found.ntuples)
        ]


def _text(printed: bytes | None) -> str | None:
    return None if printed is None else printed.decode()


def _name(name: str) -> str:
    """Return a name as a statement with parameters has it."""
    return sql.identifier(name).replace("%", "%%")


__all__ = ["rows"]
