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
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def main() -> None:
    """Load what workers need, then fork one for each connection of Spark, until it closes the standard input."""
    _spare_archives()
    gc.disable()  # modules are no garbage: to look for some while they come takes a fifth of the time
    from pyspark import daemon

    with contextlib.suppress(Exception):  # a worker meets it again, and tells it with its task
        from kuvasz.lake.files import file_io, spared

        spared.spare_pandas()
        if file_io.PRELOADED in os.environ:
            file_io.preload()
        from kuvasz.lake.executors import warmup

        warmup.load()
    gc.freeze()  # or each child's first collection would write to every page that they share
    gc.enable()
    daemon.manager()  # type: ignore[no-untyped-call]


def _spare_archives() -> None:
    """Have PySpark be loaded as it is installed, and not from the archives that Spark puts before it on the path.

    They hold the same modules, uncompiled: a second and a half to load them. And whoever looks for another module has
    Python read their directories, again for each first task of a worker.
    """
    archives = [entry for entry in sys.path if entry.endswith((".zip", ".jar"))]
    others = [entry for entry in sys.path if entry not in archives]
    spark, py4j = (PathFinder.find_spec(name, others) for name in ("pyspark", "py4j"))
    if spark is None or spark.origin is None or py4j is None:
        return  # an executor that has what Spark brings it, and nothing else
    home = Path(spark.origin).resolve().parent
    for entry in archives:
        if home in Path(entry).resolve().parents:  # else it is of another Spark
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)


if __name__ == "__main__":
    main()
