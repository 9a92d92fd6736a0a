"""What a server sends beside what it was asked for takes no memory without end: libpq keeps some of that for ever.

A notification is kept until somebody takes it, and each setting that is told by another name for as long as the
connection lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.source import conninfo, copy_out
from kuvasz.source.reading.connection import Connection
from tests.support import liar as liars
from tests.support.liar import liar

#: Longer settings libpq takes for noise.
_LONG = b"x" * 20_000
_NUMBERS = itertools.count()


def notification() -> bytes:
    return liars._message(b"A", struct.pack(">i", 1) + b"channel\0" + _LONG + b"\0")


def setting() -> bytes:
    return liars._message(b"S", b"name_%d\0" % next(_NUMBERS) + _LONG + b"\0")


#: CopyBothResponse, CopyOutResponse; and a message that has something to do with it, now and then.
BOTH, OUT = (liars._message(kind, struct.pack(">bh", 0, 0)) for kind in (b"W", b"H"))
KEEPALIVE = liars._message(b"d", b"k" + bytes(17))
ROW = liars._message(b"d", b"1\n")

#: More than this of the flood is never read; sockets hold some of it.
_MUCH = 200 << 20


def flooding(begin: bytes, now_and_then: bytes, chatter: Callable[[], bytes], sent: list[int]) -> Any:
    def lie(client: socket.socket) -> None:
        client.sendall(liars._WELCOME.replace(b"18.0", b"16.0"))
        client.recv(64 << 10)
        client.sendall(begin)
        while sum(sent) < 2 * _MUCH:
            piece = b"".join(chatter() for _ in range(50)) + now_and_then
            client.sendall(piece)
            sent.append(len(piece))

    return lie


async def streamed(url: str, *, compiled: bool) -> None:
    connection = await Connection.open(conninfo.replication_conninfo(url), "eu", compiled=compiled)
    try:
        await connection.start_replication("slot", "publication")
        called = asyncio.Event()
        async with asyncio.timeout(60):
            while True:
                connection.drain(1 << 20)
                connection.clear()
                called.clear()
                connection.watch(called.set)
                await called.wait()
                connection.unwatch()
    finally:
        connection.close()


def copied(url: str) -> None:
    pgconn = conninfo.connect_pq(conninfo.conninfo(url))
    with contextlib.closing(SimpleNamespace(close=pgconn.finish)):
        for _ in copy_out.libpq_rows(pgconn, "COPY items TO STDOUT", 1 << 20, place="there", doing="copy"):
            pass


@pytest.mark.parametrize("chatter", [notification, setting])
@pytest.mark.parametrize("way", ["compiled", "plain", "copy"])
def test_a_server_that_talks_of_something_else_is_left(
    monkeypatch: pytest.MonkeyPatch, way: str, chatter: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(conninfo, "MOST_BESIDE", 8 << 20)
    sent: list[int] = []
    lie = flooding(*((OUT, ROW) if way == "copy" else (BOTH, KEEPALIVE)), chatter, sent)
    ask = copied if way == "copy" else lambda url: asyncio.run(streamed(url, compiled=way == "compiled"))
    with liar(lie) as server, pytest.raises(SourceError, match="of what nobody has asked it for"):
        ask(f"postgresql://x@127.0.0.1:{server.port}/x?sslmode=disable&connect_timeout=10")
    assert sum(sent) < _MUCH
