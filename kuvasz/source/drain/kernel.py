"""The compiled body: it calls libpq's ``PQgetCopyData`` from a loop of its own.

By its address in the library that psycopg itself uses, and without the GIL, so that a busy stream does not hold up
the workers' threads.
"""

# ruff: noqa: ANN401, ARG001 - numba gives its intrinsics untyped values
from __future__ import annotations

import ctypes
import functools
import sys
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped] # comes with numba
from numba.core import cgutils, types
from numba.extending import intrinsic

from kuvasz.source.drain import arenas

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from kuvasz.model import Int64s, UInt8s, UInt32s
    from kuvasz.source.drain.arenas import Arena, Arenas

# Seen by kernels without its first parameter, which no type checker knows.
_intrinsic: Any = intrinsic

#: What is gathered while there is no arena.
_NO_PAYLOADS: UInt8s = np.empty(0, np.uint8)
_NO_LENGTHS: UInt32s = np.empty(0, np.uint32)

#: Why `drain_one` stopped.
EMPTY, _LIMIT, _GROW, _ENDED, _LOST = range(5)


class KernelDrain:
    """The compiled body. It has an arena only while something is gathered.

    Args:
        pgconn: The connection. Nothing else may use it while `drain` runs.
        functions: Addresses of PQgetCopyData, PQfreemem and PQconsumeInput in the library that made `pgconn`.
        spare: Lends the arena.
    """

    def __init__(self, pgconn: PGconn, functions: tuple[int, int, int], spare: Arenas = arenas.SHARED) -> None:
        self._pgconn = pgconn
        self.functions = functions
        self._spare = spare
        self._arena: Arena | None = None
        self._pending = np.zeros(2, np.int64)  # address and size of a payload taken from libpq, not yet copied
        self._bytes = 0
        self._count = 0
        self.is_ended = False
        self.is_lost = False

    @property
    def bytes(self) -> int:
        """Bytes gathered."""
        return self._bytes

    @property
    def shared(self) -> KernelDrain:
        """See `Drain`."""
        return self

    @property
    def pointer(self) -> int:
        """See `SharedDrain`."""
        return self._pgconn.pgconn_ptr or 0  # type: ignore[attr-defined] # not in psycopg's protocol class

    def hold(self, payloads: UInt8s, lengths: UInt32s, pending: Int64s) -> None:
        """See `SharedDrain`."""
        self._pending[:] = pending
        if not len(lengths):
            return
        self._arena = self._spare.take()
        if len(payloads) > len(self._arena.payloads):
            self._arena.grow(len(payloads), 0)
        self._bytes, self._count = len(payloads), len(lengths)
        self._arena.payloads[: self._bytes] = payloads
        self._arena.lengths[: self._count] = lengths

    def drain(self, limit: int) -> int:
        """Take what has arrived, see `Drain`."""
        before = self._bytes
        if self._arena is None:
            self._arena = self._spare.take()
        arena = self._arena
        while True:
            pointer = self.pointer
            if not pointer:
                self.is_lost = True
                break
            self._bytes, self._count, code = drain_one(
                *self.functions,
                pointer,
                self._pending,
                arena.payloads,
                arena.lengths,
                self._bytes,
                self._count,
                limit,
            )
            self.is_ended, self.is_lost = code == _ENDED, code == _LOST
            if code != _GROW:
                break
            arena.grow(self._bytes + int(self._pending[1]), self._bytes)
        if not self._count:
            self.clear()
        return self._bytes - before

    def gulp(self) -> tuple[UInt8s, UInt32s]:
        """Return the gulp, see `Drain`."""
        if self._arena is None:
            return _NO_PAYLOADS, _NO_LENGTHS
        return self._arena.payloads[: self._bytes], self._arena.lengths[: self._count]

    def clear(self) -> None:
        """Start a new gulp."""
        arena, self._arena = self._arena, None
        self._bytes = self._count = 0
        if arena is not None:
            self._spare.give(arena)


def libpq_functions(pgconn: PGconn) -> tuple[int, int, int] | None:
    """Return the addresses the kernel needs, None where the library cannot be asked for them.

    A lookup through the extension module's own handle also searches the libraries it was linked with (POSIX
    dlsym), so it finds the very libpq that psycopg uses, be it bundled or the system's.
    """
    module = sys.modules.get(type(pgconn).__module__)
    path = getattr(module, "__file__", None)
    return None if path is None or path.endswith(".py") else _functions(path)


@functools.cache
def _functions(path: str) -> tuple[int, int, int] | None:
    try:
        library = ctypes.CDLL(path)
        names = library.PQgetCopyData, library.PQfreemem, library.PQconsumeInput
    except (OSError, AttributeError):
        return None
    addresses = tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in names)
    return addresses if all(addresses) else None  # type: ignore[return-value]


def _call(builder: Any, function: Any, result: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)


@_intrinsic  # type: ignore[untyped-decorator]
def _get_copy_data(_context: Any, function: Any, pgconn: Any, target: Any) -> Any:
    """Call PQgetCopyData(pgconn, target, async=1); addresses are integers."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        is_async = cgutils.int32_t(1)
        return _call(builder, arguments[0], cgutils.int32_t, [*arguments[1:], is_async])

    return types.int32(types.int64, types.int64, types.int64), generate


@_intrinsic  # type: ignore[untyped-decorator]
def _consume_input(_context: Any, function: Any, pgconn: Any) -> Any:
    """Call PQconsumeInput(pgconn)."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _call(builder, arguments[0], cgutils.int32_t, [arguments[1]])

    return types.int32(types.int64, types.int64), generate


@_intrinsic  # type: ignore[untyped-decorator]
def _copy_and_free(_context: Any, function: Any, target: Any, origin: Any, size: Any) -> Any:
    """Copy `size` bytes from address to address, then call PQfreemem(origin)."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function, target, origin, size = arguments
        to, start = (builder.inttoptr(address, cgutils.voidptr_t) for address in (target, origin))
        cgutils.raw_memcpy(builder, to, start, size, 1)  # type: ignore[no-untyped-call]
        _call(builder, function, ir.VoidType(), [origin])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@numba.njit(cache=True, nogil=True)
def drain_one(  # noqa: PLR0913 - flat arguments are what a kernel is called fastest with
    get: int,
    free: int,
    consume: int,
    pgconn: int,
    pending: Any,
    arena: Any,
    lengths: Any,
    used: int,
    count: int,
    limit: int,
) -> tuple[int, int, int]:
    """Take messages into the arena; return the bytes and messages in it, and why it stopped."""
    was_empty = False
    while used < limit and count < len(lengths):
        size = pending[1]
        if size == 0:
            size = np.int64(_get_copy_data(get, pgconn, pending.ctypes.data))
        if size > 0:
            if used + size > len(arena):
                pending[1] = size
                return used, count, _GROW
            _copy_and_free(free, arena.ctypes.data + used, pending[0], size)
            pending[1] = 0
            lengths[count] = size
            used += size
            count += 1
            was_empty = False
        elif size < 0:
            return used, count, _ENDED
        elif was_empty:
            return used, count, EMPTY
        elif _consume_input(consume, pgconn) != 1:
            return used, count, _LOST
        else:
            was_empty = True
    return used, count, _LIMIT


__all__ = ["EMPTY", "KernelDrain", "drain_one", "libpq_functions"]
