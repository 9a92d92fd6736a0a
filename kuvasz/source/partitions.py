"""The partitions of a partitioned table, and rows in them that no stream carries.

Published under its root, a partition's changes are in the stream from the moment it is attached. Rows that it had
before are not: nobody inserted them into the root. So each partition is known by how it hangs in the tree: the rows
of ``pg_inherits`` from it up to the root, each with the transaction that wrote it. Detached and attached again it
hangs in another way. See the manual, sections 5.12 "Table Partitioning" and 53.26 "pg_inherits".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kuvasz.model import TableName
from kuvasz.source import failure, sql
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

# The newest link decides: a whole branch may be attached at once.
_PARTITIONS = """
WITH RECURSIVE tree (root, oid, links, xid, cid, written) AS (
    SELECT i.inhparent, i.inhrelid, i.inhrelid::text || ':' || i.xmin::text, i.xmin::text, i.cmin::text::bigint,
        age(i.xmin)
    FROM pg_inherits i WHERE i.inhparent = ANY(%s::oid[]) AND NOT i.inhdetachpending
    UNION ALL
    SELECT tree.root, i.inhrelid, tree.links || ' ' || i.inhrelid::text || ':' || i.xmin::text,
        CASE WHEN age(i.xmin) <= tree.written THEN i.xmin::text ELSE tree.xid END,
        CASE WHEN i.xmin::text = tree.xid THEN greatest(i.cmin::text::bigint, tree.cid)
            WHEN age(i.xmin) < tree.written THEN i.cmin::text::bigint ELSE tree.cid END,
        least(age(i.xmin), tree.written)
    FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending)
SELECT tree.root::bigint, n.nspname::text, c.relname::text, tree.links, tree.xid, tree.cid
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' ORDER BY n.nspname, c.relname
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition with rows, as it hangs in its tree now."""

    table: TableName
    links: str  #: from the root down: OID and transaction of each link; another one after DETACH and ATTACH
    xid: str  #: transaction of the newest link
    command: int  #: its command within that transaction


def load(connection: psycopg.Connection[Any], roots: Collection[int]) -> dict[int, list[Partition]]:
    """Return the partitions of partitioned tables by the tables' OIDs.

    Raises:
        SourceError: The query failed.
    """
    found: dict[int, list[Partition]] = {root: [] for root in roots}
    with failure.translated(place(connection), "read the partitions"):
        for root, schema, name, links, xid, command in connection.execute(_PARTITIONS, (list(roots),)).fetchall():
            table = TableName(schema=schema, name=name)
            found[root].append(Partition(table=table, links=links, xid=xid, command=command))
    return found


def has_earlier_rows(connection: psycopg.Connection[Any], partition: Partition) -> bool:
    """Return whether a partition holds rows from before it was attached.

    A row counts as earlier if its transaction is older than the one that attached the partition, or if it is the
    same and wrote the row first. A transaction that began before the attaching one and inserted after it is mistaken
    for one, which is the safe side.

    Raises:
        SourceError: The partition is gone, or cannot be read.
    """
    query = (
        f"SELECT EXISTS (SELECT FROM ONLY {sql.qualified(partition.table)} WHERE age(xmin) > age(%s::text::xid)"
        " OR (xmin::text = %s AND cmin::text::bigint < %s))"
    )
    with failure.translated(place(connection), f"look into partition {partition.table}"):
        row = connection.execute(query, (partition.xid, partition.xid, partition.command)).fetchone()
    return bool(row and row[0])


__all__ = ["Partition", "has_earlier_rows", "load"]
