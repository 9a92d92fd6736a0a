"""A server that speaks PostgreSQL's protocol for a while, and then lies."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

#: How many times something that has no end is repeated to one client before it is left alone.
_ENDLESS = 20_000


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


_WELCOME = (
    _message(b"R", struct.pack(">i", 0))
    + b"".join(
        _message(b"S", name + b"\0" + value + b"\0")
        for name, value in (
            (b"server_version", b"18.0"),
            (b"server_encoding", b"UTF8"),
            (b"client_encoding", b"UTF8"),
            (b"integer_datetimes", b"on"),
            (b"standard_conforming_strings", b"on"),
        )
    )
    + _message(b"K", struct.pack(">ii", 1, 1))
    + _message(b"Z", b"I")
)
_REFUSAL = _message(b"E", b"SFATAL\0C28000\0M\x1b[2Jall is well\r\n\xe2\x80\xaeno\0\0")


def _noise(client: socket.socket) -> None:
    client.sendall(bytes(range(256)) * 8)


def _huge(client: socket.socket) -> None:
    client.sendall(b"R" + struct.pack(">i", 0x7FFFFFFF) + b"\0" * 4096)


def _refusing(client: socket.socket) -> None:
    client.sendall(_REFUSAL)


def _forging(client: socket.socket) -> None:
    """A welcome, and to the first question rows that have more columns than they say."""
    client.sendall(_WELCOME)
    client.recv(64 << 10)
    client.sendall(_message(b"T", struct.pack(">h", 3) + b"a\0") + _message(b"D", struct.pack(">hi", 9, 0x7FFFFFF0)))


def _endless(client: socket.socket) -> None:
    """A welcome, and to the first question remarks without end."""
    client.sendall(_WELCOME)
    client.recv(64 << 10)
    remark = _message(b"N", b"SNOTICE\0C00000\0M" + b"so it goes " * 90 + b"\0\0")
    for _ in range(_ENDLESS):
        client.sendall(remark)


def _overflowing(client: socket.socket) -> None:
    """A welcome, and to the first question rows without end: whoever keeps them has no memory left."""
    client.sendall(_WELCOME)
    client.recv(64 << 10)
    field = b"a\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0)
    row = _message(b"D", struct.pack(">hi", 1, 60_000) + b"x" * 60_000)
    client.sendall(_message(b"T", struct.pack(">h", 1) + field))
    for _ in range(_ENDLESS):
        client.sendall(row)


#: By name, what is told to whoever connects.
LIES: dict[str, Callable[[socket.socket], None]] = {
    "noise": _noise,
    "huge": _huge,
    "refusing": _refusing,
    "forging": _forging,
    "endless": _endless,
    "overflowing": _overflowing,
}


class Liar:
    """Listens on a port of this machine, and tells everybody the same lie; without one it is silent."""

    def __init__(self, lie: Callable[[socket.socket], None] | None = None) -> None:
        self._lie = lie
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._held: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._lie is None:
                    self._held.append(client)
                else:
                    threading.Thread(target=self._answer, args=(client, self._lie), daemon=True).start()

    @staticmethod
    def _answer(client: socket.socket, lie: Callable[[socket.socket], None]) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(60)
            first = client.recv(4096)
            if first[4:8] == struct.pack(">i", 80877103):  # it asks for TLS
                client.sendall(b"N")
                client.recv(4096)
            lie(client)

    def close(self) -> None:
        """Stop, and let go of whoever still waits."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts keeps it, and takes one more
        self._listener.close()
        for client in self._held:
            client.close()


@contextlib.contextmanager
def liar(lie: Callable[[socket.socket], None] | None = None) -> Iterator[Liar]:
    """Give a server that tells a lie, or is silent."""
    made = Liar(lie)
    try:
        yield made
    finally:
        made.close()
