"""The second publication of a source: INSERTs alone, for tables that nothing else may be published of.

A table without key and REPLICA IDENTITY FULL refuses UPDATE and DELETE as soon as these are published of it, and what
is published is a publication's affair, not a table's. So such tables get a publication of their own.

The walsender looks publications up as of the WAL that it decodes. One that is made beside a slot may be named in the
stream only when that is past every transaction that was running when it was made: before, servers up to 17 end the
stream, and later ones leave the rows out. The LSN stands in the publication's comment.

A publication that is somebody else's cannot be commented on. Of that one the slot says so: whatever a transaction
wrote into the catalog that is older than the slot's ``catalog_xmin`` was there by where it stands.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.source import failure, sql
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

OPERATIONS = ("insert",)

_SUFFIX = "_ins"
_NAME_BYTES = 63
_COMMENT = "kuvasz: may be named in a stream from "

#: The comment, and whether every transaction that is older than the publication has ended. Numbers of transactions
#: are compared as the server does it: by their distance, in 32 bits.
_STATE = """
SELECT left(obj_description(p.oid, 'pg_publication'), 100),
    ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint - p.xmin::text::bigint) & 4294967295)
        BETWEEN 1 AND 2147483647,
    pg_has_role(p.pubowner, 'USAGE'),
    (SELECT s.confirmed_flush_lsn::text FROM pg_replication_slots s
        WHERE s.slot_name = %s AND age(s.catalog_xmin) < age(p.xmin))
FROM pg_publication p WHERE p.pubname = %s
"""

_IS_OURS = "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"


def object_name(publication: str) -> str:
    """Return the second publication's name: the first one's and ``_ins``, shortened with a hash if it is too long."""
    name = publication + _SUFFIX
    if len(name) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(publication.encode()).hexdigest()[:8]
    return f"{publication[: _NAME_BYTES - len(_SUFFIX) - 9]}_{digest}{_SUFFIX}"


def with_inserts(publication: str) -> tuple[str, str]:
    """Return the names of the publications that a source's stream names."""
    return publication, object_name(publication)


def since(connection: psycopg.Connection[Any], publication: str, slot: str) -> int | None:
    """Return the LSN from which on a stream of a slot may name the publication, None if that cannot be said yet.

    Raises:
        SourceError: A query failed.
    """
    with failure.translated(place(connection), f"read publication {publication}"):
        row = connection.execute(_STATE, (slot, publication)).fetchone()
    if row is None:
        return None
    comment, is_settled, is_ours, passed = row
    if comment is not None and comment.startswith(_COMMENT):
        return lsn.parse(comment.removeprefix(_COMMENT))
    if not is_ours:
        return None if passed is None else lsn.parse(passed)
    if not is_settled:
        return None
    with failure.translated(place(connection), "read the end of the log"):
        (now,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()[0]
    mark(connection, publication, lsn.parse(now))
    return lsn.parse(now)


def mark(connection: psycopg.Connection[Any], publication: str, from_lsn: int) -> None:
    """Note from which LSN on a stream may name the publication, unless it is somebody else's.

    Raises:
        SourceError: The server failed.
    """
    with failure.translated(place(connection), f"read publication {publication}"):
        row = connection.execute(_IS_OURS, (publication,)).fetchone()
    if row is None or not row[0]:
        return
    text = f"{_COMMENT}{lsn.render(from_lsn)}"
    statement = f"COMMENT ON PUBLICATION {sql.identifier(publication)} IS '{text}';"
    doing = f"comment on publication {publication}"
    with failure.translated(place(connection), doing, mend=statement, role=connection.info.user):
        connection.execute(statement)
