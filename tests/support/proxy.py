"""A network between two programs that a test may break: cut, swallow, slow down."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

from tests.support.postgres import Database


class Proxy:
    """Passes TCP connections on to a port of this machine.

    Args:
        port: Where to.
        address: To listen on.
    """

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._target = port
        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0  #: accepted so far
        self.is_refusing = False
        self.is_swallowing = False  #: half-open: nothing comes through and nobody is told
        self.delay_s = 0.0  #: before every piece
        self.bytes_per_s = 0.0  #: 0: as fast as it goes
        self.answered = 0  #: bytes of the server's answers that came through
        self.lies: dict[bytes, bytes] = {}  #: pieces of the server's answers -> what comes in their place
        self.words: set[bytes] = set()  #: looked for in each piece of the server's answers
        self.unsaid: set[bytes] = set()  #: a piece of the server's answers with one of these cuts all, once each
        self.heard: set[bytes] = set()  #: those of them that came
        self.bytes_left = -1  #: of the server's answers until all connections are cut; -1: no end
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self.connections += 1
            with self._lock:
                self._open |= {near, far}
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, True), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, is_answer: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(64 << 10):
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self.bytes_per_s:
                    time.sleep(len(data) / self.bytes_per_s)
                if is_answer:
                    self.heard |= {word for word in self.words if word in data}
                    for truth, lie in self.lies.items():
                        data = data.replace(truth, lie)
                    if unsaid := {word for word in self.unsaid if word in data}:
                        self.unsaid -= unsaid
                        self.cut()
                        break
                if is_answer and self.bytes_left >= 0:
                    data, rest = data[: self.bytes_left], len(data) - self.bytes_left
                    self.bytes_left = max(0, -rest)
                if not self.is_swallowing:
                    other.sendall(data)
                    self.answered += len(data) if is_answer else 0
                if is_answer and self.bytes_left == 0:
                    self.bytes_left = -1
                    self.cut()
        for end in (one, other):
            self._close(end)

    def _close(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            self._close(end)

    def close(self) -> None:
        """Stop."""
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def proxy(port: int, address: str = "127.0.0.1") -> Iterator[Proxy]:
    """Give a proxy for a port."""
    made = Proxy(port, address)
    try:
        yield made
    finally:
        made.close()


def url_through(database: Database, port: int, query: str) -> str:
    """The url of a database behind what listens on another port before it, with the query of the url."""
    return f"{database.url.replace(f':{database.server.port}/', f':{port}/')}?{query}"
