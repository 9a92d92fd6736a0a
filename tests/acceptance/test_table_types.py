"""Every table type over one source, killed wherever it hurts: no version is missing, none is there twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kuvasz import lsn
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.observer import Observer
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TYPES = ("clone", "append", "history", "changelog")

#: Each kills one run in the stream; `test_crash_everything` tries all of them.
POINTS = ("after_commit:kill:7",)


@pytest.mark.timeout(900)
# Slow: killed there, test_rejects.py has most types with each run; here a run is killed at any moment.
@pytest.mark.parametrize("points", [(), pytest.param(POINTS, marks=pytest.mark.slow)], ids=["any moment", "points"])
def test_every_type_holds_every_transaction_once(
    database: Database, new_process: Callable[..., Process], points: tuple[str, ...]
) -> None:
    create_tables(database)
    observer = Observer(database, {"items": ("id",), "docs": ("id",)})
    fill_tables(database, 600)
    # A group of its own for each type, so that each has every table.
    process = new_process(
        [
            {
                "database": kind, "urls": [{"url": database.url}],
                "tables": {table: {"type": kind, "target": f"{kind}_{table}"} for table in TABLES},
            }
            for kind in TYPES
        ],
        pipeline={"transaction_spill_bytes": "64kB"},
    )  # fmt: skip
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
        database.execute("TRUNCATE items")
        database.execute("INSERT INTO items SELECT i, 0, 'new' FROM generate_series(1, 500) i ON CONFLICT DO NOTHING")
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    for kind in TYPES:
        for table in TABLES:
            target = f"{kind}_{table}"
            at = copied[kind, f"shop.{target}"]
            process.assert_equal(target, observer.expected(table, kind, at), key=("id",))
