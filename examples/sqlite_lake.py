"""A destination of one's own: a lake whose tables are in an SQLite file, for programs that read that.

It builds on the lake in memory, which keeps all that `kuvasz.ports.Lake` asks for. What is added is the file: a
transaction has the rows of a table and how far each of its sources is in them, and no receipt is given before it is
there. A start finds no positions in memory, so it copies each table anew; the rows of before stay readable until
then. `tests/contract` holds it to the contract of all lakes.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from kuvasz.errors import LakeError, place_of
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.lake.memory.write_stage import MemoryWritten
from kuvasz.model import Relation, SourcePosition
from kuvasz.ports import ANY_PACE, CopyLedger, CopyPace, CopyRequest, Failure, Feed, Receipt

#: How far each source is in each table.
_POSITIONS = """
CREATE TABLE IF NOT EXISTS positions (target TEXT, source TEXT, lsn INTEGER, PRIMARY KEY (target, source))
"""


class SqliteLake(MemoryLake):
    """The destination.

    Args:
        file: The SQLite file; made when it is not there.
        chunk_bytes: See `MemoryLake`.
    """

    def __init__(self, file: Path, chunk_bytes: int = 8 << 20) -> None:
        super().__init__(chunk_bytes)
        self._file = file
        self._writing = threading.Lock()

    @override
    def open(self) -> None:
        """See `kuvasz.ports.Lake.open`."""
        with self._transaction("the lake") as database:
            database.execute(_POSITIONS)

    @override
    def commit(self, written: Sequence[MemoryWritten]) -> Iterable[Receipt | Failure]:
        """See `kuvasz.ports.Lake.commit`."""
        outcomes = list(super().commit(written))
        for one in outcomes:
            if isinstance(one, Receipt):
                self._keep(one.target)
        return outcomes

    @override
    def copy(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[int, int], None],
        *,
        on_read: Callable[[], None] = lambda: None,
        pace: CopyPace = ANY_PACE,
        ledger: CopyLedger | None = None,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.copy`."""
        receipt = super().copy(feed, relation, requests, position, on_progress, on_read=on_read, pace=pace)
        self._keep(feed.target)
        return receipt

    @override
    def repair(
        self,
        feed: Feed,
        relation: Relation,
        requests: Sequence[CopyRequest],
        position: SourcePosition,
        on_progress: Callable[[str, int, int], None],
        *,
        at_us: int = 0,
        on_read: Callable[[], None] = lambda: None,
        gap_lsn: int | None = None,
    ) -> Receipt:
        """See `kuvasz.ports.Lake.repair`."""
        receipt = super().repair(
            feed, relation, requests, position, on_progress, at_us=at_us, on_read=on_read, gap_lsn=gap_lsn
        )
        self._keep(feed.target)
        return receipt

    def _keep(self, target: str) -> None:
        """Have the file show what the table in memory shows, and the positions that belong to it."""
        table, rows = self._tables[target], self.rows(target)
        name = _quoted(target)
        with self._transaction(target) as database, table.lock:
            database.execute(f"DROP TABLE IF EXISTS {name}")
            database.execute(f"CREATE TABLE {name} ({', '.join(_quoted(column) for column in rows.column_names)})")
            places = ", ".join("?" for _ in rows.column_names)
            found = [tuple(_plain(value) for value in row.values()) for row in rows.to_pylist()]
            database.executemany(f"INSERT INTO {name} VALUES ({places})", found)
            database.execute("DELETE FROM positions WHERE target = ?", (target,))
            reached = [(target, source, position.lsn) for source, position in table.positions.items()]
            database.executemany("INSERT INTO positions VALUES (?, ?, ?)", reached)

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction.

        Raises:
            LakeError: It cannot be written: nothing of the transaction is there.
        """
        try:
            # Without a level sqlite3 begins no transaction of its own, which would be after DROP and CREATE.
            opened = sqlite3.connect(self._file, isolation_level=None)
            with self._writing, contextlib.closing(opened) as database, database:
                database.execute("BEGIN IMMEDIATE")
                yield database
        except sqlite3.Error as error:
            raise LakeError(f"{place_of(table=what)}: {self._file}: {error}", hint="it is tried again") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: object) -> object:
    """Return a value as SQLite has it: numbers, texts and bytes stay, all else is a text."""
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


__all__ = ["SqliteLake"]
