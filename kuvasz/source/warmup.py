"""Load, or at the very first start compile, what a stream's first bytes would otherwise wait for.

The kernels of drain and route run on the event loop, where all sources wait with the one that is first.
"""

from __future__ import annotations

import struct

import numpy as np
from psycopg.pq import PGconn

from kuvasz.model import PgType, Relation
from kuvasz.route import many, scan
from kuvasz.route.assembler import Assembler
from kuvasz.source.drain import together
from kuvasz.source.drain.best import best_drain
from kuvasz.source.drain.kernel import KernelDrain

#: One transaction with one row, as pgoutput sends it (PostgreSQL manual 54.9, "Logical Replication Message Formats").
_BEGIN = b"B" + struct.pack("!QqI", 8, 0, 1)
_RELATION = b"R" + struct.pack("!I", 1) + b"public\0warm_up\0d" + struct.pack("!Hc2sxIi", 1, b"\1", b"id", 25, -1)
_INSERT = b"I" + struct.pack("!I", 1) + b"N" + struct.pack("!HcI", 1, b"t", 1) + b"7"
_COMMIT = b"C\0" + struct.pack("!QQq", 8, 16, 0)


class _One:
    """Routes every table to the only worker."""

    def worker(self, _source: str, _relation: Relation) -> int:
        return 0


def warm() -> int:
    """Ask a connection that never was for messages, and send one tiny transaction through the assembler.

    Returns:
        The rows that came out: one.
    """
    empty = best_drain(PGconn.connect_start(b"host=/nowhere"))
    if isinstance(empty, KernelDrain):  # the plain one has nothing to load, and says what libpq says of such a one
        empty.drain(1)
        together.take([empty])
    assembler = Assembler("warm-up", _One(), _types, 1 << 20)
    payloads = [b"w" + bytes(24) + message for message in (_BEGIN, _RELATION, _INSERT, _COMMIT)]
    gulp, lengths = b"".join(payloads), np.array([len(payload) for payload in payloads], np.uint32)
    scan.has_relation(scan.frozen_view(gulp), lengths)
    assembler.feed(gulp, lengths)
    many.read(scan.frozen_view(gulp), lengths, np.array([len(lengths)]))
    return assembler.rows


def _types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name="text") for oid in oids}


__all__ = ["warm"]
