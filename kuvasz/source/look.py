"""A look at one table's catalog entry while its changes stream in.

What the stream has told is in the catalog by then, with one exception: the walsender sends a transaction once its
commit record is written, a moment before other sessions see it. A look therefore waits until the transaction is over.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.errors import SourceError
from kuvasz.model import TableName
from kuvasz.source import failure, introspect
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

    from kuvasz.source.table import SourceTable

#: A transaction that is not visible by then waits for a synchronous standby, or the server is out of breath.
_PATIENCE_S = 20.0
_PAUSE_S = 0.01

_RUNNING = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND granted AND transactionid::text = %s"
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


def look(connection: psycopg.Connection[Any], table: TableName, oid: int, xid: int) -> Look:
    """Look at a table.

    Args:
        connection: An ordinary session.
        table: Its name.
        oid: Its OID as the stream has it; 0 if that is not known.
        xid: A transaction that must be visible; 0 for none.

    Raises:
        SourceError: A query failed, or the transaction is not visible for long.
    """
    at = wal_end(connection)
    _wait_visible(connection, xid)
    found = introspect.load_relation(connection, table)
    moved = None
    if oid and (found is None or found.relation.oid != oid):
        rows = _execute(connection, _NAME, oid)
        moved = TableName(schema=rows[0][0], name=rows[0][1]) if rows else None
    return Look(lsn=at, table=found, moved=moved)


def wal_end(connection: psycopg.Connection[Any]) -> int:
    """Return where the source's WAL ends now.

    Raises:
        SourceError: The query failed.
    """
    ((text,),) = _execute(connection, "SELECT pg_current_wal_insert_lsn()::text")
    return lsn.parse(text)


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
