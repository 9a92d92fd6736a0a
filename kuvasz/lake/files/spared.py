"""What libraries load in case that somebody needs it, and nobody here does: pandas, by PyArrow.

It comes with the first array that is made, or with PyArrow's data sets: half a second of CPU of a start, and 30 MB.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import cast

_PANDAS = "pandas"


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


__all__ = ["spare_pandas", "without_pandas"]
