"""kuvasz is killed within a cut, and right behind one: the table of cuts has what was answered, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import oracle
from tests.support.lake import group
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("items", "others")


def tagged(process: Process, tag: str) -> list[str]:
    """Return the tables that have a tag."""
    opened = {table: oracle.open_table(process.pyiceberg, f"shop.{table}") for table in TABLES}
    return [name for name, table in opened.items() if tag in table.metadata.refs]


def rows(process: Process) -> list[tuple[str, str, int, list[str]]]:
    """Return the table of cuts."""
    found = oracle.open_table(process.pyiceberg, "_kuvasz.cuts").scan().to_arrow().to_pylist()
    return sorted((row["cut"], row["target"], row["snapshot_id"], [at for at, _ in row["lsns"]]) for row in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cut_is_told_of_if_it_was_answered(database: Database, new_process: Callable[..., Process]) -> None:
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {table} VALUES (1)")
    process = new_process(
        group({"eu": database}, dict.fromkeys(TABLES)), lake={"about": "_kuvasz"}, address="127.0.0.1:0"
    )
    process.start(failpoints="cut_tagged:kill")
    process.wait_event("copied", len(TABLES))
    process.wait_confirmed(database)
    assert process.run("cut", "--name", "torn").returncode != 0, "nobody answers it"
    process.wait_killed()
    assert tagged(process, "cut_torn") == ["items"], "one table has it"

    process.start()
    process.wait_event("lake_open")
    for table in TABLES:
        database.execute(f"INSERT INTO {table} VALUES (2)")
    process.wait_confirmed(database)
    again = process.run("cut", "--name", "torn")
    assert again.returncode != 0, "a table has it already"
    assert tagged(process, "cut_torn") == ["items"], "and keeps it, and no other one gets it"
    made = process.run("cut", "--name", "whole")
    assert made.returncode == 0, made.stderr
    process.kill()
    snapshots = [
        oracle.open_table(process.pyiceberg, f"shop.{table}").metadata.refs["cut_whole"].snapshot_id
        for table in TABLES
    ]
    wanted = [("whole", f"shop.{table}", at, ["shop_eu"]) for table, at in zip(TABLES, snapshots, strict=True)]
    assert rows(process) == wanted

    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    assert rows(process) == wanted, "none is missing, none is there twice"
