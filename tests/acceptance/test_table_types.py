"""Every table type over one source, killed wherever it hurts: no version is missing, none is there twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kuvasz import lsn
from tests.support.lake import LakeFolder, Pipeline
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.observer import Observer
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES = ("clone", "append", "history", "changelog")

#: Each kills one run in the stream; `test_crash_everything` tries all of them.
POINTS = ("after_commit:kill:7",)

OPTIONS: dict[str, Any] = {"transaction_spill_bytes": "64kB"}


def groups(database: Database) -> list[dict]:
    """Return a group of its own for each type, so that each has every table."""
    return [
        {
            "database": kind, "urls": [{"url": database.url}],
            "tables": {table: {"type": kind, "target": f"{kind}_{table}"} for table in TABLES},
        }
        for kind in TYPES
    ]  # fmt: skip


def begin_anew(database: Database) -> None:
    """Leave nothing of one table as it was."""
    database.execute("TRUNCATE items")
    database.execute("INSERT INTO items SELECT i, 0, 'new' FROM generate_series(1, 500) i ON CONFLICT DO NOTHING")


@pytest.fixture
def observer(database: Database) -> Observer:
    """One that sees what happens to the tables, which are there and filled."""
    create_tables(database)
    found = Observer(database, {"items": ("id",), "docs": ("id",)})
    fill_tables(database, 600)
    return found


def test_every_type_holds_every_transaction_once_after_an_end_at_any_moment(
    database: Database, observer: Observer, lake_folder: LakeFolder
) -> None:
    """An end as by a kill, in this process: in test_crash.py one is killed."""
    config = lake_folder.config(groups(database), **OPTIONS)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        positions = pipeline.app.lake.positions
        copied = {
            (kind, table): positions(f"shop.{kind}_{table}")[kind].lsn for kind in TYPES for table in TABLES
        }  # fmt: skip
        with Load(database, 11):
            wait_until(lambda: all(pipeline.snapshots(f"{kind}_items") > 3 for kind in TYPES), "all of them go on")
            pipeline.die()
            pipeline.error = None
            begin_anew(database)
    with Pipeline(config, lake_folder, until_caught_up=True) as pipeline:
        assert pipeline.ended() == 0
        for (kind, table), at in copied.items():
            pipeline.assert_equal(f"{kind}_{table}", observer.expected(table, kind, at))


@pytest.mark.slow
@pytest.mark.timeout(900)
# Killed there, test_rejects.py has most types with each run; here a run is killed at any moment.
@pytest.mark.parametrize("points", [(), POINTS], ids=["any moment", "points"])
def test_every_type_holds_every_transaction_once(
    database: Database, observer: Observer, new_process: Callable[..., Process], points: tuple[str, ...]
) -> None:
    process = new_process(groups(database), pipeline=OPTIONS)
    with Load(database, 11):
        process.start()
        process.wait_event("copied", len(TYPES) * len(TABLES))
        process.wait_event("committed", 10)
        copied = {(event["source"], event["table"]): lsn.parse(event["lsn"]) for event in process.found("copied")}
        helpers = process.helpers()
        process.begin_kill()
        process.wait()
        process.wait_helpers(helpers)
        for point in points:
            process.start(failpoints=point)
            process.wait_killed()
            assert process.found("failpoint"), process.report()
            assert not process.found("table_failed"), process.report()
        begin_anew(database)
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for kind in TYPES:
        for table in TABLES:
            target = f"{kind}_{table}"
            at = copied[kind, f"shop.{target}"]
            process.assert_equal(target, observer.expected(table, kind, at), key=("id",))
