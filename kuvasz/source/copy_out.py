"""The result of a ``COPY … TO STDOUT``, in pieces of whole rows.

libpq hands out one row per call. Where the socket is plain (no TLS, no GSS), the rows are read from the socket in
large gulps instead and freed of their message headers by one compiled loop: between commands libpq has nothing
buffered, so the query is sent past it and everything up to ReadyForQuery read past it, and the connection is as
before. Message formats: manual, section 55.7; the server sends every row as one CopyData message, and says at the end
how many there were: a copy to which a row is lost on its way, or comes twice, is none.

Measured with 2 M rows of 87 bytes on 2 cores that also run the server: over TCP 0.79 s with 0.17 s of CPU here,
libpq's loop 0.87-1.0 s with 0.6-0.75 s.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

import numba
import numpy as np
import psycopg
from psycopg import pq

from kuvasz.errors import SourceError, SourceSlow
from kuvasz.ports import CopyTooLarge
from kuvasz.source import conninfo as conninfos
from kuvasz.source import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.model import UInt8s
    from kuvasz.source.pace import Pace

_GULP_BYTES = 1 << 20
#: Between gulps, so that the server runs undisturbed. A UNIX socket holds too little for it.
_PAUSE_S = {socket.AF_INET: 0.001, socket.AF_INET6: 0.001}
_RECEIVE_BUFFER_BYTES = 4 << 20

#: Seconds without a byte after which a copy is given up, to be begun again. TCP's keepalives tell sooner of a peer
#: that is gone, but not of one behind a proxy; a server that waits for a lock gives up sooner (both: `conninfo`).
SILENCE_S = 120.0

#: Bytes of rows that have to come while so long is waited for them: whoever sends a byte a minute keeps the turn to
#: copy, and a core, as well as one that says nothing. Remarks are no rows.
_LEAST_BYTES = 64 << 10

#: The same where others wait for the core that reads: who sends less is read by a thread that nobody waits for.
HURRY_S = 5.0
_HURRIED_BYTES = 8 << 20

_COPY_DATA = ord("d")
_NEWLINE = ord("\n")
_HEADER_BYTES = 5  # tag, length

#: A server makes no longer row, and no longer message (memutils.h, MaxAllocSize); whoever says so is none.
_MOST_BYTES = 1 << 30

_READY = ord("Z")
_ERROR = ord("E")
_COMPLETE = ord("C")
_COPIED = re.compile(rb"COPY (\d+)")


class Flow:
    """How rows come of one copy, which is given up if next to none do.

    Args:
        place: For errors: where the connection leads.
        doing: For errors: what is copied.
        is_hurried: It is given up sooner, as `SourceSlow`.
        most_bytes: Nobody wants more; 0: as many as come.
    """

    def __init__(self, place: str, doing: str, *, is_hurried: bool = False, most_bytes: int = 0) -> None:
        self._place = place
        self._doing = doing
        self._is_hurried = is_hurried
        self._most_bytes = most_bytes
        self._received = 0  # by the socket, before the first byte that counts
        self._all = 0
        self._came = 0  # bytes since it was last waited from the beginning
        self._waited_s = 0.0

    @property
    def patience_s(self) -> float:
        """Seconds that may be waited for so few bytes."""
        return min(HURRY_S, SILENCE_S) if self._is_hurried else SILENCE_S

    def came(self, size: int) -> None:
        """Take note of bytes of rows, or of a part of one.

        Raises:
            CopyTooLarge: They are too many.
        """
        self._came += size
        self._all += size
        if self._most_bytes and self._all > self._most_bytes:
            raise CopyTooLarge
        if self._came >= (_HURRIED_BYTES if self._is_hurried else _LEAST_BYTES):
            self._came, self._waited_s = 0, 0.0

    def heard(self, fileno: int) -> None:
        """Take note that a socket received something, of a row of which nobody knows yet how long it is.

        Raises:
            CopyTooLarge: It is too much.
        """
        if not self._most_bytes:
            return
        received = conninfos.received(fileno)
        self._received = self._received or received
        if received - self._received > 2 * self._most_bytes:  # with its envelopes
            raise CopyTooLarge

    def waited(self, seconds: float) -> None:
        """Take note that it was waited.

        Raises:
            SourceSlow: It is hurried, and slow.
            SourceError: Less than `_LEAST_BYTES` came while so long was waited.
        """
        self._waited_s += seconds
        if self._waited_s <= self.patience_s:
            return
        if self._is_hurried:
            raise self.slow()
        what = f"less than {_LEAST_BYTES >> 10} kB of rows came from the server in {SILENCE_S:g} s"
        raise SourceError(
            f"{self._place}: cannot {self._doing}: {what}",
            hint="it is tried again; look at the server's disks, and at what stands in between",
        )

    def slow(self) -> SourceSlow:
        """Return the error of a hurried copy that is slow."""
        return SourceSlow(
            f"{self._place}: cannot {self._doing}: its rows come slowly",
            hint="it is tried again, where nobody waits for it",
        )

    def silent(self) -> SourceError:
        """Return the error of a copy of which nothing comes."""
        if self._is_hurried:
            return self.slow()
        return SourceError(
            f"{self._place}: cannot {self._doing}: nothing came from the server for {SILENCE_S:g} s",
            hint="it is tried again; look at the server's disks, and at what stands in between",
        )


def rows(
    pgconn: pq.abc.PGconn,
    query: str,
    chunk_bytes: int,
    *,
    place: str,
    doing: str,
    pace: Pace | None = None,
    is_hurried: bool = False,
    most_bytes: int = 0,
) -> Iterator[memoryview]:
    """Run a COPY TO STDOUT and return its rows in order.

    Args:
        pgconn: An open, idle, blocking connection; idle again when the iterator is exhausted, else to be closed.
        query: The statement.
        chunk_bytes: A piece has at least this size, but for the last, and at most a gulp of 1 MB and a row more.
        place: For errors: where the connection leads.
        doing: For errors: what is copied.
        pace: How fast to read; the server is held back by its full socket.
        is_hurried: It is given up as soon as its rows come slowly.
        most_bytes: It is given up as soon as more came, be it of one row; 0: as many as come.

    Yields:
        Whole rows, each with its newline; never empty; valid until the next piece is asked for.

    Raises:
        SourceError: The server refused, or the connection broke.
        SourceSlow: It is hurried, and slow.
        CopyTooLarge: More came than is wanted.
    """
    flow = Flow(place, doing, is_hurried=is_hurried, most_bytes=most_bytes)
    if is_plain(pgconn):
        yield from _CopyReader(pgconn, place=place, doing=doing, pace=pace, flow=flow).rows(query, chunk_bytes)
    else:
        for chunk in libpq_rows(pgconn, query, chunk_bytes, place=place, doing=doing, pace=pace, flow=flow):
            yield memoryview(chunk)


def is_plain(pgconn: pq.abc.PGconn) -> bool:
    """Return whether the socket carries the protocol as it is."""
    options = {option.keyword: option.val for option in pgconn.info}
    return not pgconn.ssl_in_use and options.get(b"gssencmode") == b"disable"


def libpq_rows(
    pgconn: pq.abc.PGconn,
    query: str,
    chunk_bytes: int,
    *,
    place: str,
    doing: str,
    pace: Pace | None = None,
    flow: Flow | None = None,
) -> Iterator[bytearray]:
    """Do what `rows` does, row by row through libpq."""
    flow, others = flow or Flow(place, doing), conninfos.OtherMessages(pgconn)
    with failure.translated(place, doing):
        pgconn.send_query(query.encode())
        result = _result(pgconn, flow)
        if result is None or result.status != pq.ExecStatus.COPY_OUT:
            raise _of_result(result, place, doing)
        fetch = pgconn.get_copy_data
        chunk = bytearray()
        taken = taken_bytes = rows = asked = 0
        size, row = fetch(1)
        while size >= 0:
            if size == 0:  # there is no whole row yet
                begin = time.monotonic()
                _wait(pgconn, flow)
                flow.waited(time.monotonic() - begin)
                others.came(asked)
                asked = 0
            else:
                asked += size + _HEADER_BYTES
                rows += 1
            flow.came(size)
            chunk += row
            if pace is not None and size:
                taken, taken_bytes = taken + 1, taken_bytes + size
                if taken_bytes >= pace.gulp_bytes:
                    pace.took(taken, taken_bytes)
                    taken = taken_bytes = 0
            if len(chunk) >= chunk_bytes:
                yield chunk
                chunk = bytearray()
            size, row = fetch(1)
        if pace is not None:
            pace.took(taken, taken_bytes)
        last = result = _result(pgconn, flow)
        while result is not None:
            if result.status in conninfos.COPYING:
                raise psycopg.OperationalError("it begins a COPY that nobody has asked for")
            result = _result(pgconn, flow)
    if last is None or last.status != pq.ExecStatus.COMMAND_OK:
        raise _of_result(last, place, doing)
    _counted(last.command_tuples, rows, place, doing)
    if chunk:
        yield chunk


def _counted(told: int | None, rows: int, place: str, doing: str) -> None:
    """Have it be an error if other rows came than the server says it sent."""
    if told != rows:
        said = "no number" if told is None else str(told)
        why = f"{rows} rows came, and the server says that it sent {said}: rows were lost on their way, or came twice"
        raise _broken(place, doing, why)


def _broken(place: str, doing: str, why: str) -> SourceError:
    return SourceError(f"{place}: cannot {doing}: {why}", hint="it is tried again")


def _result(pgconn: pq.abc.PGconn, flow: Flow) -> pq.abc.PGresult | None:
    while pgconn.is_busy():
        _wait(pgconn, flow)
    return pgconn.get_result()


def _wait(pgconn: pq.abc.PGconn, flow: Flow) -> None:
    """Wait for bytes and have libpq take them."""
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    if not poll.poll(flow.patience_s * 1000):
        raise flow.silent()
    pgconn.consume_input()
    flow.heard(pgconn.socket)


class _CopyReader:
    """Reads one COPY from the connection's socket."""

    def __init__(self, pgconn: pq.abc.PGconn, *, place: str, doing: str, pace: Pace | None, flow: Flow) -> None:
        self._pgconn = pgconn
        self._flow = flow
        self._pace = pace
        self._place = place
        self._doing = doing
        self._source = np.empty(_GULP_BYTES, np.uint8)
        self._start = 0  # of what is read and not yet used
        self._end = 0
        self._rows = 0
        self._told: int | None = None  # rows that it sent, as the server says

    def rows(self, query: str, chunk_bytes: int) -> Iterator[memoryview]:
        # A descriptor of our own, so that closing it does not close libpq's.
        with socket.socket(fileno=os.dup(self._pgconn.socket)) as self._socket:
            # libpq's sockets do not block, and a timeout, however long, keeps it so (they share the flag).
            self._socket.settimeout(self._flow.patience_s)
            buffer_bytes = _RECEIVE_BUFFER_BYTES if self._pace is None else 4 * self._pace.gulp_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            statement = query.encode() + b"\0"
            self._socket.sendall(struct.pack("!ci", b"Q", len(statement) + 4) + statement)
            yield from self._chunks(chunk_bytes)

    def _chunks(self, chunk_bytes: int) -> Iterator[memoryview]:
        target = np.empty(chunk_bytes + _GULP_BYTES, np.uint8)
        at = whole = missing = 0
        while True:
            if at + self._end - self._start > len(target):  # a row larger than a chunk
                target = np.concatenate((target, np.empty(len(target), np.uint8)))
            before = whole
            source = self._source[self._start : self._end]
            used, at, whole, missing, rows = unframe(source, target, at, whole, missing)
            self._start += used
            self._rows += rows
            self._flow.came(used)
            if self._pace is not None and whole > before:
                # Rows end with the only newlines there are (manual, "COPY", "Text Format").
                self._pace.took(int(np.count_nonzero(target[before:whole] == _NEWLINE)), whole - before)
            if missing < 0:
                raise self._broken("the length of a row cannot be: bytes were lost")
            if whole >= chunk_bytes:
                yield target[:whole].data
                target[: at - whole] = target[whole:at].copy()
                at, whole = at - whole, 0
            if missing == 0 and self._start < self._end and self._source[self._start] != _COPY_DATA:
                if self._other() == _READY:
                    break
            else:
                self._fill()
        _counted(self._told, self._rows, self._place, self._doing)
        if whole:
            yield target[:whole].data

    def _other(self) -> int:
        """Take one message that is not CopyData, and return its tag."""
        while self._end - self._start < _HEADER_BYTES:
            self._fill()
        tag, length = struct.unpack("!Bi", self._source[self._start : self._start + _HEADER_BYTES].tobytes())
        body_bytes = length - 4
        if body_bytes < 0 or body_bytes > _GULP_BYTES - _HEADER_BYTES:
            raise SourceError(
                f"{self._place}: cannot {self._doing}: a message {chr(tag)!r} of {length} bytes came",
                hint="something else than a PostgreSQL server answers, or bytes were lost; it is tried again",
            )
        while self._end - self._start < _HEADER_BYTES + body_bytes:
            self._fill()
        start = self._start + _HEADER_BYTES
        body = self._source[start : start + body_bytes].tobytes()
        self._start = start + body_bytes
        if tag == _ERROR:
            raise self._error(body)
        if tag == _COMPLETE and (said := _COPIED.match(body)):
            self._told = int(said[1])
        return int(tag)

    def _fill(self) -> None:
        if self._start:
            rest = self._end - self._start
            self._source[:rest] = self._source[self._start : self._end].copy()
            self._start, self._end = 0, rest
        begin = time.monotonic()
        try:
            if pause_s := _PAUSE_S.get(self._socket.family):
                time.sleep(pause_s)
            limit = _GULP_BYTES if self._pace is None else self._pace.gulp_bytes
            received = self._socket.recv_into(self._source[self._end : self._end + limit].data)
        except TimeoutError as error:
            if error.errno is not None:  # the kernel's, after keepalives without an answer
                raise self._broken(str(error)) from error
            raise self._flow.silent() from error
        except OSError as error:
            raise self._broken(str(error)) from error
        if received == 0:
            raise self._broken("the server closed the connection")
        self._end += received
        self._flow.waited(time.monotonic() - begin)

    def _broken(self, why: str) -> SourceError:
        return _broken(self._place, self._doing, why)

    def _error(self, body: bytes) -> SourceError:
        fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
        return failure.of(fields.get(b"C"), fields.get(b"M", ""), place=self._place, doing=self._doing)


@numba.njit(cache=True, nogil=True)
def unframe(
    source: UInt8s, target: UInt8s, at: int, whole: int, missing: int
) -> tuple[int, int, int, int, int]:  # pragma: no cover - compiled
    """Move the payload of CopyData messages from `source` to `target`, up to the first other message.

    Args:
        source: Bytes of the protocol.
        target: Has room for all of `source` after `at`.
        at: Where to write.
        whole: Where the last complete row in `target` ends.
        missing: Payload bytes of a message begun earlier.

    Returns:
        Bytes of `source` used, the new values of `at`, `whole` and `missing`, and how many messages begin here;
        `missing` is -1 at one whose length cannot be.
    """
    i = rows = 0
    end = len(source)
    while True:
        if missing > 0:
            size = min(missing, end - i)
            target[at : at + size] = source[i : i + size]
            at += size
            i += size
            missing -= size
            if missing > 0:
                break
            whole = at
        if end - i < 5 or source[i] != 100:
            break
        length = (
            (np.int64(source[i + 1]) << 24) | (np.int64(source[i + 2]) << 16)
            | (np.int64(source[i + 3]) << 8) | np.int64(source[i + 4])
        )  # fmt: skip
        if length < 4 or length > _MOST_BYTES:
            missing = -1
            break
        missing = int(length) - 4
        i += 5
        rows += 1
    return i, at, whole, missing, rows


def _of_result(result: pq.abc.PGresult | None, place: str, doing: str) -> SourceError:
    if result is None:
        return SourceError(f"{place}: cannot {doing}: the connection ended", hint="it is tried again")
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    return failure.of(None if state is None else state.decode(), result.get_error_message(), place=place, doing=doing)
