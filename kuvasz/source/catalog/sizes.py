"""What tables take on the source's disk: asked only where a copy is planned, for a size has its price.

``pg_relation_size`` opens the table, so it waits for whoever holds it in ACCESS EXCLUSIVE mode: VACUUM FULL, CLUSTER,
a rewriting ALTER TABLE (manual, sections 9.28.7 "Database Object Management Functions" and 13.3.1 "Table-Level
Locks"). Nothing else that kuvasz asks the catalog about tables does, so a table that is locked for hours is looked at
as any other, and streams. ``relpages`` needs no lock, but is 0 until the first VACUUM or ANALYZE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kuvasz.errors import SourceLocked
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

    from kuvasz.source.catalog.table import SourceTable

#: How long a size that may be missing is waited for: long enough for a statement of somebody else to pass.
_LOCK_MS = 100

_SIZES = """
SELECT c.oid::bigint, CASE WHEN c.relkind = 'r' THEN coalesce(pg_relation_size(c.oid), 0) ELSE 0 END,
    CASE WHEN c.reltoastrelid <> 0 THEN coalesce(pg_relation_size(c.reltoastrelid), 0) ELSE 0 END
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


def sized(connection: psycopg.Connection[Any], table: SourceTable) -> SourceTable:
    """Return a table with its size, and those of its partitions, as they are now.

    Raises:
        SourceLocked: It, or a partition, is locked exclusively for longer than the session waits.
        SourceError: The query failed.
    """
    return _with(table, _load(connection, _oids([table])))


def sized_unless_locked(connection: psycopg.Connection[Any], tables: Collection[SourceTable]) -> list[SourceTable]:
    """Return tables with their sizes; those that are locked exclusively have none.

    Args:
        connection: An ordinary session, in no transaction.
        tables: As the catalog has them.

    Raises:
        SourceError: The query failed.
    """
    if not tables:
        return []
    try:
        found = _load_soon(connection, tables)
    except SourceLocked:
        return [_sized_alone(connection, table) for table in tables]
    return [_with(table, found) for table in tables]


def _sized_alone(connection: psycopg.Connection[Any], table: SourceTable) -> SourceTable:
    try:
        return _with(table, _load_soon(connection, [table]))
    except SourceLocked:
        return table


def _load_soon(connection: psycopg.Connection[Any], tables: Collection[SourceTable]) -> Mapping[int, tuple[int, int]]:
    with failure.translated(place(connection), "read the sizes of tables"), connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
        return _load(connection, _oids(tables))


def _load(connection: psycopg.Connection[Any], oids: Collection[int]) -> Mapping[int, tuple[int, int]]:
    """Return bytes of the main fork and of TOAST by OID."""
    with failure.translated(place(connection), "read the sizes of tables"):
        rows = connection.execute(_SIZES, (list(oids),)).fetchall()
    return {oid: (main_bytes, toast_bytes) for oid, main_bytes, toast_bytes in rows}


def _oids(tables: Iterable[SourceTable]) -> list[int]:
    return [oid for table in tables for oid in (table.relation.oid, *(leaf.oid for leaf in table.leaves))]


def _with(table: SourceTable, found: Mapping[int, tuple[int, int]]) -> SourceTable:
    leaves = tuple(
        dataclasses.replace(leaf, pages=main_bytes // leaf.page_bytes, toast_bytes=toast_bytes)
        for leaf in table.leaves
        for main_bytes, toast_bytes in (found.get(leaf.oid, (0, 0)),)
    )
    main_bytes, toast_bytes = found.get(table.relation.oid, (0, 0))
    return dataclasses.replace(
        table, leaves=leaves,
        pages=main_bytes // table.page_bytes + sum(leaf.pages or 0 for leaf in leaves),
        toast_bytes=toast_bytes + sum(leaf.toast_bytes or 0 for leaf in leaves),
    )  # fmt: skip


__all__ = ["sized", "sized_unless_locked"]
