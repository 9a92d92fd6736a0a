"""What verbs cost that people wait for: CPU of whole processes, with a source and a lake that answer.

Seconds would measure the machine: a day on which its cores are half as fast is no fault of a verb. So a verb is
compared with a yardstick that is run in turn with it: a Python that only loads three of the libraries it needs.
"""

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

#: Of the quickest of so many runs of each: other work on the machine makes CPU slower, never quicker.
RUNS = 8

#: Takes about 0.3 s of CPU where `--help` takes 0.2.
YARDSTICK = [sys.executable, "-c", "import psycopg, pydantic, ruamel.yaml"]


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


# What was measured, in yardsticks: 0.7, 2.0, 1.9, 2.1, 3.0; PyIceberg, which check and plan loaded once, doubles it.
@pytest.mark.parametrize(
    ("verb", "code", "most"),
    [("--help", 0, 1.1), ("config", 0, 2.8), ("status", 1, 2.8), ("check", 0, 3.3), ("plan", 4, 4.2)],
)
def test_a_verb_takes_little(map_file: Path, verb: str, code: int, most: float) -> None:
    command = [sys.executable, "-m", "kuvasz", "-c", str(map_file), verb]
    spent, yardsticks = [], []
    for _ in range(RUNS):
        yardsticks.append(_spent(YARDSTICK, 0))
        spent.append(_spent(command, code))
        if min(spent) <= most * min(yardsticks):
            return
    raise AssertionError(f"{verb} takes {min(spent):.2f} s of CPU, more than {most} times {min(yardsticks):.2f}")


def _spent(command: list[str], code: int) -> float:
    """Return the CPU seconds of a process; what counts the lines it runs is left out."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=Path.cwd())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stdout + done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
