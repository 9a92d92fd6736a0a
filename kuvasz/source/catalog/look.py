"""Looks at tables' catalog entries, of which is known what of the WAL they show.

What the stream has told is in the catalog by then, with one exception: the walsender sends a transaction once its
commit record is written, a moment before other sessions see it. A look therefore waits until the transaction is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.errors import SourceError
from kuvasz.model import NOTHING, Seen, TableName
from kuvasz.source import failure
from kuvasz.source.catalog import introspect
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

    from kuvasz.source.catalog.table import SourceTable

#: A transaction that is not visible by then waits for a synchronous standby, or the server is out of breath.
_PATIENCE_S = 20.0
_PAUSE_S = 0.01

#: What is committed is on disk by then, also on a server that is short of breath.
_FLUSHED_S = 2.0

_RUNNING = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND granted AND transactionid::text = %s"
_ALL_RUNNING = "SELECT transactionid::text::bigint FROM pg_locks WHERE locktype = 'transactionid' AND granted"
_ENDS = """
SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text,
    (SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay')
"""
_NAME = """
SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %s AND c.relkind IN ('r', 'p')
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the catalog showed."""

    lsn: int  #: transactions that committed before it are in what was seen
    table: SourceTable | None  #: None if there is none of that name
    moved: TableName | None = None  #: the name that the table has now, if it has another one


def look(
    connection: psycopg.Connection[Any],
    table: TableName,
    oid: int,
    xid: int,
    publications: Sequence[str] = (),
    beside: Iterable[TableName] = (),
) -> tuple[Look, dict[TableName, SourceTable]]:
    """Look at a table while its changes stream in, and at others at the same time.

    Args:
        connection: An ordinary session.
        table: Its name.
        oid: Its OID as the stream has it; 0 if that is not known.
        xid: A transaction that must be visible; 0 for none.
        publications: Names of those that the stream names.
        beside: Names of the others; those that exist are returned with `Relation.seen`.

    Raises:
        SourceError: A query failed, or the transaction is not visible for long.
    """
    at = wal_end(connection)
    _wait_visible(connection, xid)
    others = _together(connection, table, list(beside), publications)
    found = others.pop(table, None)
    moved = None
    if oid and (found is None or found.relation.oid != oid):
        rows = _execute(connection, _NAME, oid)
        moved = TableName(schema=rows[0][0], name=rows[0][1]) if rows else None
    return Look(lsn=at, table=found, moved=moved), others


def _together(
    connection: psycopg.Connection[Any], table: TableName, beside: Sequence[TableName], publications: Sequence[str]
) -> dict[TableName, SourceTable]:
    """Look at a table and at others; at it alone if that fails, for what is wrong with others is not its."""
    if beside:
        with contextlib.suppress(Exception):
            return tables(connection, [table, *beside], publications)
    return tables(connection, [table], publications)


def tables(
    connection: psycopg.Connection[Any],
    names: Iterable[TableName],
    publications: Sequence[str] = (),
) -> dict[TableName, SourceTable]:
    """Return those of the tables that exist, as one snapshot of the catalog shows them, with `Relation.seen`.

    It waits for no lock that somebody has on a table; sizes, for which it would have to, are not asked.

    Args:
        connection: An ordinary session, in no transaction.
        names: The names of the tables.
        publications: Names of those that a stream of them names.

    Raises:
        SourceError: A query failed.
    """
    at = wal_end(connection)
    running = _running(connection)
    with failure.translated(place(connection), "look at the catalog"), connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = introspect.load_relations(connection, names, publications)
    seen = Seen(lsn=at, until=wal_end(connection), running=running)
    return {name: as_seen(table, seen) for name, table in found.items()}


def as_seen(table: SourceTable, seen: Seen) -> SourceTable:
    """Return a table with what is known of when it was looked at."""
    return dataclasses.replace(table, relation=dataclasses.replace(table.relation, seen=seen))


def _running(connection: psycopg.Connection[Any]) -> frozenset[int]:
    """Return the xids, as the stream has them, of transactions that are not over.

    Who has written a commit record holds the lock on his xid until all snapshots show him (xact.c,
    CommitTransaction). Asked between the WAL's end and the look, this names all whose record lies before that end and
    whom the look does not show. A snapshot's own list does not: it leaves out whoever is newer than the last that
    ended (manual, table 9.83, pg_snapshot).
    """
    return frozenset(xid for (xid,) in _execute(connection, _ALL_RUNNING)) or NOTHING


def wal_end(connection: psycopg.Connection[Any]) -> int:
    """Return where the source's WAL ends now.

    Raises:
        SourceError: The query failed.
    """
    ((text,),) = _execute(connection, "SELECT pg_current_wal_insert_lsn()::text")
    return lsn.parse(text)


def end_to_send(connection: psycopg.Connection[Any]) -> int:
    """Return how far a walsender has come when it has sent all that is committed now.

    What is committed is on disk after three times `wal_writer_delay` at the latest (manual, section 28.4
    "Asynchronous Commit"). Anything else, the record of a lock, say, may stay in memory for as long as nothing
    happens, and no walsender sends it until then.

    Raises:
        SourceError: A query failed.
    """
    ((end, flushed, delay_ms),) = _execute(connection, _ENDS)
    deadline = time.monotonic() + max(_FLUSHED_S, 3 * delay_ms / 1000)
    while lsn.parse(flushed) < lsn.parse(end) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        ((_, flushed, _),) = _execute(connection, _ENDS)
    return min(lsn.parse(end), lsn.parse(flushed))


def _wait_visible(connection: psycopg.Connection[Any], xid: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while xid and _execute(connection, _RUNNING, str(xid)) != [(0,)]:
        if time.monotonic() > deadline:
            raise SourceError(
                f"{place(connection)}: transaction {xid} is committed but not visible for {_PATIENCE_S:.0f} s",
                hint="look for a synchronous standby that does not answer; kuvasz tries again by itself",
            )
        time.sleep(_PAUSE_S)


def _execute(connection: psycopg.Connection[Any], query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with failure.translated(place(connection), "look at the catalog"):
        return connection.execute(query, parameters or None).fetchall()
