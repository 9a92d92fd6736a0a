"""One process per state folder: a second one says who is there, and leaves everything as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.state.address_file import FILE
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process, confirmed

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def files(folder: Path) -> dict[Path, bytes]:
    """Everything in a state folder but what moves by itself: indexes and standings."""
    names = ("parked", "spool", "tables.json", "owner.lock")
    found = [path for name in names for path in [folder / name, *(folder / name).rglob("*")] if path.is_file()]
    return {path: path.read_bytes() for path in found}


@pytest.mark.timeout(600)
def test_a_second_process_changes_nothing(database: Database, new_process: Callable[..., Process]) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items SELECT n, 'copied' FROM generate_series(1, 100) n")
    process = new_process(group({"eu": database}, {"items": None}), address="127.0.0.1:0")
    state = process.folder / "state"
    process.start()
    process.wait_event("copied")
    assert process.run("pause", "--table", "items").returncode == 0
    database.execute("UPDATE items SET name = 'parked'")
    process.wait_until(process.parked, "the table is parked")
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    process.wait_until(lambda: confirmed(database, now), "the source lets go of its WAL")
    before = files(state)
    assert any(path.suffix == ".log" and len(content) > 1000 for path, content in before.items())

    second = process.run()
    assert second.returncode == 2, second.stderr
    owner = json.loads((state / "owner.lock").read_text())
    told = f"error: the state folder {state} is in use: process {owner['pid']} on {owner['host']} replicates since"
    assert told in second.stderr
    assert "hint: one kuvasz at a time" in second.stderr
    # One that does not answer yet must not have a note written under it.
    (state / FILE).unlink()
    late = process.run("resume", "--table", "items")
    assert late.returncode == 2, late.stderr
    assert told in late.stderr
    assert files(state) == before
    database.execute("INSERT INTO items VALUES (101, 'parked, too')")
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    process.wait_until(lambda: confirmed(database, now), "the first goes on parking")

    process.kill()
    assert process.run("resume", "--table", "items").returncode == 0, "whoever is killed owns nothing"
