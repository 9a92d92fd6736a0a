"""kuvasz in a program of one's own, which is a process of its own here: Spark has one context in each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import START_PATIENCE_S, Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: Follows while a row comes, and starts no second one meanwhile: what each came to.
PROGRAM = """
import json, sys, time
import psycopg
from kuvasz.errors import KuvaszError

told = {"loaded": exit_code}
replicator = Replicator("map.yaml", {"pipeline.commit_interval": "100ms"})
with replicator:
    told["phase"] = replicator.status()["phase"]
    try:
        Replicator("map.yaml").start()
    except KuvaszError as error:
        told["second"] = error.message
    with psycopg.connect(sys.argv[1], autocommit=True) as session:
        session.execute("INSERT INTO items VALUES (101, 'streamed')")
    while not replicator.status()["sources"][0]["tables"][0]["rows"]:
        time.sleep(0.1)
told["stopped"] = replicator.stop()
print(json.dumps(told))
"""

#: The programs of docs/howto.md.
PRINTED = re.findall(
    r"```python\n(from kuvasz import Replicator.*?)```",
    (Path(__file__).parents[2] / "docs" / "howto.md").read_text("utf-8"), re.DOTALL,
)  # fmt: skip


@pytest.mark.timeout(600)
def test_a_program_loads_follows_and_stops_and_those_of_the_page_do_what_it_says(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items SELECT n, 'copied' FROM generate_series(1, 100) n")
    process = new_process(group({"eu": database}, {"items": None}))
    follow, load = PRINTED
    done = subprocess.run(
        [sys.executable, "-c", f"{load}\n{follow}\n{PROGRAM}", database.url], cwd=process.folder,
        capture_output=True, text=True, timeout=2 * START_PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    phase, told = done.stdout.splitlines()
    assert phase == "running"
    assert json.loads(told) == {
        "loaded": 0, "phase": "running", "second": "a replicator runs in this process already", "stopped": 0,
    }  # fmt: skip
    process.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))
