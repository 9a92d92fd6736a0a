"""The catalog's entries that a copy's statements name, so that it is seen whether one was changed meanwhile.

A COPY names a table and columns, and PostgreSQL looks names up in the catalog of that moment, whatever snapshot shows
the rows. What was renamed, or dropped and made anew, between two ranges of one copy would be read under the name of
what the snapshot knows, and no file of the table would tell. But whatever is altered of a column is another version
of its row in ``pg_attribute``, with the transaction that wrote it (manual, section 53.7 "pg_attribute").
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from kuvasz.model import TableName
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

#: OID, schema and name of a table; number, name and transaction of a column, None for a table that has none.
Entry: TypeAlias = tuple[int, str, str, int | None, str | None, str | None]

_ENTRIES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, a.attnum::int, a.attname::text, a.xmin::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = ANY(%s::oid[])
"""


_VERSIONS = """
SELECT concat_ws(' ', c.oid || ':' || c.xmin, c.relfilenode, (
    SELECT string_agg(i.indexrelid || ':' || i.xmin, ' ' ORDER BY i.indexrelid) FROM pg_index i
    WHERE i.indrelid = c.oid AND i.indisunique))
FROM pg_class c WHERE c.oid = %(oid)s
"""


def load(connection: psycopg.Connection[Any], oids: Collection[int]) -> frozenset[Entry]:
    """Return the entries of tables, by their OIDs; those that are gone are left out.

    In a transaction with an exported snapshot these are the ones that the snapshot shows.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "read the catalog"):
        return frozenset(connection.execute(_ENTRIES, (sorted(oids),)).fetchall())


def versions(connection: psycopg.Connection[Any], oid: int) -> str:
    """Return by which transactions the rows of a table and of its unique indexes in the catalog were written.

    They are others once the table was altered in any way, its replica identity included, also if that was undone.
    VACUUM and ANALYZE leave them.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "read the catalog"):
        row = connection.execute(_VERSIONS, {"oid": oid}).fetchone()
    return "" if row is None else str(row[0])


def changed(before: Collection[Entry], now: Collection[Entry], oid: int) -> list[TableName]:
    """Return which tables have entries that are not as they were, by the names that they had.

    What was added since counts for nothing, since no statement names it. Nor does a partition that is gone.

    Args:
        before: As the snapshot shows them.
        now: The entries of the same tables, later.
        oid: The OID of the table itself, which has to be there.
    """
    there = {entry[0] for entry in now} | {oid}
    lost = {entry[:3] for entry in set(before).difference(now)}
    return sorted((TableName(schema=schema, name=name) for one, schema, name in lost if one in there), key=str)


__all__ = ["Entry", "changed", "load", "versions"]
