"""The program of docs/destinations.md, run as it is printed: tables of a real source arrive in an SQLite file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "destinations.md").read_text("utf-8")


def test_its_program_brings_the_rows(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    document = {
        "lake": {"namespace": "shop"}, "server": {"address": None},
        "databases": [{"database": "shop", "urls": [{"url": database.url, "sid": "eu"}], "tables": {"items": None}}],
    }  # fmt: skip
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as file:
        rows = file.execute('SELECT sid, id, name FROM "shop.items" ORDER BY id').fetchall()
    assert rows == [("eu", 1, "a"), ("eu", 2, "b")]
