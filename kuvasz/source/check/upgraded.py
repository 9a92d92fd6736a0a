"""Whether a server is what pg_upgrade made of another one as that was left, with tables not written since.

pg_upgrade makes a cluster with a system identifier of its own. Its catalogs say with which transaction it began
(``relfrozenxid``, which pg_upgrade's `set_frozenxids` gives the next one of the old server), and the entry of every
table whose file it took is younger. Slots are made anew, where the new WAL begins: where one stands says nothing of
what was read of the old server (docs/limits.md). So the old server has to have been seen at rest, with all that it
had committed in the lake: where no transaction came between that and the beginning, nothing can be missing.

What was written since is in the server's statistics, which count each row that a transaction writes, also of those
that fail. They are kept from the first start on unless somebody resets them or the server crashes, and both show. A
session adds what it has written when it is idle, for sure when it ends: so nobody else may be connected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kuvasz import lsn
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

#: Seconds between the making of a cluster and its first statistics: initdb begins both at once, and pg_upgrade takes
#: longer, so that no crash of a server that others had reached is so early.
_FIRST_START_S: Final = 2

#: The first version that keeps its statistics as they are told here.
_STATISTICS_SINCE: Final = 150000

_XIDS: Final = 1 << 32

_REST: Final = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, pg_current_wal_insert_lsn()::text
FROM pg_current_snapshot() AS s
"""

#: pg_upgrade gives large objects, whose catalogs are their tables, what they had.
_BEGAN: Final = """
SELECT c.relfrozenxid::text::bigint FROM pg_class c
WHERE c.oid < 16384 AND c.relkind IN ('r', 't') AND NOT c.relisshared AND c.relfrozenxid::text <> '0'
    AND c.oid NOT IN (SELECT oid FROM pg_class WHERE relname LIKE 'pg_largeobject%'
        UNION SELECT reltoastrelid FROM pg_class WHERE relname LIKE 'pg_largeobject%')
ORDER BY age(c.relfrozenxid) DESC LIMIT 1
"""

_COUNTING: Final = """
SELECT current_setting('track_counts')::bool, (SELECT d.stats_reset IS NULL FROM pg_stat_database d
    WHERE d.datname = current_database()),
    abs(extract(epoch FROM b.stats_reset)::bigint - (s.system_identifier >> 32)) <= %s
FROM pg_stat_bgwriter b, pg_control_system() s
"""

#: Whose sessions have no user are the server's own, and those of walsenders write nothing.
_OTHERS: Final = """
SELECT DISTINCT a.usename::text FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usesysid IS NOT NULL AND a.pid <> pg_backend_pid()
    AND (a.usename <> session_user OR a.application_name IS DISTINCT FROM current_setting('application_name'))
    AND a.pid NOT IN (SELECT w.pid FROM pg_stat_get_wal_senders() w)
ORDER BY 1
"""

_TABLES: Final = """
SELECT c.oid::bigint, age(c.xmin) <= age(%s::text::xid), pg_stat_get_tuples_inserted(c.oid)
    + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid)
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerRest:
    """A moment in which no transaction ran that could still commit."""

    xid: int  #: each transaction below was over, and none had this number or a higher one
    lsn: int  #: all that they committed lies before it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedServer:
    """What a server says of its beginning, and of what was written since."""

    began_xid: int  #: with which transaction, as far as 32 bits tell
    is_counting: bool  #: whether all rows that were ever written are counted
    others: tuple[str, ...]  #: users who are connected to the database
    younger: frozenset[int]  #: OIDs of tables whose entries in the catalog were written after that
    written: Mapping[int, int]  #: OID -> rows that were written since


def at_rest(connection: psycopg.Connection[Any]) -> ServerRest | None:
    """Return a server's rest; None: transactions run.

    One that runs with the number itself is not seen here. Whoever finds that number unused later knows that there was
    none.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "look at running transactions"):
        row = connection.execute(_REST).fetchone()
    if row is None or row[0] != row[1]:
        return None
    return ServerRest(xid=row[1], lsn=lsn.parse(row[2]))


def load(connection: psycopg.Connection[Any], oids: Collection[int]) -> UpgradedServer:
    """Return what a server says of itself, and of tables by their OIDs.

    Raises:
        SourceError: A query failed.
    """
    with failure.translated(place(connection), "look at how the server began"):
        (began_xid,) = connection.execute(_BEGAN).fetchone() or (0,)
        is_counting = False
        if connection.info.server_version >= _STATISTICS_SINCE:
            is_counting = all(connection.execute(_COUNTING, (_FIRST_START_S,)).fetchone() or (False,))
        # First: who has ended by then has told what it had written.
        others = tuple(name for (name,) in connection.execute(_OTHERS).fetchall())
        tables = connection.execute(_TABLES, (str(began_xid), list(oids))).fetchall()
    return UpgradedServer(
        began_xid=began_xid, is_counting=is_counting, others=others,
        younger=frozenset(oid for oid, is_younger, _ in tables if is_younger),
        written={oid: rows for oid, _, rows in tables},
    )  # fmt: skip


def why_not(rest_xid: int, server: UpgradedServer) -> str:
    """Return why it is not proved that a server is another one as it was at rest, unwritten; empty if it is.

    Args:
        rest_xid: As `ServerRest.xid`, of the other one; 0: nobody saw it at rest.
        server: What says so.
    """
    if not rest_xid:
        return "the cluster before was never seen at rest"
    if rest_xid % _XIDS != server.began_xid:
        return (
            f"it began with transaction {server.began_xid}, and the cluster before was at rest at {rest_xid % _XIDS}"
        )
    if not server.is_counting:
        return "its statistics were reset, or are not kept: nobody knows what was written"
    if server.others:
        return f"others are connected to its database, and may have written: {', '.join(server.others)}"
    if server.written.keys() != server.younger:
        return "tables of it are older than its beginning"
    if any(server.written.values()):
        return f"{sum(map(bool, server.written.values()))} of its tables were written since"
    return ""


__all__ = ["ServerRest", "UpgradedServer", "at_rest", "load", "why_not"]
