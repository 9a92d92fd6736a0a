"""What takes payloads from libpq owes, and the body of it in plain Python.

libpq's functions: PostgreSQL 18 manual, sections 34.4 "Asynchronous Command Processing" and 34.10.2 "Functions for
Receiving COPY Data".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from kuvasz.model import Int64s, UInt8s, UInt32s

#: Most messages in a gulp: bounds the lengths kept and what a gulp of tiny messages costs to route.
MAX_MESSAGES: Final = 65536


class Drain(Protocol):
    """Takes messages from one connection in COPY_BOTH mode."""

    is_ended: bool  #: the server ended the stream, or an error came instead of a message: get_result tells
    is_lost: bool  #: the connection broke while reading

    @property
    def bytes(self) -> int:
        """Bytes gathered."""

    @property
    def shared(self) -> SharedDrain | None:
        """What takes messages of many connections at once (`kuvasz.source.drain.together`), if it can."""

    def drain(self, limit: int) -> int:
        """Take what has arrived until nothing is left or `limit` bytes are gathered; return the bytes taken."""

    def gulp(self) -> tuple[UInt8s | bytearray, UInt32s]:
        """Return the payloads gathered, one after another, and the length of each; valid until `clear`.

        Whoever keeps a view of them beyond that keeps their memory from the next gulps.
        """

    def clear(self) -> None:
        """Start a new gulp."""


class SharedDrain(Protocol):
    """Takes messages from a connection by itself, or together with others: see `kuvasz.source.drain.together`."""

    functions: tuple[int, int, int]  #: addresses of PQgetCopyData, PQfreemem and PQconsumeInput

    @property
    def pointer(self) -> int:
        """The address of libpq's connection; 0 if it is closed."""

    def hold(self, payloads: UInt8s, lengths: UInt32s, pending: Int64s) -> None:
        """Begin a gulp with what was taken of the connection together with others.

        Args:
            payloads: The messages.
            lengths: Bytes of each.
            pending: Address and size of one more that is taken from libpq, and not copied yet.
        """


class PlainDrain:
    """The body in plain Python."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._gulp = bytearray()
        self._lengths: list[int] = []
        self.is_ended = False
        self.is_lost = False

    @property
    def bytes(self) -> int:
        """Bytes gathered."""
        return len(self._gulp)

    @property
    def shared(self) -> None:
        """See `Drain`."""
        return

    def drain(self, limit: int) -> int:
        """Take what has arrived, see `Drain`."""
        before, was_empty = len(self._gulp), False
        get, lengths = self._pgconn.get_copy_data, self._lengths
        while len(self._gulp) < limit and len(lengths) < MAX_MESSAGES:
            size, payload = get(1)
            if size > 0:
                self._gulp += payload
                lengths.append(size)
                was_empty = False
            elif size < 0:
                self.is_ended = True
                break
            elif was_empty:
                break
            else:
                self._pgconn.consume_input()
                was_empty = True
        return len(self._gulp) - before

    def gulp(self) -> tuple[bytearray, UInt32s]:
        """Return the gulp, see `Drain`."""
        return self._gulp, np.array(self._lengths, np.uint32)

    def clear(self) -> None:
        """Start a new gulp."""
        self._gulp = bytearray()
        self._lengths.clear()


__all__ = ["MAX_MESSAGES", "Drain", "PlainDrain", "SharedDrain"]
