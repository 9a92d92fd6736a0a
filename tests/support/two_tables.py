"""A source of two tables, items and others, that are filled, changed all the time, and looked at in the lake."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tests.support.lake import Pipeline
from tests.support.postgres import Database
from tests.support.waiting import wait_until

EU, US = "shop_eu", "shop_us"
ITEMS, OTHERS = "shop.items", "shop.others"


def fill(database: Database, rows: int = 1000) -> None:
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, at timestamptz)")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {rows}) i")


def confirmed(database: Database) -> int:
    rows = database.execute(
        "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
        " WHERE database = current_database() AND NOT temporary"
    )
    return int(rows[0][0])


def lake_counts(pipeline: Pipeline, table: str, condition: str = "true") -> int:
    """Rows that a reader sees now."""
    session = pipeline.folder.session
    name = f"{pipeline.folder.catalog}.shop.{table}"
    session.sql(f"REFRESH TABLE {name}")
    return int(session.sql(f"SELECT count(*) FROM {name} WHERE {condition}").collect()[0][0])


@contextlib.contextmanager
def load(*databases: Database) -> Iterator[None]:
    """Change rows of both tables until the end; their number stays."""
    stop = threading.Event()

    def write(database: Database) -> None:
        number = 0
        with database.connect(autocommit=True) as session:
            while not stop.wait(0.01):
                number += 1
                for table in ("items", "others"):
                    session.execute(f"UPDATE {table} SET n = n + 1 WHERE id = {number % 1000 + 1}")

    writers = [threading.Thread(target=write, args=(database,), daemon=True) for database in databases]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def wal_end(database: Database) -> int:
    ((now,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    return int(now)


def wait_let_go(database: Database) -> None:
    """Wait until the source need not keep anything of what it has now."""
    now = wal_end(database)
    wait_until(lambda: confirmed(database) >= now, "the source lets go of its WAL")
