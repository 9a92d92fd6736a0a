"""Builds pgoutput streams for the tests of the route."""

from __future__ import annotations

import itertools
import struct

import numpy as np

from kuvasz.model import Segment, Truncation


def data(message: bytes) -> bytes:
    return b"w" + struct.pack("!QQq", 0, 0, 0) + message


def keepalive(lsn: int, reply: bool = False) -> bytes:
    return b"k" + struct.pack("!QqB", lsn, 0, reply)


def begin(lsn: int, xid: int = 1, us: int = 0) -> bytes:
    return data(b"B" + struct.pack("!QqI", lsn, us, xid))


def commit(lsn: int, end: int | None = None, us: int = 0) -> bytes:
    return data(b"C\0" + struct.pack("!QQq", lsn, lsn + 8 if end is None else end, us))


def relation(oid: int, name: str = "t", columns: int = 1, type_oid: int = 25) -> bytes:
    body = b"".join(b"\1" + f"c{n}".encode() + b"\0" + struct.pack("!Ii", type_oid, -1) for n in range(columns))
    return data(
        b"R" + struct.pack("!I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack("!H", columns) + body
    )


def type_name(oid: int, name: str) -> bytes:
    return data(b"Y" + struct.pack("!I", oid) + b"public\0" + name.encode() + b"\0")


def row(oid: int, text: str, tag: bytes = b"I") -> bytes:
    head = tag + struct.pack("!I", oid) + b"N" + struct.pack("!Hc", 1, b"t")
    return data(head + struct.pack("!I", len(text)) + text.encode())


def truncate(*oids: int) -> bytes:
    return data(b"T" + struct.pack(f"!IB{len(oids)}I", len(oids), 0, *oids))


def origin(lsn: int, name: str = "elsewhere") -> bytes:
    return data(b"O" + struct.pack("!Q", lsn) + name.encode() + b"\0")


def gulp(messages: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(messages), np.array([len(message) for message in messages], np.uint32)


def rows_of(segment: Segment) -> list[tuple]:
    """Row bytes with their transaction: (message, commit LSN, end LSN, commit time, xid)."""
    ends = np.cumsum(segment.lengths).tolist()
    messages = [bytes(segment.data[a:b]) for a, b in itertools.pairwise([0, *ends])]
    assert ends[-1:] == ([len(segment.data)] if ends else [])
    runs, start, rows = segment.transactions, 0, []
    for number, end in enumerate(runs.row_end.tolist()):
        assert end > start
        facts = tuple(int(values[number]) for values in (runs.commit_lsn, runs.end_lsn, runs.commit_us, runs.xid))
        rows += [(message, *facts) for message in messages[start:end]]
        start = end
    assert start == len(messages)
    return rows


def texts(segment: Segment) -> list[str]:
    return [message[13:].decode() for message, *_ in rows_of(segment)]


def events(change: Segment | Truncation) -> list[tuple]:
    if isinstance(change, Truncation):
        return [("truncate", change.commit_lsn, change.end_lsn, change.commit_us, change.xid)]
    return rows_of(change)
