"""A model of a source table's catalog entry: ALTER TABLE as PostgreSQL does it to pg_attribute."""

from __future__ import annotations

import dataclasses
from typing import Any

from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, Seen, TableName, Uniqueness
from kuvasz.typemap import BUILTIN

INT, BIGINT, TEXT, VARCHAR, NUMERIC, REAL = (BUILTIN[oid] for oid in (23, 20, 25, 1043, 1700, 700))

NAME = TableName(schema="public", name="items")


def numeric(precision: int, scale: int) -> int:
    """The typmod of numeric(precision, scale)."""
    return ((precision << 16) | (scale & 0x7FF)) + 4


class SourceTable:
    """A table at the source. Every change gives what the real one would show."""

    def __init__(self, *columns: tuple[str, PgType], key: tuple[str, ...] = ("id",)) -> None:
        self.oid = 100
        self.file = 1
        self.clock = 1
        self.key = key
        self.uniqueness = Uniqueness(constraint=300, index_oid=200, file=210)
        self.lsn = 100  #: where the WAL ends
        self.xid = 10
        self.hidden: frozenset[int] = frozenset()  #: what a column list of the publication leaves out
        self.list_version = 0
        self.live: dict[int, Column] = {}
        self.versions: dict[int, int] = {}  #: by attnum
        self.attributes = 0
        for name, kind in columns or (("id", INT), ("n", INT), ("name", TEXT)):
            self.add(name, kind)

    def add(self, name: str, kind: PgType = INT, *, default: str | None = None, is_volatile: bool = False) -> int:
        self.clock += 1
        self.attributes += 1
        self.file += is_volatile
        self.versions[self.attributes] = self.clock
        self.live[self.attributes] = Column(
            name=name, pg_type=kind, attnum=self.attributes, missing=default,
            has_default=default is not None or is_volatile, is_key=name in self.key, is_nullable=name not in self.key,
        )  # fmt: skip
        return self.attributes

    def drop(self, attnum: int) -> None:
        self.clock += 1
        del self.live[attnum]
        del self.versions[attnum]

    def alter(self, attnum: int, **facts: Any) -> None:
        self.clock += 1
        self.versions[attnum] = self.clock
        self.live[attnum] = dataclasses.replace(self.live[attnum], **facts)

    def rewrite(self) -> None:
        self.file += 1

    def rekey(self) -> None:
        """Drop the key and make it again."""
        constraint, index, file = self.uniqueness
        self.uniqueness = Uniqueness(constraint + 1, index + 1, file + 1)

    def number(self, name: str) -> int:
        return next(number for number, column in self.live.items() if column.name == name)

    def catalog(self) -> Relation:
        """As the catalog shows it."""
        return Relation(
            oid=self.oid, table=NAME, identity=ReplicaIdentity.DEFAULT, columns=tuple(self.live.values()),
            file=self.file, attributes=self.attributes,
            dropped=tuple(number for number in range(1, self.attributes + 1) if number not in self.live),
            sent=tuple(sorted(self.live.keys() - self.hidden)) if self.list_version else None,
            list_version=self.list_version, uniqueness=self.uniqueness, seen=Seen(lsn=self.lsn, until=self.lsn),
            versions=tuple(self.versions.get(number, 0) for number in range(1, self.attributes + 1)),
        )  # fmt: skip

    def begin(self) -> tuple[int, int]:
        """Commit LSN and xid of a transaction that ends here."""
        self.lsn += 10
        self.xid += 1
        return self.lsn - 10, self.xid

    def message(self) -> Relation:
        """As a Relation message describes it."""
        columns = tuple(
            Column(name=column.name, pg_type=column.pg_type, typmod=column.typmod, is_key=column.is_key)
            for number, column in self.live.items()
            if number not in self.hidden
        )
        return Relation(oid=self.oid, table=NAME, identity=ReplicaIdentity.DEFAULT, columns=columns)
