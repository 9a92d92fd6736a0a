"""Where whoever owns a table may have functions of his own run by who reads it, and the ways of reading."""

from __future__ import annotations

from typing import Any

import psycopg

from kuvasz.model import TableName
from kuvasz.source import conninfo, row_lookup, snapshot
from kuvasz.source.catalog import partitions, relation_files
from kuvasz.source.catalog.relation_files import RelationFile

ITEMS = TableName(schema="public", name="items")

_TABLE = "CREATE TABLE items (id int PRIMARY KEY, n int)"

#: Where he has it.
PLACES = {
    "an index": f"{_TABLE}; CREATE INDEX ON items ((mine(1) + n))",
    "a predicate": f"{_TABLE}; CREATE INDEX ON items (n) WHERE n > mine(1)",
    "statistics": f"{_TABLE}; CREATE STATISTICS of_items ON (mine(1) + n), n FROM items",
}


def copied(url: str, session: psycopg.Connection, **how: Any) -> None:
    sessions = snapshot.Sessions(1)
    sessions._give_back(session, is_good=True)
    with psycopg.connect(url) as holder:
        ((name,),) = holder.execute("SELECT pg_export_snapshot()").fetchall()
        wanted = snapshot.CopyRange(
            conninfo=conninfo.conninfo(url), snapshot_name=name, table=ITEMS, columns=("id", "n"), sessions=sessions,
            **how,
        )  # fmt: skip
        assert b"".join(bytes(piece) for piece in wanted.read()).startswith(b"1\t1\n")
    assert sessions._taken() is session


def whole(url: str, session: psycopg.Connection) -> None:
    copied(url, session)


def by_key(url: str, session: psycopg.Connection) -> None:
    copied(url, session, wanted=(("id",), "('1'::pg_catalog.int4)"))


def shown(_: str, session: psycopg.Connection) -> None:
    assert row_lookup.rows(session, ITEMS, ["id", "n"], {"id": "1"}) == [{"id": "1", "n": "1"}]


def looked_into(_: str, session: psycopg.Connection) -> None:
    partitions.has_rows_from_before(session, ITEMS, partitions.horizon(session))


def looked_at_its_file(_: str, session: psycopg.Connection) -> None:
    now = RelationFile(file=1, file_xid=1, horizon=1)
    assert not relation_files.begins_with_an_insert(session, ITEMS, 1, now)


WAYS = [whole, by_key, shown, looked_into, looked_at_its_file]
