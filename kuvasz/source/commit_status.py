"""Waits until what an exported snapshot shows is committed for whoever looks.

A commit is in the WAL first, then its status is set (manual, section 67.1 "Transactions and Identifiers", pg_xact),
then the transaction counts as over. A slot's snapshot is made from the WAL. So for a moment it may show a transaction
whose status is not set yet: who reads its rows takes it for one that was aborted, does not see them, and even marks
them so on the page, for everybody and for ever. It is a known weakness of PostgreSQL, seen with 18.4 by stopping a
backend between the two. The moment ends when the transaction counts as over, so nothing is read before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kuvasz.source import failure, sql
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

_XIDS = "ARRAY(SELECT pg_snapshot_xip(s)::text::bigint)"
_SNAPSHOT = f"SELECT pg_snapshot_xmax(s)::text::bigint, {_XIDS} FROM pg_current_snapshot() AS s"

_FIRST_S, _LONGEST_S = 0.001, 0.05


def wait(connection: psycopg.Connection[Any], snapshot_name: str, on_waiting: Callable[[set[int]], None]) -> None:
    """Return when no transaction is under way that a snapshot takes for committed.

    Args:
        connection: An ordinary session in autocommit, on the server that has the snapshot.
        snapshot_name: Its name.
        on_waiting: Called now and then with the transactions that are waited for, counted with their epoch. What it
            raises ends the waiting.

    Raises:
        SourceError: A query failed, or the snapshot is gone.
    """
    with failure.translated(place(connection), "wait for what a snapshot shows"):
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SET TRANSACTION SNAPSHOT {sql.literal(snapshot_name)}")
            end, hidden = _snapshot(connection)
        pause_s = _FIRST_S
        while early := _under_way(connection, end) - hidden:
            on_waiting(early)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)


def _under_way(connection: psycopg.Connection[Any], end: int) -> set[int]:
    """Return the transactions below one that are not over: where none beyond them is, no snapshot lists them."""
    first_unseen, listed = _snapshot(connection)
    return {xid for xid in listed if xid < end} | set(range(first_unseen, end))


def _snapshot(connection: psycopg.Connection[Any]) -> tuple[int, set[int]]:
    row = connection.execute(_SNAPSHOT).fetchone()
    assert row is not None
    return row[0], set(row[1])


__all__ = ["wait"]
