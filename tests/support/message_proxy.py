"""What stands between kuvasz and a real server, and harms one message of the server's: any one of a whole start."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

_CANCEL = struct.pack(">i", 80877102)
_ENVELOPE_BYTES = 5  # kind, length
_XLOG_BYTES = 25  # of XLogData before what the plug-in says (manual, section 54.4 "Streaming Replication Protocol")

#: What no server says: control characters, markup, a turn of the writing, no UTF-8, a state that is none.
_ODD = b"SERROR\0VERROR\0C\xff\x1b[0\0M\x1b[2J[bold red]all is well[/]\r\n\xe2\x80\xaeno \xff\xfe\0D\0\0"

#: Lengths that are said in place of the truth, of message after message: more than there is, less, and none at all.
_LENGTHS: tuple[Callable[[int], int], ...] = (
    lambda _: 0x7FFFFFFF, lambda true: true + 1, lambda _: 3, lambda true: max(4, true - 1), lambda _: -1,
)  # fmt: skip


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def _garbled_length(message: bytes, number: int) -> bytes:
    (true,) = struct.unpack(">i", message[1:_ENVELOPE_BYTES])
    said = _LENGTHS[number % len(_LENGTHS)](true)
    return message[:1] + struct.pack(">i", said) + message[_ENVELOPE_BYTES:]


#: By name, what comes of a message and its number: bytes in its place.
_ALTERED: dict[str, Callable[[bytes, int], bytes]] = {
    "body": lambda message, _: message[:_ENVELOPE_BYTES] + bytes(255 - byte for byte in message[_ENVELOPE_BYTES:]),
    "length": _garbled_length,
    "repeat": lambda message, _: 2 * message,
    "drop": lambda _message, _number: b"",
    "error": lambda _message, _number: _message_of_error(),
}

#: Ways to harm a message. With "cut" nothing of it comes, with "torn" half of it; with "stall" nothing more comes of
#: its connection, and nobody is told.
WAYS = ("cut", "torn", "stall", *_ALTERED)


def _message_of_error() -> bytes:
    return _message(b"E", _ODD)


def _kind(message: bytes, asked: bytes) -> str:
    """PostgreSQL's letter of a message; of the stream's with what it holds, as ``d w I`` for an INSERT."""
    kind, body = message[:1].decode("ascii", "replace"), message[_ENVELOPE_BYTES:]
    if kind != "d" or b"START_REPLICATION" not in asked:
        return kind
    return f"d w {chr(body[_XLOG_BYTES])}" if body[:1] == b"w" else f"d {chr(body[0])}"


class MessageProxy:
    """Passes connections without TLS on to a server of this machine, and reads what the server says.

    Args:
        port: Where to.
        way: How a message is harmed, of `WAYS`; empty: none is.
        number: Which message is harmed, of all connections together, from 1 on.
        is_lasting: All after it are harmed, too, until `be_honest`.
    """

    def __init__(self, port: int, way: str = "", number: int = 0, *, is_lasting: bool = False) -> None:
        self._target = port
        self.way = way
        self.number = number
        self._is_honest = not way
        self._is_lasting = is_lasting
        self.kinds: list[str] = []  #: of all messages that came, in order; see `_kind`
        self.harmed = ""  #: the kind of the first message that was, and what was asked before
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def be_honest(self) -> None:
        """Harm no message from now on; who waits for a stalled one waits on."""
        self._is_honest = True

    def close(self) -> None:
        """Stop, and end all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts keeps it
        self._listener.close()
        with self._lock:
            ends = list(self._open)
        for end in ends:
            self._close(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._open |= {near, far}
                threading.Thread(target=self._begin, args=(near, far), daemon=True).start()

    def _begin(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            first = near.recv(64 << 10)
            far.sendall(first)
            asked = [first]
            if first[4:8] == _CANCEL:
                threading.Thread(target=self._pass_on, args=(far, near, asked), daemon=True).start()
            else:
                threading.Thread(target=self._pass_messages, args=(far, near, asked), daemon=True).start()
            self._pass_on(near, far, asked)
            return
        self._close(near)
        self._close(far)

    def _pass_on(self, one: socket.socket, other: socket.socket, asked: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(64 << 10):
                if data[:1] != b"d":  # a status of the stream's is no question
                    asked[:] = [data]
                other.sendall(data)
        self._close(one)
        self._close(other)

    def _pass_messages(self, far: socket.socket, near: socket.socket, asked: list[bytes]) -> None:
        waiting = bytearray()
        with contextlib.suppress(OSError):
            while data := far.recv(64 << 10):
                waiting += data
                said, is_end, is_stalled = self._said(waiting, asked[0])
                near.sendall(said)
                if is_stalled:
                    return
                if is_end:
                    break
        self._close(near)
        self._close(far)

    def _said(self, waiting: bytearray, asked: bytes) -> tuple[bytes, bool, bool]:
        """Take whole messages; returns what is said, whether the connection ends then, and whether it stalls."""
        said = bytearray()
        while len(waiting) >= _ENVELOPE_BYTES:
            size = 1 + int(struct.unpack(">i", waiting[1:_ENVELOPE_BYTES])[0])
            if len(waiting) < size:
                break
            message = bytes(waiting[:size])
            del waiting[:size]
            way, number = self._way_of(message, asked)
            match way:
                case "":
                    said += message
                case "cut" | "torn":
                    said += message[: len(message) // 2] if way == "torn" else b""
                    return bytes(said), True, False
                case "stall":
                    return bytes(said), False, True
                case _:
                    said += _ALTERED[way](message, number)
        return bytes(said), False, False

    def _way_of(self, message: bytes, asked: bytes) -> tuple[str, int]:
        with self._lock:
            kind = _kind(message, asked)
            self.kinds.append(kind)
            number = len(self.kinds)
            is_due = number >= self.number if self._is_lasting else number == self.number
            if not is_due or self._is_honest:
                return "", number
            self.harmed = self.harmed or f"{kind} after {asked[:300]!r}"
            return self.way, number

    def _close(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def message_proxy(port: int, way: str = "", number: int = 0, *, is_lasting: bool = False) -> Iterator[MessageProxy]:
    """Give what harms a message of a server's; see `MessageProxy`."""
    made = MessageProxy(port, way, number, is_lasting=is_lasting)
    try:
        yield made
    finally:
        made.close()
