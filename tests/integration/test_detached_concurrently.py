"""A partition that is detached while others use its root (DETACH PARTITION … CONCURRENTLY): pending, and then gone.

Between the two transactions of that no query of the root shows its rows, and it may be written to by its own name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kuvasz.sync import watches
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.partitioned import EVENTS, run, wait_equal
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: What DETACH adds to a partition that lacks it, so that its catalog entry changes with the first transaction.
ITS_BOUNDS = "CHECK (day IS NOT NULL AND day >= '2024-02-01'::date AND day < '2024-03-01'::date)"


@contextlib.contextmanager
def detaching(database: Database) -> Iterator[None]:
    """Have a partition be pending, and then detached."""

    def detach() -> None:
        with database.connect(autocommit=True) as session:
            session.execute("ALTER TABLE events DETACH PARTITION events_2 CONCURRENTLY")

    with ThreadPoolExecutor(1) as threads, database.connect() as using:
        using.execute("SELECT count(*) FROM events")  # whoever reads the root is waited for
        done = threads.submit(detach)
        try:
            wait_until(
                lambda: done.done() or database.execute("SELECT 1 FROM pg_inherits WHERE inhdetachpending"),
                "it is pending",
            )
            assert not done.done(), done.result()
            yield
        finally:
            using.rollback()
            done.result()


@pytest.mark.parametrize("has_bounds", [False, True], ids=["gets bounds", "has bounds"])
def test_rows_of_a_partition_that_is_pending_are_not_the_roots(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, *, has_bounds: bool
) -> None:
    """Also where a stream has shown it as the root's, and DETACH need not change its entry in the catalog."""
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.1)
    run(database, EVENTS, *([f"ALTER TABLE events_2 ADD {ITS_BOUNDS}"] if has_bounds else []))
    with Pipeline(lake_folder.config(group({"eu": database}, {"events": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, "INSERT INTO events VALUES (900, '2024-02-02', 1)")
        wait_equal(pipeline, database, ["events"])
        with detaching(database):
            wait_equal(pipeline, database, ["events"])
            run(database, "INSERT INTO events_2 VALUES (901, '2024-02-03', 1)")
            run(database, "UPDATE events_2 SET n = 5", "DELETE FROM events_2 WHERE id = 900")
            run(database, "INSERT INTO events VALUES (902, '2024-01-02', 1)")
            wait_equal(pipeline, database, ["events"])
        run(database, "INSERT INTO events_2 VALUES (903, '2024-02-03', 1)")
        run(database, "INSERT INTO events VALUES (904, '2024-01-02', 1)")
        wait_equal(pipeline, database, ["events"])
