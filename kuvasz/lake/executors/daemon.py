"""PySpark's daemon, with everything loaded that its workers need: they are forked from it.

PySpark's own loads nothing of ours, so each worker read the same modules and kernels again (1.2 s of CPU), and had
memory of its own for them. Spark starts this one by ``spark.python.daemon.module`` (`PythonWorkerFactory`), as
``python -m kuvasz.lake.executors.daemon pyspark.worker``.

What is loaded has no thread that a fork would lose: PyArrow's pools begin anew in a child, and numba's kernels are
code. Files are first written in the workers.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import cast


def main() -> None:
    """Load what workers need, then fork one for each connection of Spark, until it closes the standard input."""
    gc.disable()  # modules are no garbage: to look for some while they come takes a fifth of the time
    from pyspark import daemon

    with contextlib.suppress(Exception):  # a worker meets it again, and tells it with its task
        with _without("pandas"):
            import pyarrow.dataset  # noqa: F401
        from kuvasz.lake.executors import warmup

        warmup.load()
    gc.freeze()  # or each child's first collection would write to every page that they share
    gc.enable()
    daemon.manager()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Have a module be missing for a while.

    PyArrow loads pandas with its data sets, in case that somebody hands it a frame: 0.15 s and 30 MB for what no task
    does. Who asks for it later, as PySpark does for SQL over Arrow, has it.
    """

    def find_spec(wanted: str, *_: object) -> None:
        if wanted == name:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)

    finder = cast("MetaPathFinder", types.SimpleNamespace(find_spec=find_spec))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


if __name__ == "__main__":
    main()
