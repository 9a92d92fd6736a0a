"""What libraries load or keep in case that somebody needs it, and nobody here does.

Pandas, by PyArrow: it comes with the first array that is made, or with PyArrow's data sets: half a second of CPU of a
start, and 30 MB. And memory that was freed, by the C library, for each thread that had some: a start of a thousand
sources, or a large copy, leaves tens of megabytes of it, in pieces between what is in use.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import cast

_PANDAS = "pandas"

#: Parameters of glibc's mallopt(3), by their numbers in malloc.h: how much may be free at the end of a heap, from
#: which size on a block is mapped by itself and goes back when it is freed, and how many heaps there are for threads.
#: Left to itself glibc raises the first two to the largest block that was ever freed, and has eight heaps a core.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_BLOCK_BYTES = 128 << 10
_HEAPS = 2

#: Seconds between two looks at how large the process is, and by how much it has grown when what is free goes back.
_LOOK_S, _GROWN_BYTES = 60.0, 32 << 20


def spare_heap() -> None:
    """Have the C library give back what is free, rather than keep it for the next upload.

    For a process that is to be small; where it is another library than glibc, nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in (
        (_M_TRIM_THRESHOLD, _BLOCK_BYTES), (_M_MMAP_THRESHOLD, _BLOCK_BYTES), (_M_ARENA_MAX, _HEAPS),
    ):  # fmt: skip
        mallopt(parameter, value)


async def keep_small(look_s: float = _LOOK_S) -> None:
    """Have the C library give back what was freed meanwhile whenever the process has grown; until cancelled.

    For a process that is to be fast, whose heaps are left as they are otherwise: it takes some tens of milliseconds
    in a thread, behind a start, behind copies, and seldom else.
    """
    import asyncio  # which Python workers, forked with this module, have no use for

    before = 0
    while True:
        await asyncio.sleep(look_s)
        if _resident_bytes() > before + _GROWN_BYTES:
            await asyncio.to_thread(_trim)
            before = _resident_bytes()


def _trim() -> None:
    """Give back every page that is free; where it is another library than glibc, nothing is done."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    """Return the memory that the process has; 0 where Linux does not say it (proc_pid_statm(5))."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def spare_pandas() -> None:
    """Have PyArrow do without pandas, until somebody asks it for a frame.

    For processes of our own alone: PyArrow then takes a series for any other sequence.
    """
    if _PANDAS not in sys.modules:
        with without_pandas():
            import pyarrow as pa

            pa.array([0])  # looks for it once, and goes by what it found


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """Have pandas be missing for what this thread imports, while the body runs."""
    ours = threading.get_ident()

    def find_spec(wanted: str, *_: object) -> None:
        if wanted == _PANDAS and threading.get_ident() == ours:
            raise ModuleNotFoundError(f"{_PANDAS} is not needed here", name=_PANDAS)

    finder = cast("MetaPathFinder", types.SimpleNamespace(find_spec=find_spec))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


__all__ = ["keep_small", "spare_heap", "spare_pandas", "without_pandas"]
