"""What verbs cost that people wait for: CPU seconds of whole processes, with a source and a lake that answer."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kuvasz.config.load import load
from kuvasz.verbs.catalogs import pyiceberg_catalog
from tests.support.lake_table import schema
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

TABLES = [f"items{number}" for number in range(5)]

#: Of the quickest of so many runs: other work on the machine makes CPU slower, never quicker.
RUNS = 8


@pytest.fixture
def map_file(database: Database, tmp_path: Path) -> Path:
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, body text, price numeric)")
    lake = {"uri": "jdbc:sqlite:lake/catalog.db", "warehouse": "lake/wh", "namespace": "shop"}
    databases = [{"database": "shop", "urls": [{"url": database.url, "sid": "eu"}], "tables": dict.fromkeys(TABLES)}]
    file = tmp_path / "map.yaml"
    apart = {"pipeline": {"state": "state"}, "server": {"address": "127.0.0.1:1"}}
    file.write_text(json.dumps({"lake": lake, "databases": databases, **apart}))
    (tmp_path / "lake" / "wh").mkdir(parents=True)
    found = load(file, {}).config.lake
    catalog = SqlCatalog(found.name, **pyiceberg_catalog.catalog_properties(found) | {"init_catalog_tables": "true"})
    catalog.create_namespace("shop")
    rows = schema((1, "id", "long"), (2, "body", "string"), (3, "price", "string")).arrow()
    for name in TABLES:
        catalog.create_table(f"shop.{name}", rows, properties={"format-version": "2"})
    return file


# What was measured, on cores that others work on, too: 0.16, 0.40, 0.42, 0.53, 0.55; check and plan took 1.6 when
# they loaded PyIceberg.
@pytest.mark.parametrize(
    ("verb", "code", "most"),
    [("--help", 0, 0.3), ("config", 0, 0.6), ("status", 1, 0.6), ("check", 0, 0.7), ("plan", 4, 0.7)],
)
def test_a_verb_takes_little(map_file: Path, verb: str, code: int, most: float) -> None:
    spent = []
    for _ in range(RUNS):
        spent.append(_spent([sys.executable, "-m", "kuvasz", "-c", str(map_file), verb], code))
        if spent[-1] <= most:
            return
    raise AssertionError(f"{verb} takes {min(spent):.2f} s of CPU, more than {most}")


def _spent(command: list[str], code: int) -> float:
    """Return the CPU seconds of a process; what counts the lines it runs is left out."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=Path.cwd())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stdout + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
