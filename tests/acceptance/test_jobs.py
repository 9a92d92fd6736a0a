"""Jobs as a scheduler runs them, each in its own process: its exit code says what came of it, and nothing is left."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BOTH = ("items", "others")

#: What a source has of kuvasz, but for the session that reads.
LEFT = """
SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),
    (SELECT count(*) FROM pg_publication)
"""


@pytest.mark.timeout(900)
def test_what_is_copied_once_leaves_nothing_however_it_ends(
    database: Database, new_process: Callable[..., Process]
) -> None:
    for name in BOTH:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 1000) i")
    job = new_process(group({"eu": database}, dict.fromkeys(BOTH)))

    assert job.start("--snapshot-only", failpoints="snapshot_taken:kill").wait() == -signal.SIGKILL
    wait_until(lambda: database.execute(LEFT) == [(0, 0)], "nothing is left of one that was killed")

    # One that ends well, with 0, is in integration/test_snapshot_only.py.
    database.execute("DROP TABLE others")
    database.execute("UPDATE items SET n = 1")
    assert job.start("--snapshot-only").wait() == 1, job.report()
    assert database.execute(LEFT) == [(0, 0)]
    job.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))

    refused = job.run("--snapshot-only", "--set", "cluster.coordinator=postgresql://127.0.0.1:1/none")
    assert (refused.returncode, "--snapshot-only" in refused.stderr) == (2, True), refused.stderr
