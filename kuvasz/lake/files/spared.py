"""What libraries load or keep in case that somebody needs it, and nobody here does.

Pandas, by PyArrow: it comes with the first array that is made, or with PyArrow's data sets: half a second of CPU of a
start, and 30 MB. And memory that was freed, by the C library, for each thread that had some.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import cast

_PANDAS = "pandas"

#: Parameters of glibc's mallopt(3), by their numbers in malloc.h: how much may be free at the end of a heap, from
#: which size on a block is mapped by itself and goes back when it is freed, and how many heaps there are for threads.
#: Left to itself glibc raises the first two to the largest block that was ever freed, and has eight heaps a core.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_BLOCK_BYTES = 128 << 10
_HEAPS = 2


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


__all__ = ["spare_heap", "spare_pandas", "without_pandas"]
