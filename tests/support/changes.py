"""Changes of a source as a reader hands them on, built by hand: pgoutput messages in segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from kuvasz.decode.cells import UNCHANGED
from kuvasz.model import (
    Column,
    PgType,
    Relation,
    ReplicaIdentity,
    Segment,
    TableName,
    TableType,
    Transactions,
    Truncation,
)
from kuvasz.ports import Feed, TableWork, Target
from tests.support.wires import copy_line, joined, message

INT8, INT4, TEXT = PgType(oid=20, name="int8"), PgType(oid=23, name="int4"), PgType(oid=25, name="text")
TABLE = TableName(schema="public", name="items")
TARGET = "shop.items"


def relation(*more: Column, oid: int = 16385, table: TableName = TABLE) -> Relation:
    """items(id bigint primary key, n int, body text, …)."""
    columns = (
        Column(name="id", pg_type=INT8, is_key=True, is_nullable=False),
        Column(name="n", pg_type=INT4),
        Column(name="body", pg_type=TEXT),
        *more,
    )
    return Relation(oid=oid, table=table, identity=ReplicaIdentity.DEFAULT, columns=columns)


ITEMS = relation()

SAME = UNCHANGED  #: a large value that was not sent because it did not change


def _cells(key: int, n: object, body: object, more: Sequence[object] = ()) -> list:
    texts = [value if value is None or value is SAME else str(value).encode() for value in (n, body, *more)]
    return [str(key).encode(), *texts]


def insert(key: int, n: object = 0, body: object = "b", *more: object) -> bytes:
    return message("I", _cells(key, n, body, more))


def update(key: int, n: object = 0, body: object = "b", *, old: int | None = None) -> bytes:
    before = None if old is None else [str(old).encode(), None, None]
    return message("U", _cells(key, n, body), before, "K")


def delete(key: int) -> bytes:
    return message("D", old=[str(key).encode(), None, None], old_tag="K")


class Sender:
    """One source: hands out LSNs and makes segments."""

    def __init__(self, name: str = "eu", relation: Relation = ITEMS, start: int = 1000) -> None:
        self.name = name
        self.relation = relation
        self._lsn = start

    def commit_lsn(self) -> int:
        """Begin a transaction."""
        self._lsn += 100
        return self._lsn

    def transactions(self, *messages: Sequence[bytes]) -> Segment:
        """A segment of whole transactions, one per list of messages."""
        return self.segment([(self.commit_lsn(), rows) for rows in messages])

    def one(self, *messages: bytes) -> Segment:
        """A segment of one whole transaction."""
        return self.transactions(messages)

    def part(self, commit_lsn: int, *messages: bytes) -> Segment:
        """A part of a transaction that goes on."""
        return self.segment([(commit_lsn, messages)], is_open=True)

    def segment(
        self,
        transactions: Sequence[tuple[int, Sequence[bytes]]],
        *,
        is_open: bool = False,
        relation: Relation | None = None,
    ) -> Segment:
        data, lengths = joined([row for _, rows in transactions for row in rows])
        lsns = np.array([lsn for lsn, _ in transactions], np.uint64)
        ends = lsns + np.uint64(8)
        if is_open:
            ends[-1] = lsns[-1] + np.uint64(1)
        count = len(transactions)
        runs = Transactions(
            commit_lsn=lsns,
            end_lsn=ends,
            commit_us=lsns.astype(np.int64) * 10,
            xid=np.arange(count, dtype=np.uint32),
            row_end=np.cumsum([len(rows) for _, rows in transactions]).astype(np.uint32),
        )
        return Segment(
            source=self.name,
            relation=relation or self.relation,
            data=bytearray(data),
            lengths=lengths,
            transactions=runs,
        )

    def truncation(self, commit_lsn: int | None = None, *, is_open: bool = False) -> Truncation:
        lsn = commit_lsn or self.commit_lsn()
        return Truncation(
            source=self.name, relation=self.relation, commit_lsn=lsn, end_lsn=lsn + (1 if is_open else 8),
            commit_us=lsn * 10, xid=1,
        )  # fmt: skip


def again(segment: Segment) -> Segment:
    """The same segment as another connection brings it."""
    return dataclasses.replace(segment, data=bytearray(segment.data))


def _end(change: Segment | Truncation) -> int:
    if isinstance(change, Truncation):
        return 0 if change.end_lsn == change.commit_lsn + 1 else change.end_lsn
    runs = change.transactions
    whole = runs.end_lsn[runs.end_lsn != runs.commit_lsn + np.uint64(1)]
    return int(whole[-1]) if len(whole) else 0


def work(
    *changes: Segment | Truncation,
    target: str = TARGET,
    through: dict[str, int] | None = None,
    open_sources: Sequence[str] = (),
    abandoned: Sequence[str] = (),
) -> TableWork:
    """The work of one target; `through` is the end of each source's last whole transaction."""
    ends: dict[str, int] = {}
    for change in changes:
        ends[change.source] = max(ends.get(change.source, 0), _end(change))
    return TableWork(
        target=target,
        changes=changes,
        through=ends | (through or {}),
        open_sources=frozenset(open_sources),
        abandoned=frozenset(abandoned),
    )


def target(name: str = TARGET, *, has_sid: bool = True, table_type: TableType = TableType.CLONE) -> Target:
    return Target(name=name, has_sid=has_sid, type=table_type)


def feed(source: str = "eu", name: str = TARGET, *, sid: str | None = "", table: TableName = TABLE) -> Feed:
    return Feed(target=name, source=source, sid=source if sid == "" else sid, table=table)


@dataclasses.dataclass(frozen=True)
class Lines:
    """A copy request that yields lines of COPY text."""

    rows: tuple[tuple[object, ...], ...]
    fails: bool = False

    @property
    def server(self) -> str:
        return "localhost:5432"

    @property
    def size(self) -> int:
        return 100 * len(self.rows)

    def at_pace(self, rows_per_second: float) -> Lines:
        assert rows_per_second == 0
        return self

    def bounded(self, most_bytes: int) -> Lines:
        return self

    def hurried(self) -> Lines:
        return self

    def read(self, chunk_bytes: int) -> Iterator[bytes]:
        for row in self.rows:
            yield copy_line([None if value is None else str(value).encode() for value in row])
        if self.fails:
            from kuvasz.errors import SourceError

            raise SourceError("the connection to eu was lost", hint="it is tried again")
