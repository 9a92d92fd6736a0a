"""What a source's tables went through, transaction by transaction: an independent reader of the same WAL.

A second slot, with a publication of its own, sees every transaction from its creation on. From its events, which
`tests.support.model` takes, follows what a lake table of any type must hold.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.support import model, oracle
from tests.support.model import Event, Row, Transaction
from tests.support.postgres import Database

_EPOCH = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
#: How a value is canonical (`tests.support.oracle`), by the OID of its type; that of a numeric needs digits.
_READ: Mapping[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    20: int,
    21: int,
    23: int,
    700: lambda text: oracle.canonical(float(np.float32(text))),
    701: lambda text: oracle.canonical(float(text)),
    1082: datetime.date.fromisoformat,
    1114: lambda text: text if text.endswith("infinity") else datetime.datetime.fromisoformat(text),
    1184: lambda text: datetime.datetime.fromisoformat(text).astimezone(datetime.UTC),
}
_NUMERIC = 1700


class Column(NamedTuple):
    name: str
    type_oid: int
    typmod: int = -1

    def value(self, text: str) -> Any:
        """Return the canonical value of PostgreSQL's text."""
        if self.type_oid == _NUMERIC and self.typmod >= 0:
            return decimal.Decimal(text)
        return _READ.get(self.type_oid, str)(text)


class Observer:
    """The transactions of some tables, whose keys are told. Make it while the tables are empty.

    Columns that change their name are known by what `identify` makes of it. `defaults` has what rows have in a column
    that was added after them, and `shows_defaults` says whether what had been written before shows it too.
    """

    def __init__(
        self, database: Database, keys: Mapping[str, tuple[str, ...]], *,
        identify: Callable[[str], str] = str, shows_defaults: bool = False, name: str = "observer",
    ) -> None:  # fmt: skip
        self.database = database
        self.keys = keys
        self.defaults: dict[str, Any] = {}
        self._identify = identify
        self._shows_defaults = shows_defaults
        self.transactions: dict[str, list[tuple[int, Transaction]]] = {name: [] for name in keys}  #: with end LSN
        self.columns: dict[str, tuple[str, ...]] = {}
        self._relations: dict[int, tuple[str, list[Column]]] = {}
        self._rows: dict[str, dict[tuple, list[Row]]] = {name: {} for name in keys}  # by key; one list without
        self._name, self._slot = name, f"{name}_{database.name}"
        # With partitions under their root, as kuvasz has them.
        tables = ", ".join(keys)
        database.execute(f"CREATE PUBLICATION {name} FOR TABLE {tables} WITH (publish_via_partition_root = true)")
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._slot,))

    def read(self) -> None:
        """Take in what has been committed since the last call."""
        # Commits of the tests do not wait for the WAL, and a slot shows what is in it.
        with self.database.connect() as session:
            session.execute("SET LOCAL synchronous_commit = on")
            session.execute("SELECT pg_logical_emit_message(true, 'observer', '')")
        messages = self.database.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)", (self._slot, self._name),
        )  # fmt: skip
        events: dict[str, list[Event]] = {}
        begin: tuple[int, int, int] = (0, 0, 0)
        for (message,) in messages:
            kind = message[:1]
            if kind == b"B":
                begin = struct.unpack_from(">QqI", message, 1)
                events = {}
            elif kind == b"R":
                self._relation(message, events)
            elif kind == b"T":
                count, _ = struct.unpack_from(">IB", message, 1)
                for oid in struct.unpack_from(f">{count}I", message, 6):
                    if oid in self._relations:
                        name = self._relations[oid][0]
                        self._rows[name].clear()
                        events.setdefault(name, []).append(Event(op="T"))
            elif kind in b"IUD":
                self._change(message, events)
            elif kind == b"C":
                (end_lsn,) = struct.unpack_from(">Q", message, 10)
                lsn, micros, xid = begin
                at = _EPOCH + datetime.timedelta(microseconds=micros)
                for name, found in events.items():
                    transaction = Transaction(events=found, at=at, lsn=lsn, xid=xid)
                    self.transactions[name].append((end_lsn, transaction))

    def _relation(self, message: bytes, events: Mapping[str, list[Event]]) -> None:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema_end = message.index(b"\0", 5)
        name_end = message.index(b"\0", schema_end + 1)
        name = message[schema_end + 1 : name_end].decode()
        if name not in self.keys:
            return  # a partition, which is told before its root's rows
        (count,) = struct.unpack_from(">h", message, name_end + 2)
        at, columns = name_end + 4, []
        for _ in range(count):
            end = message.index(b"\0", at + 1)
            (type_oid,) = struct.unpack_from(">I", message, end + 1)
            (typmod,) = struct.unpack_from(">i", message, end + 5)
            columns.append(Column(self._identify(message[at + 1 : end].decode()), type_oid, typmod))
            at = end + 9
        self._relations[oid] = (name, columns)
        names = tuple(column.name for column in columns)
        if set(self.columns.get(name, names)) != set(names):
            self._reshape(name, names, events)
        self.columns[name] = names

    def _reshape(self, table: str, names: tuple[str, ...], events: Mapping[str, list[Event]]) -> None:
        """Give the rows there are the columns there are now."""
        for rows in self._rows[table].values():
            rows[:] = [{name: row.get(name, self.defaults.get(name)) for name in names} for row in rows]
        shown = {name: self.defaults[name] for name in names if name in self.defaults and self._shows_defaults}
        written = [event for _, one in self.transactions[table] for event in one.events] + events.get(table, [])
        for event in written:
            for row in (event.old, event.new):
                if isinstance(row, dict):
                    row.update(shown | row)

    def _change(self, message: bytes, events: dict[str, list[Event]]) -> None:
        (oid,) = struct.unpack_from(">I", message, 1)
        name, columns = self._relations[oid]
        at, tuples = 5, {}
        while at < len(message):
            tag = message[at : at + 1]
            tuples[tag], at = _values(message, at + 1, columns)
        rows, key = self._rows[name], self.keys[name]
        old: Row = {}
        new = tuples.get(b"N")
        if message[:1] != b"I":
            sought = tuples.get(b"O") or tuples.get(b"K") or new or {}
            told = key if b"O" not in tuples and key else tuple(self.columns[name])
            found = rows[tuple(sought[column] for column in key)]
            old = next(row for row in found if all(row[column] == sought[column] for column in told))
            found.remove(old)
        if new is not None:
            new = {column: old[column] if value is ... else value for column, value in new.items()}
            rows.setdefault(tuple(new[column] for column in key), []).append(new)
        event = Event(op=message[:1].decode(), old=old or None, new=new, bytes=len(message))
        events.setdefault(name, []).append(event)

    # What a lake must hold

    def split(self, table: str, copied_lsn: int) -> tuple[list[Row], list[Transaction], list[Transaction]]:
        """Return the rows a copy at an LSN had, the transactions before it and those after it."""
        self.read()
        found = self.transactions[table]
        before = [transaction for _, transaction in found if transaction.lsn < copied_lsn]
        after = [transaction for _, transaction in found if transaction.lsn >= copied_lsn]
        return model.clone([], before), before, after

    def expected(
        self, table: str, table_type: str, copied_lsn: int, *, sid: str | None = None, is_full: bool = False,
        through: int | None = None,
    ) -> oracle.Rows:  # fmt: skip
        """Return what a lake table copied at an LSN holds, after all transactions or those that ended at an LSN."""
        copied, _, after = self.split(table, copied_lsn)
        if through is not None:
            ends = {transaction.lsn: end for end, transaction in self.transactions[table]}
            after = [transaction for transaction in after if ends[transaction.lsn] <= through]
        key = self.keys[table]
        if table_type == "clone":
            rows: Iterable[Mapping[str, Any]] = model.clone(copied, after)
        elif table_type == "append":
            rows = model.append(copied, after)
        elif table_type == "history":
            rows = model.history(copied, after, key)
        else:
            columns = self.columns[table]
            rows = model.changelog(
                copied, after, key or columns, columns=columns, copied_lsn=copied_lsn, is_full=is_full
            )
        return as_rows(rows, self.columns[table], sid)


def as_rows(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...], sid: str | None) -> oracle.Rows:
    """Return the model's rows as the oracle has them."""
    found = [dict(row) | ({"sid": sid} if sid is not None else {}) for row in rows]
    names = tuple(found[0]) if found else (*columns, *(("sid",) if sid is not None else ()))
    counted: Counter[tuple] = Counter(tuple(_plain(row[name]) for name in names) for row in found)
    return oracle.Rows(columns=names, rows=counted)


def _plain(value: object) -> object:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value


def _values(message: bytes, at: int, columns: list[Column]) -> tuple[dict[str, Any], int]:
    (count,) = struct.unpack_from(">h", message, at)
    at += 2
    values: dict[str, Any] = {}
    for column in columns[:count]:
        kind = message[at : at + 1]
        at += 1
        if kind == b"t":
            (size,) = struct.unpack_from(">i", message, at)
            text = message[at + 4 : at + 4 + size].decode()
            values[column.name] = column.value(text)
            at += 4 + size
        else:
            values[column.name] = None if kind == b"n" else ...
    return values, at
