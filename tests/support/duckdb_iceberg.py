"""A real DuckDB with its Iceberg extension, in a folder of its own: `make duckdb` fetches both."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).parents[2] / "build" / "duckdb" / "bin" / "python"

is_here = PYTHON.is_file()

#: Loads what the packages brought, for nothing may be downloaded, and answers queries with rows by columns.
_PROGRAM = """
import json, pathlib, sys
import duckdb, duckdb_ext

duck = duckdb.connect()
duck.execute("SET TimeZone = 'UTC'")
for name in ("avro", "iceberg"):
    (file,) = pathlib.Path(duckdb_ext.__path__[0]).rglob(f"{name}.duckdb_extension")
    duck.execute(f"LOAD '{file}'")
answers = []
for query in json.load(sys.stdin):
    found = duck.execute(query)
    names = [column[0] for column in found.description]
    answers.append([dict(zip(names, row)) for row in found.fetchall()])
json.dump(answers, sys.stdout, default=str)
"""


def ask(queries: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the rows that each query answers; what JSON does not have is text.

    Raises:
        AssertionError: DuckDB refuses one.
    """
    done = subprocess.run(
        [PYTHON, "-c", _PROGRAM], input=json.dumps(list(queries)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
