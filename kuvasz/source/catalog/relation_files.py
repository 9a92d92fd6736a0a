"""The files of tables that may be written without WAL while they are published.

A table that a publication names cannot be made unlogged, but one that is published with its schema, or with all
tables, can (manual, "ALTER TABLE", SET LOGGED | UNLOGGED). Both write it into another file, beside which they make
another TOAST table (PostgreSQL's `finish_heap_swap`, without `swap_toast_by_content`). TRUNCATE, VACUUM FULL and
CLUSTER give the TOAST table that is there another file, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kuvasz.model import TableName
from kuvasz.source import failure, sql
from kuvasz.source.catalog.partitions import HORIZON, look_into
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

_FILES = f"""
SELECT c.oid::bigint, c.relfilenode::bigint, c.xmin::text::bigint,
    CASE WHEN c.xmax::text = '0' THEN c.cmin::text::bigint END, c.reltoastrelid::bigint,
    ARRAY(SELECT r.oid::bigint FROM pg_publication_rel r WHERE r.prrelid = c.oid ORDER BY r.oid),
    {HORIZON}
FROM pg_class c WHERE c.oid = ANY(%s::oid[]) AND c.relkind = 'r'
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelationFile:
    """The file of one table as it is now."""

    file: int  #: relfilenode
    file_xid: int  #: transaction that gave it that file, or changed its catalog entry otherwise since
    command: int | None = 0  #: of that transaction, which did so; None: one that was rolled back has its place
    toast: int = 0  #: OID of its TOAST table; 0: it has none
    named: tuple[int, ...] = ()  #: OIDs of the entries by which publications name it: another one after DROP and ADD
    horizon: int  #: each transaction below was over, as `partitions.HORIZON` has it


def load(connection: psycopg.Connection[Any], oids: Collection[int]) -> dict[int, RelationFile]:
    """Return the files of tables, by OID; partitioned ones have none.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "read the files of tables"):
        rows = connection.execute(_FILES, (list(oids),)).fetchall() if oids else []
    return {
        oid: RelationFile(
            file=file, file_xid=xid, command=command, toast=toast, named=tuple(named), horizon=horizon
        )
        for oid, file, xid, command, toast, named, horizon in rows
    }  # fmt: skip


def begins_with_an_insert(
    connection: psycopg.Connection[Any], table: TableName, oid: int, now: RelationFile
) -> bool:  # fmt: skip
    """Return whether the first row of a file was inserted by the transaction that made the file, once it was made.

    SET LOGGED fills a file before the table gets it, from its first page on, so that the first row has no later
    command than the table's entry in the catalog; who inserts into a truncated table does it by a later one. A row
    with an `xmax` may have another's command in its place, and proves nothing. One page is read.

    Args:
        connection: To the source.
        table: The table.
        oid: Its OID.
        now: The file.

    Raises:
        SourceLocked: Somebody has locked it.
        SourceError: The table is gone, or cannot be read.
    """
    query = (
        f"SELECT EXISTS (SELECT FROM ONLY {sql.qualified(table)} WHERE ctid = '(0,1)' AND tableoid = %s::oid"
        " AND xmin::text::bigint = %s AND xmax::text = '0' AND cmin::text::bigint > %s::bigint)"
    )
    return look_into(connection, f"look into table {table}", query, (oid, now.file_xid, now.command))


__all__ = ["RelationFile", "begins_with_an_insert", "load"]
