"""Room for libpq's two buffers of a connection that is about to be made, on pages that nobody has touched.

libpq takes 16 kB to receive into and 16 kB to send from, and a connection at rest uses the first page of each. But an
allocator gives what was freed last, which somebody has written to: up to 24 kB of a connection, 5 to 12 of each of a
fleet's. So the blocks that libpq would get are taken, their pages given back to the system, which has them empty and
nowhere until somebody writes there, and the blocks freed again.

Where somebody else takes one of them first, or the allocator goes about it otherwise, nothing is gained, or lost.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from typing import Any, Final

#: Of each of the two (libpq's fe-connect.c, makeEmptyPGconn).
_BUFFER_BYTES: Final = 16 << 10


def make_room() -> None:
    """Have the next two blocks of the size of libpq's buffers have pages that take no memory yet."""
    library, page = _library(), mmap.PAGESIZE
    if library is None:
        return
    blocks = [library.malloc(_BUFFER_BYTES) for _ in range(2)]
    for block in blocks:
        begin, end = -(-(block or 0) // page) * page, ((block or 0) + _BUFFER_BYTES) // page * page
        if begin < end:
            library.madvise(begin, end - begin, mmap.MADV_DONTNEED)
    for block in reversed(blocks):  # the one that is freed last is given first
        library.free(block)


@functools.cache
def _library() -> Any:  # noqa: ANN401 (functions that ctypes finds)
    """Return the C library; None where pages are not given back so (madvise(2) of Linux)."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
        library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (OSError, AttributeError):
        return None
    return library


__all__ = ["make_room"]
