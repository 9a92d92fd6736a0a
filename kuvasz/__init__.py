"""kuvasz replicates many PostgreSQL databases into one Apache Iceberg lake, continuously and exactly once.

`Replicator` is all that a program needs of it; see `kuvasz.verbs.replicate`.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # When it is asked for: what it needs takes a second to import, and `kuvasz --help` needs none of it.
    if name == "Replicator":
        return importlib.import_module("kuvasz.verbs.replicate").Replicator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
