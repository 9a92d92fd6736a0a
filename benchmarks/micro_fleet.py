"""What it costs to hear many sources that bring little: CPU of the loop of all readers, without a lake behind it.

Another process plays the servers: it speaks the protocol of a walsender over real sockets, and sends each source a
transaction of one row in each of some tables now and then, and keepalives in between. Workers throw away what comes
and call it durable once a second. Prints CPU in µs a transaction, with all looks and keepalives that go with it, and
as the share of a core.

Run: ``python -m benchmarks.micro_fleet --sources 100 --every 1 --seconds 5``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import struct
import threading
import time
from typing import TYPE_CHECKING

import uvloop

from kuvasz.model import POSTGRES_EPOCH_US, Delivery, PgType, Relation
from kuvasz.source.reading.ends import Downstream, Upstream
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.reader import Reader
from kuvasz.source.reading.rest.rounds import Rounds
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

_COLUMNS = 6
_VALUE = b"0123456789abcdef"


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _data(lsn: int, message: bytes) -> bytes:
    return _framed(b"d", b"w" + struct.pack("!QQq", lsn, lsn, 0) + message)


def _keepalive(lsn: int, *, is_reply_wanted: bool = False) -> bytes:
    return _framed(b"d", b"k" + struct.pack("!QqB", lsn, 0, is_reply_wanted))


def _relation(oid: int) -> bytes:
    columns = b"".join(b"\1c%d\0" % number + struct.pack("!Ii", 25, -1) for number in range(_COLUMNS))
    return b"R" + struct.pack("!I", oid) + b"public\0t%d\0d" % oid + struct.pack("!H", _COLUMNS) + columns


def _row(oid: int) -> bytes:
    values = (b"t" + struct.pack("!I", len(_VALUE)) + _VALUE) * _COLUMNS
    return b"U" + struct.pack("!I", oid) + b"N" + struct.pack("!H", _COLUMNS) + values


class Server(asyncio.Protocol):
    """One session of the servers: answers a handshake, then is a walsender."""

    def __init__(self, sessions: list[Server], tables: int) -> None:
        self._sessions = sessions
        self._oids = range(16400, 16400 + tables)
        self._input = bytearray()
        self._has_begun = False
        self._is_described = False
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # uvloop's own

    def data_received(self, data: bytes) -> None:
        self._input += data
        while (message := self._next()) is not None:
            self._answer(*message)

    def _next(self) -> tuple[bytes, bytes] | None:
        head = 1 if self._has_begun else 0
        if len(self._input) < head + 4:
            return None
        (size,) = struct.unpack_from("!I", self._input, head)
        if len(self._input) < head + size:
            return None
        kind, body = bytes(self._input[:head]), bytes(self._input[head + 4 : head + size])
        del self._input[: head + size]
        return kind, body

    def _answer(self, kind: bytes, body: bytes) -> None:
        ready = _framed(b"Z", b"I")
        if not self._has_begun:
            if struct.unpack_from("!I", body)[0] != 3 << 16:  # it asks for encryption
                self._write(b"N")
                return
            self._has_begun = True
            known = _framed(b"S", b"server_encoding\0UTF8\0") + _framed(b"S", b"client_encoding\0UTF8\0")
            self._write(_framed(b"R", struct.pack("!I", 0)) + known + ready)
        elif kind == b"Q" and body.startswith(b"START_REPLICATION"):
            self._write(_framed(b"W", struct.pack("!BH", 0, 0)))
            self._sessions.append(self)
        elif kind == b"Q":
            is_identity = body.startswith(b"IDENTIFY_SYSTEM")
            values = [b"7", b"1", b"0/1000", b"bench"] if is_identity else [b"0"]
            fields = b"".join(b"v\0" + struct.pack("!IHIhih", 0, 0, 25, -1, -1, 0) for _ in values)
            row = b"".join(struct.pack("!I", len(value)) + value for value in values)
            count = struct.pack("!H", len(values))
            self._write(_framed(b"T", count + fields) + _framed(b"D", count + row) + _framed(b"C", b"X\0") + ready)
        elif kind == b"d" and body[-1]:
            self.keep_alive(struct.unpack_from("!Q", body, 1)[0])
        elif kind == b"c":
            self._write(_framed(b"c", b"") + _framed(b"C", b"X\0") + ready)

    def keep_alive(self, lsn: int) -> None:
        self._write(_keepalive(lsn))

    def change(self, lsn: int) -> None:
        us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        shapes = [] if self._is_described else [_relation(oid) for oid in self._oids]
        self._is_described = True
        begin, end = b"B" + struct.pack("!QqI", lsn, us, 7), b"C\0" + struct.pack("!QQq", lsn, lsn + 8, us)
        messages = [begin, *shapes, *map(_row, self._oids), end]
        self._write(b"".join(_data(lsn, message) for message in messages))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


async def _serve(pipe: Pipe, tables: int, every_s: float, keepalives: float) -> None:
    sessions: list[Server] = []
    server = await asyncio.get_running_loop().create_server(lambda: Server(sessions, tables), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    lsn, begun, turn, hint = 1 << 20, time.monotonic(), 0.0, 0.0
    while not pipe.poll():
        await asyncio.sleep(0.005)
        now = time.monotonic()
        due, hints = ((now - begun) * len(sessions) * rate for rate in (1 / every_s, keepalives))
        begun = now
        for _ in range(int(turn + due) - int(turn)):
            turn += 1
            sessions[int(turn) % len(sessions)].change(lsn := lsn + 64)
        for _ in range(int(hint + hints) - int(hint)):
            hint += 1
            sessions[int(hint) % len(sessions)].keep_alive(lsn)
        turn, hint = turn + due % 1, hint + hints % 1


def _run_server(pipe: Pipe, tables: int, every_s: float, keepalives: float) -> None:
    uvloop.run(_serve(pipe, tables, every_s, keepalives))


class OneWorker:
    def worker(self, source: str, relation: Relation) -> int:  # noqa: ARG002 - the port's signature
        return 0


class Discard:
    """Calls all that has come durable once a second, from a thread of its own, as a worker does."""

    def __init__(self, progress: Progress, budget: Budget) -> None:
        self._progress, self._budget = progress, budget
        self._waiting: list[Delivery] = []
        self.transactions = 0

    def put(self, *deliveries: Delivery) -> None:
        self._waiting += deliveries
        self.transactions += len(deliveries)

    def run(self, is_over: threading.Event) -> None:
        while not is_over.wait(1.0):
            taken, self._waiting = self._waiting, []
            for delivery in taken:
                self._progress.durable(delivery.source, 0, delivery.through, delivery.epoch)
            self._budget.remove({delivery.source: delivery.bytes for delivery in taken})


async def _hear(port: int, sources: int, seconds: float) -> None:
    progress, budget = Progress(), Budget(1 << 30)
    inbox, is_over = Discard(progress, budget), threading.Event()
    downstream = Downstream(
        routes=OneWorker(), inboxes=[inbox], progress=progress, budget=budget,
        rounds=Rounds(progress, budget, [inbox]),
    )  # fmt: skip
    options = ReaderOptions().among(sources, 4 << 20)
    conninfo = f"host=127.0.0.1 port={port} user=bench dbname=bench sslmode=disable gssencmode=disable"
    readers = [
        Reader(
            Upstream(source=f"s{number}", conninfo=lambda: conninfo, slot=f"s{number}", publications=["bench"]),
            downstream, lambda oids: {oid: PgType(oid=oid, name="text") for oid in oids}, options=options,
        )
        for number in range(sources)
    ]  # fmt: skip
    worker = threading.Thread(target=inbox.run, args=[is_over])
    worker.start()
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    while min(reader.rows for reader in readers) == 0:  # noqa: ASYNC110 - has no event to wait for
        await asyncio.sleep(0.1)
    await asyncio.sleep(2.0)
    before, cpu, began = inbox.transactions, time.thread_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu, took = time.thread_time() - cpu, time.perf_counter() - began
    heard = inbox.transactions - before
    print(f"{heard / took:.0f} transactions/s of {sources} sources: {cpu / took * 100:.2f} % of a core,", end=" ")
    print(f"{cpu / max(1, heard) * 1e6:.0f} µs each, {cpu / took / sources * 1e6:.0f} µs a source and second")
    for reader in readers:
        reader.stop()
    await asyncio.gather(*tasks)
    is_over.set()
    worker.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument("--tables", type=int, default=3)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two transactions of a source")
    parser.add_argument("--keepalives", type=float, default=3.0, help="keepalives a source and second")
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    told = (theirs, arguments.tables, arguments.every, arguments.keepalives)
    server = multiprocessing.get_context("fork").Process(target=_run_server, args=told, daemon=True)
    server.start()
    try:
        uvloop.run(_hear(ours.recv(), arguments.sources, arguments.seconds))
    finally:
        with contextlib.suppress(BrokenPipeError):
            ours.send(None)
        server.join()


if __name__ == "__main__":
    main()
