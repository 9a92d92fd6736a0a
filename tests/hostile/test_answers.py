"""A server that answers something else than it was asked, or half of it, is its source's error and nobody else waits.

libpq goes on waiting for the rest of an answer with all threads of Python held up, and says for ever that there is a
COPY to be read. So each question is asked in a process of its own, of which it is seen that it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable

import pytest

from kuvasz.errors import KuvaszError
from kuvasz.source import conninfo, copy_out, slots, window
from kuvasz.source.reading.connection import Connection
from tests.support import liar as liars
from tests.support.liar import liar

_PATIENCE_S = 20
_message = liars._message

_COPIES = {kind: _message(kind.encode(), struct.pack(">bh", 0, 0)) for kind in "GHW"}
_DONE, _READY = _message(b"C", b"SELECT 1\0"), _message(b"Z", b"I")
_COLUMNS = _message(b"T", struct.pack(">h", 1) + b"a\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0))


def told(*answers: bytes) -> Callable[[socket.socket], None]:
    """Answer one question after another, and then nothing; what nobody thought of is answered by nothing, too."""

    def lie(client: socket.socket) -> None:
        client.sendall(liars._WELCOME.replace(b"18.0", b"16.0"))
        for answer in answers:
            client.recv(64 << 10)
            client.sendall(answer)
        while client.recv(64 << 10):
            pass

    return lie


def asked(url: str) -> None:
    pgconn = conninfo.connect_pq(conninfo.conninfo(url))
    conninfo.execute(pgconn, "SELECT 1", 2)


def copied(url: str) -> None:
    pgconn = conninfo.connect_pq(conninfo.conninfo(url))
    list(copy_out.libpq_rows(pgconn, "COPY items TO STDOUT", 1 << 20, place="there", doing="copy"))


def created(url: str) -> None:
    with contextlib.closing(slots.create(conninfo.replication_conninfo(url), "kuvasz_shop")):
        pass


def windowed(url: str) -> None:
    pgconn = conninfo.connect_pq(conninfo.replication_conninfo(url))
    window.copy_slot(pgconn, "kuvasz_shop", "another", "shop")


def begun(url: str) -> None:
    pgconn = conninfo.connect_pq(conninfo.replication_conninfo(url))
    window.Window(pgconn, "kuvasz_shop", ["kuvasz_shop"], 1, lambda _: {}, "shop")._send("START_REPLICATION")


def identified(url: str) -> None:
    async def ask() -> None:
        connection = await Connection.open(conninfo.replication_conninfo(url), "eu", compiled=False)
        async with asyncio.timeout(2):
            await connection.identify_system()

    asyncio.run(ask())


def streamed(url: str) -> None:
    async def read() -> None:
        connection = await Connection.open(conninfo.replication_conninfo(url), "eu", compiled=False)
        async with asyncio.timeout(2):
            await connection.start_replication("kuvasz_shop", "kuvasz_shop")
            while True:
                connection.drain(1 << 20)
                await asyncio.sleep(0.01)

    asyncio.run(read())


_CLOCK = (
    _message(b"T", struct.pack(">h", 2) + 2 * (b"a\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0)))
    + _message(b"D", struct.pack(">h", 2) + 2 * (struct.pack(">i", 1) + b"1")) + _DONE + _READY
)  # fmt: skip

CASES = {
    **{f"a question is a COPY ({kind})": (asked, [copy]) for kind, copy in _COPIES.items()},
    **{f"a copy ends with a COPY ({kind})": (copied, [_COPIES["H"] + _message(b"c", b"") + copy])
       for kind, copy in _COPIES.items()},
    "a copy has fewer rows than it says": (copied, [_COPIES["H"] + _message(b"d", b"1\n") + _message(b"c", b"")
                                                    + _message(b"C", b"COPY 2\0") + _READY]),
    **{f"a stream's question is a COPY ({kind})": (identified, [copy]) for kind, copy in _COPIES.items()},
    "a slot is made, and that is not the end": (created, [_CLOCK, _COLUMNS + _DONE]),
    "a slot that is made is a COPY": (created, [_CLOCK, _COPIES["H"]]),
    "a slot is copied, and that is not the end": (windowed, [_COLUMNS + _DONE]),
    "a slot that is copied is a COPY": (windowed, [_COPIES["H"]]),
    "a window of a slot never begins": (begun, [b""]),
    "a stream has a table in it": (streamed, [_COPIES["W"] + _COLUMNS]),
    "a stream ends, and that is not the end": (streamed, [_COPIES["W"] + _COLUMNS + _DONE]),
}  # fmt: skip


def outcome(ask: Callable[[str], None], url: str) -> str:
    """Return what comes of a question, as a process of its own says; empty if it never ends."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whatever Python is held up by
        signal.alarm(_PATIENCE_S)
        found = "nothing"
        try:
            ask(url)
        except KuvaszError as error:
            found = f"an error: {error}"
        except BaseException as error:  # noqa: BLE001 (it is told)
            found = repr(error)
        os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    found = b""
    while piece := os.read(read, 4096):
        found += piece
    os.close(read)
    os.waitpid(pid, 0)
    return found.decode()


@pytest.mark.parametrize("case", CASES)
def test_it_ends(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    for module in (conninfo, copy_out):
        monkeypatch.setattr(module, "ANSWER_S" if module is conninfo else "SILENCE_S", 2.0)
    ask, answers = CASES[case]
    with liar(told(*answers)) as server:
        found = outcome(ask, f"postgresql://x@127.0.0.1:{server.port}/x?sslmode=disable&connect_timeout=10")
    assert found.startswith(("an error: ", "OperationalError", "TimeoutError")), found
