"""What a source's tables held after each of its transactions: an independent reader of the same WAL.

A second slot with a publication of its own sees every transaction from before the first row on. Replaying them up to
an LSN gives the rows a lake must hold there, if it holds everything that ended at or before it, once.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import NamedTuple

from tests.support.oracle import Rows
from tests.support.postgres import Database

Row = tuple[str | None, ...]


class Change(NamedTuple):
    table: str
    old_key: Row | None  #: of the row that goes
    new: list  #: values, with `...` for one that did not change; empty for a delete
    empties: bool = False  #: a TRUNCATE


class Replay:
    """The transactions of one source since before its tables had rows. The tables' key is their first column."""

    def __init__(self, database: Database, *tables: str) -> None:
        self.database = database
        self.transactions: list[tuple[int, list[Change]]] = []  #: end LSN, changes
        self._names: dict[int, str] = {}
        self._slot = f"observer_{database.name}"
        database.execute(f"CREATE PUBLICATION observer FOR TABLE {', '.join(tables)}")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))

    def read(self) -> None:
        """Take in what has been committed since the last call."""
        messages = self.database.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'observer')", (self._slot,),
        )  # fmt: skip
        changes: list[Change] = []
        for (message,) in messages:
            kind = message[:1]
            if kind == b"B":
                changes = []
            elif kind == b"R":
                (oid,) = struct.unpack_from(">I", message, 1)
                self._names[oid] = message[5:].split(b"\0")[1].decode()
            elif kind == b"T":
                count, _ = struct.unpack_from(">IB", message, 1)
                names = [self._names.get(oid) for oid in struct.unpack_from(f">{count}I", message, 6)]
                changes += [Change(name, None, [], empties=True) for name in names if name is not None]
            elif kind in b"IUD":
                changes.append(self._change(message))
            elif kind == b"C":
                (end_lsn,) = struct.unpack_from(">Q", message, 10)
                self.transactions.append((end_lsn, changes))

    def _change(self, message: bytes) -> Change:
        (oid,) = struct.unpack_from(">I", message, 1)
        at = 5
        tuples: dict[bytes, list] = {}
        while at < len(message):
            tag = message[at : at + 1]
            tuples[tag], at = _values(message, at + 1)
        new = tuples.get(b"N", [])
        old = tuples.get(b"K", tuples.get(b"O"))
        if message[:1] == b"U" and old is None:
            old = new
        return Change(self._names[oid], None if old is None else (old[0],), new)

    def state(self, table: str, through: int, width: int | None = None) -> Counter[Row]:
        """The first `width` columns of a table after all transactions that ended at or before an LSN, as text."""
        rows: dict[Row, list] = {}
        for end_lsn, changes in self.transactions:
            if end_lsn > through:
                break
            for change in changes:
                if change.table == table:
                    _apply(rows, change)
        return Counter(tuple(row[:width]) for row in rows.values())


def _values(message: bytes, at: int) -> tuple[list, int]:
    (count,) = struct.unpack_from(">h", message, at)
    at += 2
    values: list = []
    for _ in range(count):
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            (size,) = struct.unpack_from(">i", message, at)
            values.append(message[at + 4 : at + 4 + size].decode())
            at += 4 + size
        else:
            values.append(None if kind == b"n" else ...)
    return values, at


def _apply(rows: dict[Row, list], change: Change) -> None:
    if change.empties:
        rows.clear()
    before = rows.pop(change.old_key) if change.old_key is not None else []
    if change.new:
        row = [before[i] if value is ... else value for i, value in enumerate(change.new)]
        assert (row[0],) not in rows
        rows[row[0],] = row


def lake_text(rows: Rows, columns: tuple[str, ...], sid: str) -> Counter[Row]:
    """The rows of one source in a lake table, as text."""
    chosen: Counter[Row] = Counter()
    for row, count in rows.select((*columns, "sid")).rows.items():
        if row[-1] == sid:
            chosen[tuple(None if value is None else str(value) for value in row[:-1])] += count
    return chosen
