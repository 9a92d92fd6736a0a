"""The end as an init system or a terminal brings it about."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: What a stop may take, by behaviour that is promised.
STOP_S = 30.0


# Slow: test_log.py has its process ended so, by SIGTERM.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_process_group_ends_it_cleanly(
    database: Database, new_process: Callable[..., Process], number: signal.Signals
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    database.execute("INSERT INTO items SELECT n, 'copied' FROM generate_series(1, 100) n")
    process = new_process(group({"eu": database}, {"items": None})).start()
    process.wait_event("copied")
    database.execute("INSERT INTO items SELECT n, 'streamed' FROM generate_series(101, 200) n")
    process.wait_confirmed(database)
    helpers, begin = process.helpers(), time.monotonic()
    os.killpg(process.pid, number)
    assert process.wait(60) == 0, process.report()
    assert time.monotonic() - begin < STOP_S
    assert process.output == []
    process.wait_helpers(helpers)
    process.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("sid", "id"))
