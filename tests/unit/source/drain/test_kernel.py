"""The compiled body, over a libpq of our own: what it has of memory, and when. Both bodies are tried on a server."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import pytest

from kuvasz.source.drain.arenas import ARENA_BYTES, Arenas
from kuvasz.source.drain.kernel import KernelDrain

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class Library:
    """PQgetCopyData, PQfreemem and PQconsumeInput over lists, by the number of a connection."""

    def __init__(self) -> None:
        self.arrived: dict[int, list[bytes]] = {}
        self._numbers = itertools.count(1)
        self._get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)(
            self._next
        )
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_libc.free)
        self._consume = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(lambda _: 1)

    def _next(self, number: int, target: Any, _is_async: int) -> int:
        if not self.arrived[number]:
            return 0
        payload = self.arrived[number].pop(0)
        target[0] = _libc.malloc(len(payload))
        ctypes.memmove(target[0], payload, len(payload))
        return len(payload)

    @property
    def functions(self) -> tuple[int, int, int]:
        """Their addresses."""
        called = self._get, self._free, self._consume
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in called]
        return addresses[0], addresses[1], addresses[2]

    def drain(self, spare: Arenas, *payloads: bytes) -> tuple[KernelDrain, list[bytes]]:
        """Return the drain of a new connection at which something has arrived, and what has."""
        connection: Any = type("Connection", (), {"pgconn_ptr": next(self._numbers)})()
        self.arrived[connection.pgconn_ptr] = arrived = list(payloads)
        return KernelDrain(connection, self.functions, spare), arrived


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


class Counting(Arenas):
    """Counts those that are lent."""

    lent = 0

    def take(self) -> Any:
        self.lent += 1
        return super().take()

    def give(self, arena: Any) -> None:
        self.lent -= 1
        super().give(arena)


def content(drain: KernelDrain) -> tuple[bytes, list[int]]:
    payloads, lengths = drain.gulp()
    return payloads.tobytes(), lengths.tolist()


def test_a_connection_at_rest_has_no_memory_for_a_gulp(library: Library) -> None:
    spare = Counting()
    drain, arrived = library.drain(spare)
    assert spare.lent == 0
    assert drain.drain(1 << 20) == 0
    assert spare.lent == 0, "a look that finds nothing leaves none"
    assert content(drain) == (b"", [])
    arrived += [b"one", b"three"]
    assert drain.drain(1 << 20) == 8
    assert spare.lent == 1
    drain.clear()
    assert spare.lent == 0
    assert drain.bytes == 0


def test_connections_use_one_memory_behind_each_other_and_never_at_once(library: Library) -> None:
    spare = Arenas()
    first, more = library.drain(spare, b"first")
    second, _ = library.drain(spare, b"second")
    first.drain(1 << 20)
    second.drain(1 << 20)
    assert content(first) == (b"first", [5])
    assert content(second) == (b"second", [6])
    more += [b"again"]
    first.drain(1 << 20)
    assert content(first) == (b"firstagain", [5, 5])
    seen = second.gulp()[0]
    second.clear()
    third, _ = library.drain(spare, b"third")
    third.drain(1 << 20)
    assert seen.tobytes() == b"second", "who looks on sees what he was given"
    third.clear()
    fourth, _ = library.drain(spare, b"fourth")
    fourth.drain(1 << 20)
    assert content(fourth) == (b"fourth", [6])
    assert content(first) == (b"firstagain", [5, 5])


def test_a_row_that_is_larger_than_the_memory_makes_it_grow(library: Library) -> None:
    spare, large = Arenas(), b"x" * (ARENA_BYTES + 1)
    drain, _ = library.drain(spare, b"small", large, b"last")
    assert drain.drain(4 << 20) == len(large) + 9
    assert content(drain) == (b"small" + large + b"last", [5, len(large), 4])


def test_memory_is_lent_again_as_soon_as_its_gulp_was_routed(library: Library) -> None:
    spare = Arenas()
    first, _ = library.drain(spare, b"first")
    first.drain(1 << 20)
    lent = first._arena
    assert content(first) == (b"first", [5])
    first.clear()
    second, _ = library.drain(spare, b"second")
    second.drain(1 << 20)
    assert second._arena is lent, "neither the kernel nor a view of before keeps it"
