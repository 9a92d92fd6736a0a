"""What readers of the lake see while processes of a cluster die or are restarted, at 1,000 changes a second.

The lag is that of the newest transaction that the table shows, looked at all the time.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kuvasz.model import POSTGRES_EPOCH_US
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

LEASE_S = 5.0

#: What may be seen while one is restarted in order; and behind a lease, when one was killed.
MOST_S = 3.0

_EVERY_S = 0.1
_ROWS = 100


class Ticks:
    """Rows that come at an even pace, and how old the newest one of the lake is.

    Args:
        database: The source.
        process: Whose lake is looked at.
    """

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._write, self._watch)]
        self.changes = 0
        self.lags: list[float] = []

    def _write(self) -> None:
        begin = time.monotonic()
        with self._database.connect(autocommit=True) as session:
            while not self._stop.wait(max(0.0, self.changes / _ROWS * _EVERY_S - (time.monotonic() - begin))):
                end = self.changes + _ROWS
                session.execute(f"INSERT INTO ticks SELECT i, 0 FROM generate_series({self.changes}, {end - 1}) i")
                self.changes = end

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY_S):
            seen = self._process.positions("ticks")["shop_eu"].commit_us + POSTGRES_EPOCH_US
            self.lags.append(time.time() - seen / 1e6)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Write and look while the body runs."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def worst(self, since: int = 0) -> float:
        """Return the greatest lag that was seen since a number of looks."""
        return max(self.lags[since:])


@pytest.fixture
def nodes(database: Database, coordinator: Database, new_process: Callable[..., Process]) -> list[Process]:
    """Three processes, of which one replicates."""
    database.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, n int)")
    groups = group({"eu": database}, {"ticks": None})
    cluster = {"coordinator": coordinator.url, "lease": f"{LEASE_S:g}s"}
    first = new_process(groups, cluster=cluster)
    made = [first, *(new_process(groups, cluster=cluster, lake_of=first) for _ in range(2))]
    first.start()
    first.wait_event("lease_taken")
    for one in made[1:]:
        one.start()
        one.wait_event("standing_by")
    database.execute("INSERT INTO ticks VALUES (-1, 0)")
    first.wait_confirmed(database)
    return made


def holder(nodes: list[Process]) -> Process:
    """Wait until one has the lease, and return it."""
    nodes[0].wait_until(lambda: [one for one in nodes if one.is_running and one.found("lease_taken")], "one has it")
    return next(one for one in nodes if one.is_running and one.found("lease_taken"))


def settle(ticks: Ticks, seconds: float) -> int:
    """Let some time pass in which nothing happens; return the number of looks by then."""
    time.sleep(seconds)
    return len(ticks.lags)


def test_who_is_killed_is_missed_for_a_lease_and_little_more(nodes: list[Process], database: Database) -> None:
    ticks = Ticks(database, nodes[0])
    with ticks.watched():
        begin = settle(ticks, 20)
        usual = statistics.median(ticks.lags)
        killed = holder(nodes)
        killed.kill()
        nodes.remove(killed)
        holder(nodes)
        settle(ticks, 10)
    print(f"lag {usual:.1f} s, at most {ticks.worst(begin):.1f} s when one was killed; {ticks.changes} changes")
    holder(nodes).wait_confirmed(database)
    nodes[0].assert_equal("ticks", source_rows(database.url, "ticks", sid="eu"))
    assert ticks.worst(begin) <= LEASE_S + MOST_S


def test_a_rolling_restart_of_three_is_hardly_seen(nodes: list[Process], database: Database) -> None:
    ticks = Ticks(database, nodes[0])
    with ticks.watched():
        begin = settle(ticks, 20)
        usual = statistics.median(ticks.lags)
        for one in nodes:
            at = len(ticks.lags)
            was_holder = one is holder(nodes)
            one.terminate()
            one.start()
            one.wait_event("standing_by")
            settle(ticks, 5)
            print(f"{'the one that replicates' if was_holder else 'one that stands by'}: {ticks.worst(at):.1f} s")
    print(f"lag {usual:.1f} s, at most {ticks.worst(begin):.1f} s; {ticks.changes} changes")
    holder(nodes).wait_confirmed(database)
    nodes[0].assert_equal("ticks", source_rows(database.url, "ticks", sid="eu"))
    assert not [one for process in nodes for one in process.found("copied")]
    assert ticks.worst(begin) <= MOST_S
