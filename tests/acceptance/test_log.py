"""The log that a platform team reads: at `info`, in a file that somebody else rotates."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import log_schema
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.timeout(600)
def test_at_info_a_source_has_a_line_a_minute_and_the_last_at_the_stop(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id serial PRIMARY KEY, n int)")
    process = new_process(group({"eu": database}, {"items": None}))
    file, moved = process.folder / "logs" / "kuvasz.log", process.folder / "logs" / "kuvasz.log.1"
    process.start("--log-level", "info", "--log-file", str(file))
    process.wait_until(lambda: "copied" in {line["event"] for line in lines(file)}, "the copy")
    file.rename(moved)
    database.execute("INSERT INTO items (n) VALUES (1), (2), (3)")
    process.wait_confirmed(database)
    database.execute("DELETE FROM items WHERE n = 3")
    helpers = process.helpers()
    os.killpg(process.pid, signal.SIGTERM)  # as a terminal or an init system does: all that it started has it, too
    assert process.wait(60) == 0
    process.wait_helpers(helpers)
    assert (process.events, process.output) == ([], []), "stderr has nothing"
    found = [line for line in lines(moved) + lines(file) if line["event"] == "changes"]
    assert {line["source"] for line in found} == {"shop_eu"}
    assert sum(line["inserts"] for line in found) == 3
    assert sum(line["commits"] for line in found) >= 1
    assert lines(file)[-1] == found[-1], "the last one is written at the stop, in the file that is there now"
    assert log_schema.violations(lines(moved) + lines(file)) == []
    assert "committed" not in {line["event"] for line in lines(moved) + lines(file)}
