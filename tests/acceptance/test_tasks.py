"""kuvasz as a task of Dagster and of Airflow, by the programs of docs/howto.md: what its end tells them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.errors import SlotLost
from tests.support import orchestrators
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

Task = Callable[[Path, str], subprocess.CompletedProcess[str]]


def dagster(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    text = orchestrators.program("A task of Dagster").replace("/etc/kuvasz/map.yaml", file)
    return orchestrators.run_dagster(folder, text)


def airflow(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    text = orchestrators.program("A task of Airflow").replace("/etc/kuvasz/map.yaml", file)
    return orchestrators.run_airflow(folder, text, "lake")


@orchestrators.needs("airflow")
def test_a_task_whose_time_is_up_ends_in_good_order(
    database: Database, new_process: Callable[..., Process], tmp_path: Path
) -> None:
    """Somebody holds a lock that its copy waits for, all the time."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    process = new_process(group({"eu": database}, {"items": None}))
    text = orchestrators.program("A task of Airflow").replace("/etc/kuvasz/map.yaml", str(process.map))
    assert "retries=3" in text
    assert "hours=2" in text
    with database.connect() as session:
        session.execute("LOCK TABLE items")
        done = orchestrators.run_airflow(
            tmp_path, text.replace("retries=3", "retries=0").replace("hours=2", "seconds=40"), "lake"
        )
        told = done.stdout + done.stderr
        assert done.returncode != 0, told
        assert "AirflowTaskTimeout" in told, told
    assert database.execute("SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'kuvasz%%'") == []
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    process.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))


def airflow_by_command(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    text = orchestrators.program("A task of Airflow", 1).replace("/etc/kuvasz/map.yaml", file)
    text = text.replace("/opt/kuvasz/bin/kuvasz", str(orchestrators.ROOT / "build" / "airflow" / "bin" / "kuvasz"))
    return orchestrators.run_airflow(folder, text, "lake_by_command")


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(dagster, marks=orchestrators.needs("dagster")),
        pytest.param(airflow, marks=orchestrators.needs("airflow")),
        pytest.param(airflow_by_command, marks=orchestrators.needs("airflow")),
    ],
    ids=lambda task: task.__name__,
)
def test_a_task_brings_what_is_new_and_tells_what_waits_for_a_person(
    database: Database, new_process: Callable[..., Process], tmp_path: Path, task: Task
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 1000) i")
    process = new_process(group({"eu": database}, {"items": None}))
    for statement in (
        "SELECT 1",
        "UPDATE items SET n = n + 1 WHERE id % 2 = 0",
        "DELETE FROM items WHERE id < 100",
    ):
        database.execute(statement)
        done = task(tmp_path, str(process.map))
        assert done.returncode == 0, done.stdout + done.stderr
        process.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))
    before = process.rows("items")
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )
    database.execute("UPDATE items SET n = -1")
    done = task(tmp_path, str(process.map))
    told = done.stdout + done.stderr
    assert done.returncode != 0, told
    if task is airflow_by_command:
        assert f"returned a non-zero exit code {SlotLost.exit_code}" in told
    else:
        assert "hint: " in told
        assert "UP_FOR_RETRY" not in told.upper(), "it waits for a person"
    assert "kuvasz resync" in told
    assert process.rows("items") == before
