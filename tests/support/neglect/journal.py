"""The source's own journal of its growing tables: every version of every row that was ever written, by its stamp.

A trigger writes it in the transaction of the row, so that whatever becomes of the server becomes of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.support.postgres import Database

CREATION = (
    "CREATE TABLE journal (target text, stamp text, id int, at bigint, xid xid8)",
    """
    CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE at bigint := pg_current_wal_insert_lsn() - '0/0'::pg_lsn;
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            INSERT INTO journal VALUES (TG_ARGV[0], NULL, OLD.id, at, pg_current_xact_id());
        END IF;
        IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
        NEW.stamp := gen_random_uuid();
        INSERT INTO journal VALUES (TG_ARGV[0], NEW.stamp, NEW.id, at, pg_current_xact_id());
        RETURN NEW;
    END $$
    """,
)

_READ = """
    SELECT stamp, id, at, coalesce((SELECT min(later.at) FROM journal later WHERE later.at > this.at
                                    AND later.xid <> this.xid), 9223372036854775807)
    FROM journal this WHERE target = %s
"""


class Entry(NamedTuple):
    """A row was written, or went; both for an UPDATE."""

    stamp: str | None  #: None if it went
    id: int
    at: int  #: the end of the WAL before it
    until: int  #: no earlier than the transaction's end, as nobody else writes


def read(database: Database, target: str) -> list[Entry]:
    return [Entry(*row) for row in database.execute(_READ, (target,))]
