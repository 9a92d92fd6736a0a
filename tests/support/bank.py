"""A bank in two tables of one group: each transfer takes from one what it gives to the other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable, Table

from tests.support.lake import group
from tests.support.postgres import Database

ACCOUNTS = 20
TABLES = ("savings", "checking")
MONEY = 2 * ACCOUNTS * 100

#: Reads where all tables' metadata is in one statement, and so at one moment.
POINTERS = "SELECT table_name, metadata_location FROM iceberg_tables"


def open_bank(database: Database) -> list[dict]:
    """Fill the tables, and return the group of the map."""
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, money int)")
        database.execute(f"INSERT INTO {table} SELECT i, 100 FROM generate_series(1, {ACCOUNTS}) i")
    (entry,) = group({"eu": database}, dict.fromkeys(TABLES))
    return [{**entry, "consistency": "group"}]


class Transfers:
    """Moves money from one table to the other, a transaction each, until it is told to stop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        made = 0
        with self._database.connect(autocommit=True) as session:
            while not self._stop.wait(0.01):
                made += 1
                giver, taker = TABLES if made % 2 else TABLES[::-1]
                number = made % ACCOUNTS + 1
                with session.transaction():
                    session.execute(f"UPDATE {giver} SET money = money - 7 WHERE id = {number}")
                    session.execute(f"UPDATE {taker} SET money = money + 7 WHERE id = {number}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def pointers(catalog: Path) -> dict[str, str]:
    """Return where the metadata of each table of an SQLite catalog is, all at one moment."""
    with sqlite3.connect(catalog) as session:
        return dict(session.execute(POINTERS))


def load_together(catalog: Catalog, names: Sequence[str]) -> list[Table]:
    """Load tables as they were at one moment, as docs/reading.md has it."""
    before: list[str] = []
    while True:
        tables = [catalog.load_table(name) for name in names]
        places = [table.metadata_location for table in tables]
        if places == before:
            return tables
        before = places


def money(tables: Iterable[Table]) -> int:
    """Return the money in all accounts."""
    found = 0
    for table in tables:
        rows = table.scan(selected_fields=("money",)).to_arrow()
        assert rows.num_rows == ACCOUNTS
        found += sum(rows.column("money").to_pylist())
    return found


def tables_at(places: Mapping[str, str]) -> list[Any]:
    """Return both tables as the catalog had them when it said where their metadata is."""
    return [StaticTable.from_metadata(places[table]) for table in TABLES]
