"""A libpq of our own: connections that have what a test says, for what is called by its address."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from kuvasz.source.drain.arenas import Arenas
from kuvasz.source.drain.kernel import KernelDrain

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class Library:
    """PQgetCopyData, PQfreemem and PQconsumeInput over lists, by the number of a connection."""

    def __init__(self) -> None:
        self.arrived: dict[int, list[bytes]] = {}
        self.ended: set[int] = set()
        self._numbers = itertools.count(1)
        self._get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)(
            self._next
        )
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_libc.free)
        self._consume = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(lambda _: 1)

    def _next(self, number: int, target: Any, _is_async: int) -> int:
        if not self.arrived[number]:
            return -1 if number in self.ended else 0
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

    def end(self, drain: KernelDrain) -> None:
        """Have the stream of a connection end behind what has arrived."""
        self.ended.add(drain.pointer)

    def connect(self) -> tuple[KernelDrain, list[bytes]]:
        """Return the drain of a new connection, and what arrives there."""
        return self.drain(Arenas())

    def drain(self, spare: Arenas, *payloads: bytes) -> tuple[KernelDrain, list[bytes]]:
        """Return the drain of a new connection at which something has arrived, and what has."""
        connection: Any = type("Connection", (), {"pgconn_ptr": next(self._numbers)})()
        self.arrived[connection.pgconn_ptr] = arrived = list(payloads)
        return KernelDrain(connection, self.functions, spare), arrived
