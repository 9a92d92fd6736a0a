"""The partitions of a partitioned table, and rows in them that no stream carries.

Published under its root, a partition's changes are in the stream from the moment it is attached. Rows that it had
before are not: nobody inserted them into the root. So each partition is known by how it hangs in the tree: the rows
of ``pg_inherits`` from it up to the root, each with the transaction that wrote it. Detached and attached again it
hangs in another way. Nor is the TRUNCATE of a single partition in the stream; what is left of one is another file.
See the manual, sections 5.12 "Table Partitioning" and 53.26 "pg_inherits".

Before version 15 a connection asks by what a table is published when the first change of it comes, and not again
(`rel_sync_cache_relation_cb` in pgoutput.c): what it sent nothing of before it was attached it goes on to leave out,
and what it sent as rows of a root it goes on to send so when that is detached. One that begins behind does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.model import TableName
from kuvasz.source import conninfo, failure, sql
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
SELECT tree.root::bigint, n.nspname::text, c.relname::text, c.oid::bigint, c.relfilenode::bigint,
    c.xmin::text::bigint, CASE WHEN c.xmax::text = '0' THEN c.cmin::text::bigint END, c.reltoastrelid::bigint,
    tree.links, tree.xid, tree.cid
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' ORDER BY n.nspname, c.relname
"""


#: Whether a table hangs where it was made: ATTACH writes each of its columns anew, and nobody those of the system.
_IS_MADE = """
EXISTS (SELECT FROM pg_attribute made JOIN pg_attribute a ON a.attrelid = made.attrelid
WHERE made.attrelid = t.oid AND made.attnum = -1 AND a.attnum > 0 AND NOT a.attisdropped
    AND a.xmin::text = made.xmin::text AND a.cmin::text = made.cmin::text)
"""


#: What a horizon is in SQL: the timeline above 48 bits of transaction, since a standby that took over without what
#: the old primary wrote last gives the same numbers again. Earlier versions noted no timeline: 0. A standby that
#: changed over just now may tell the one before, as if it were from before then: the safe side.
HORIZON = """
(((CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END)::bigint << 48)
    | pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
"""
_XID_BITS = 48

#: The first version whose connections see that a partition was attached or detached.
_SEEN_SINCE = 150000


def timeline_of(horizon: int) -> int:
    """Return the timeline of a horizon; 0: unknown."""
    return horizon >> _XID_BITS


def blank_horizon(timeline: int) -> int:
    """Return the horizon on a timeline before which no transaction is."""
    return timeline << _XID_BITS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition with rows, as it hangs in its tree now."""

    table: TableName
    oid: int
    file: int  #: its relfilenode: that of a table that was neither truncated nor rewritten is its OID
    file_xid: int  #: transaction that gave it that file, or changed its catalog entry otherwise since
    file_command: int | None = 0  #: of that transaction, which did so; None: one that was rolled back has its place
    toast: int = 0  #: OID of its TOAST table, another one after SET UNLOGGED and SET LOGGED; 0: it has none
    links: str  #: from the root down: OID and transaction of each link; another one after DETACH and ATTACH
    xid: str  #: transaction of the newest link
    command: int  #: its command within that transaction

    @property
    def newest(self) -> list[int]:
        """The OIDs of what hangs by links of that transaction."""
        links = (link.split(":") for link in self.links.split(" "))
        return [int(oid) for oid, xid in links if xid == self.xid]


def load(connection: psycopg.Connection[Any], roots: Collection[int]) -> dict[int, list[Partition]]:
    """Return the partitions of partitioned tables by the tables' OIDs.

    Raises:
        SourceError: The query failed.
    """
    found: dict[int, list[Partition]] = {root: [] for root in roots}
    with failure.translated(place(connection), "read the partitions"):
        for root, schema, name, oid, *filed, links, xid, command in connection.execute(
            _PARTITIONS, (list(roots),)
        ).fetchall():
            table = TableName(schema=schema, name=name)
            file, file_xid, file_command, toast = filed
            found[root].append(
                Partition(
                    table=table, oid=oid, file=file, file_xid=file_xid, file_command=file_command, toast=toast,
                    links=links, xid=xid, command=command,
                )
            )  # fmt: skip
    return found


def are_seen(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a connection that streams sees that partitions come and go."""
    return connection.info.server_version >= _SEEN_SINCE


def horizon(connection: psycopg.Connection[Any]) -> int:
    """Return the transaction before which all are over, as `HORIZON` has it.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "ask which transactions are over"):
        row = connection.execute(f"SELECT {HORIZON}").fetchone()
    assert row is not None
    return int(row[0])


def types(connection: psycopg.Connection[Any], roots: Collection[int]) -> dict[int, str]:
    """Return the types of tables' columns, by the tables' OIDs: number, type and modifier of each.

    Raises:
        SourceError: The query failed.
    """
    query = """
        SELECT attrelid::bigint, string_agg(concat_ws(':', attnum, atttypid, atttypmod), ' ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 AND NOT attisdropped GROUP BY attrelid
    """
    with failure.translated(place(connection), "read the types of columns"):
        return dict(connection.execute(query, (list(roots),)).fetchall() if roots else ())


def altered(connection: psycopg.Connection[Any], root: int, partition: Partition) -> frozenset[int]:
    """Return the root's columns, by number, that the transaction of a partition's file changed there in any way.

    Raises:
        SourceError: The query failed.
    """
    query = """
        SELECT r.attnum FROM pg_attribute a JOIN pg_attribute r ON r.attrelid = %s AND r.attname = a.attname
        WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.xmin::text::bigint = %s
    """
    with failure.translated(place(connection), f"look at the columns of partition {partition.table}"):
        rows = connection.execute(query, (root, partition.oid, partition.file_xid)).fetchall()
    return frozenset(number for (number,) in rows)


def look_into(
    connection: psycopg.Connection[Any], action: str, query: str, parameters: tuple[object, ...]
) -> bool:  # fmt: skip
    """Return what a query says of the rows of one table; whoever has locked that is waited for a moment only.

    What the table's owner has run by that, see `kuvasz.source.snapshot.LEAVING`, writes nothing and leaves nothing.

    Args:
        connection: To the source, in no transaction.
        action: What is done, for a message, as `failure.translated` takes it.
        query: The query; returns one truth value.
        parameters: The parameters of the query.

    Raises:
        SourceLocked: The table stays locked.
        SourceError: It is gone, or cannot be read.
    """
    with failure.translated(place(connection), action), connection.transaction(force_rollback=True):
        connection.execute(f"SET TRANSACTION READ ONLY; {conninfo.LOCK_WAIT}")
        row = connection.execute(query, parameters).fetchone()
    return bool(row and row[0])


def has_rewritten_rows(connection: psycopg.Connection[Any], partition: Partition) -> bool:
    """Return whether a partition may hold rows that were in its file before it got that, as SET LOGGED writes them.

    TRUNCATE leaves none: what is there was inserted by its transaction later on, or by a younger one. GRANT, ADD
    COLUMN and the like change the entry in the catalog since, so older rows are taken for such ones, and so is a row
    with an `xmax`, which may have another's command in its place.

    Raises:
        SourceLocked: Somebody has locked it.
        SourceError: The partition is gone, or cannot be read.
    """
    query = (
        f"SELECT EXISTS (SELECT FROM ONLY {sql.qualified(partition.table)} WHERE age(xmin) > age(%s::text::xid)"
        " OR xmin::text::bigint = %s AND (xmax::text <> '0' OR (cmin::text::bigint <= %s::bigint) IS NOT FALSE))"
    )
    xid = partition.file_xid
    return look_into(connection, f"look into partition {partition.table}", query, (xid, xid, partition.file_command))


def has_rows_from_before(connection: psycopg.Connection[Any], table: TableName, horizon: int) -> bool:
    """Return whether a table without partitions, or a partition, holds rows of transactions over at a horizon.

    A TRUNCATE after it would have taken them, and SET LOGGED have written them anew: what gave the table another file
    was VACUUM FULL or CLUSTER, which leave each row its transaction. No such row proves nothing. Nor does a horizon
    from which on transactions have come round once, since frozen rows keep the number that they had, one that lies
    ahead, since the server was put back to an older state, or one of a timeline that was left.

    Raises:
        SourceLocked: Somebody has locked it.
        SourceError: The table is gone, or cannot be read.
    """
    timeline, xid = timeline_of(horizon), horizon % (1 << _XID_BITS)
    query = (
        f"SELECT %s::bigint IN (0, {HORIZON} >> {_XID_BITS})"
        " AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint - %s::bigint BETWEEN 0 AND 2::bigint ^ 31 - 1"
        f" AND EXISTS (SELECT FROM ONLY {sql.qualified(table)} WHERE age(xmin) > age(%s::text::xid8::xid))"
    )
    return look_into(connection, f"look into table {table}", query, (timeline, xid, xid))


def is_attached(connection: psycopg.Connection[Any], partition: Partition) -> bool:
    """Return whether a partition, or what it hangs in, was a table of its own before; else it was made as it hangs.

    Raises:
        SourceError: The query failed.
    """
    query = f"SELECT EXISTS (SELECT FROM unnest(%s::oid[]) AS t (oid) WHERE NOT {_IS_MADE})"
    with failure.translated(place(connection), f"look into partition {partition.table}"):
        row = connection.execute(query, (partition.newest,)).fetchone()
    return bool(row and row[0])


def is_confirmed(connection: psycopg.Connection[Any], slot: str, at_lsn: int) -> bool:
    """Return whether the next stream of a slot begins behind a place.

    Raises:
        SourceError: The query failed.
    """
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    with failure.translated(place(connection), f"look how far slot {slot} is"):
        row = connection.execute(query, (lsn.render(at_lsn), slot)).fetchone()
    return bool(row and row[0])


def unsettled(connection: psycopg.Connection[Any], slot: str, found: Collection[Partition]) -> frozenset[str]:
    """Return the links of partitions that may have been attached behind the place where a slot's next stream begins.

    What is over for the slot's `catalog_xmin` was over where it is confirmed.

    Raises:
        SourceError: The query failed.
    """
    if are_seen(connection):
        return frozenset()
    query = """
        SELECT DISTINCT u.xid FROM unnest(%s::text[]) AS u (xid) WHERE NOT coalesce(
            (SELECT age(u.xid::xid) > age(s.catalog_xmin) FROM pg_replication_slots s WHERE s.slot_name = %s), false)
    """
    with failure.translated(place(connection), f"look how far slot {slot} is"):
        rows = connection.execute(query, ([partition.xid for partition in found], slot)).fetchall()
    young = [partition for partition in found if (partition.xid,) in rows]
    return frozenset(partition.links for partition in young if is_attached(connection, partition))


def has_earlier_rows(connection: psycopg.Connection[Any], partition: Partition) -> bool:
    """Return whether a partition holds rows from before it was attached.

    One that was made as a partition has none. Else a row counts as earlier if its transaction is older than the one
    that attached the partition, or if it was written by an earlier command than that of the attaching one: a
    savepoint has a number of its own, and counts its commands with its transaction. A transaction that inserted after
    the attaching one is mistaken for one where it is older, or where the attaching one had done more before; that is
    the safe side. Where a stream may have left out all rows of what was attached, see the module, any row counts.

    Raises:
        SourceLocked: Somebody has locked it, and for longer than is waited.
        SourceError: The partition is gone, or cannot be read.
    """
    query = (
        f"SELECT EXISTS (SELECT FROM ONLY {sql.qualified(partition.table)} WHERE age(xmin) > age(%s::text::xid)"
        f" OR cmin::text::bigint < %s OR {not are_seen(connection)})"
    )
    if not is_attached(connection, partition):
        return False  # without a look into it, for which somebody may have locked it
    return look_into(connection, f"look into partition {partition.table}", query, (partition.xid, partition.command))


__all__ = [
    "HORIZON",
    "Partition",
    "altered",
    "are_seen",
    "blank_horizon",
    "has_earlier_rows",
    "has_rewritten_rows",
    "has_rows_from_before",
    "horizon",
    "is_attached",
    "is_confirmed",
    "load",
    "look_into",
    "timeline_of",
    "types",
    "unsettled",
]
