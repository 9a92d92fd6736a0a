"""kuvasz is killed between a commit and its row in the table of commits: after the next start none is missing."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest

from tests.support import oracle
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TARGETS = ("items", "others")
ROWS = 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_snapshot_is_there_once_after_a_kill(database: Database, new_process: Callable[..., Process]) -> None:
    for table in TARGETS:
        database.execute(f"CREATE TABLE {table} (id serial PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} (n) SELECT i FROM generate_series(1, {ROWS}) i")
    process = new_process(group({"eu": database}, dict.fromkeys(TARGETS)), lake={"about": "_kuvasz"})
    process.start()
    process.wait_event("copied", len(TARGETS))
    for number in range(200):  # through several intervals, so that some commits have rows by then and others not
        for table in TARGETS:
            database.execute(f"INSERT INTO {table} (n) VALUES ({number})")
        if number % 20 == 0:
            process.wait_event("committed", number // 10 + 1)
    process.wait_confirmed(database)
    process.wait_until(lambda: _about(process), "the first commits have rows", 60)
    for table in TARGETS:
        database.execute(f"INSERT INTO {table} (n) VALUES (0)")
    process.wait_confirmed(database)
    process.kill()
    assert any(set(_snapshots(process, table)) - set(_told(process, table)) for table in TARGETS), "no row for these"
    for table in TARGETS:
        database.execute(f"INSERT INTO {table} (n) VALUES (0)")
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for table in TARGETS:
        assert _told(process, table) == collections.Counter(_snapshots(process, table))
        rows = [row for row in _about(process) if row["target"] == f"shop.{table}"]
        assert sum(row["inserts"] or 0 for row in rows) == ROWS + 202 == sum(process.rows(table).rows.values())
    runs = {
        row["run"] for row in oracle.open_table(process.pyiceberg, "_kuvasz.events").scan().to_arrow().to_pylist()
    }
    assert len(runs) == 2


def _about(process: Process) -> list[dict]:
    catalog = oracle.open_catalog(process.pyiceberg)
    if not catalog.table_exists("_kuvasz.commits"):
        return []
    return catalog.load_table("_kuvasz.commits").scan().to_arrow().to_pylist()


def _told(process: Process, table: str) -> collections.Counter[int]:
    return collections.Counter(row["snapshot_id"] for row in _about(process) if row["target"] == f"shop.{table}")


def _snapshots(process: Process, table: str) -> list[int]:
    return [one.snapshot_id for one in oracle.open_table(process.pyiceberg, f"shop.{table}").metadata.snapshots]
