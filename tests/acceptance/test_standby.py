"""Two processes with one map: one replicates, the other one takes over when it ends, dies or sleeps."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.load import TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.outages import coordinator_away
from tests.support.postgres import Database
from tests.support.process import Process

# Slow: in test_kept_indexes.py the one that replicates is killed with each run, with larger tables.
pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

LEASE_S = 8


class Cluster:
    """Two processes."""

    def __init__(
        self, sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]
    ) -> None:
        cluster = {"coordinator": coordinator.url, "lease": f"{LEASE_S}s"}
        self.coordinator = coordinator
        self.sources = sources
        self.groups = group(sources, dict.fromkeys(TABLES))
        self.first = new_process(self.groups, cluster=cluster)
        self.second = new_process(self.groups, cluster=cluster, lake_of=self.first)
        for database in sources.values():
            fill_tables(database)

    def start(self) -> None:
        """Start both, the first one first."""
        self.first.start()
        self.first.wait_event("lease_taken")
        self.second.start()
        self.second.wait_event("standing_by")
        self.first.wait_confirmed(*self.sources.values())

    def assert_equal(self) -> None:
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.first.assert_equal(table, *rows)


@pytest.fixture
def cluster(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Cluster:
    return Cluster(two_sources, coordinator, new_process)


def taken_over_s(cluster: Cluster, begin: float) -> float:
    """Wait until the second process has brought all there is; return the seconds since then."""
    cluster.second.wait_event("lease_taken")
    taken = time.monotonic() - begin
    for database in cluster.sources.values():
        cluster.second.wait_confirmed(database)
    print(f"lease {taken:.1f} s, all visible {time.monotonic() - begin:.1f} s")
    return time.monotonic() - begin


def test_a_standby_takes_over_from_one_that_was_killed(cluster: Cluster) -> None:
    cluster.start()
    with Load(cluster.sources["eu"], 1), Load(cluster.sources["us"], 2):
        cluster.first.wait_event("committed", len(cluster.first.found("committed")) + 5)
        begin = time.monotonic()
        cluster.first.kill()
        taken_over_s(cluster, begin)
        assert cluster.second.found("lease_taken", was_killed=True)
        assert not cluster.second.found("copied"), "nothing is copied again"
        nodes = json.loads(cluster.second.run("cluster", "nodes", "--json").stdout)["nodes"]
        assert {(node["pid"], node["replicates"]) for node in nodes} == {
            (cluster.first.pid, False), (cluster.second.pid, True),
        }  # fmt: skip
        # And back, in order: nobody waits for a lease to end.
        cluster.first.start()
        cluster.first.wait_event("standing_by")
        cluster.second.begin_stop()
        cluster.first.wait_event("lease_taken", was_killed=False)
        assert cluster.second.wait() == 0, cluster.second.report()
    cluster.first.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()


def test_one_that_slept_through_its_lease_changes_nothing(cluster: Cluster) -> None:
    """All of it sleeps, JVM and workers, as a machine does that is paused: its sockets stay open."""
    cluster.start()
    with Load(cluster.sources["eu"], 3), Load(cluster.sources["us"], 4):
        cluster.first.wait_event("committed", len(cluster.first.found("committed")) + 5)
        begin = time.monotonic()
        os.killpg(cluster.first.pid, signal.SIGSTOP)
        taken_over_s(cluster, begin)
        assert cluster.second.found("reader_ended"), "its server would have kept the slot for it"
        while time.monotonic() < begin + 3 * LEASE_S:
            time.sleep(0.1)
        os.killpg(cluster.first.pid, signal.SIGCONT)
        assert cluster.first.wait() == 1, cluster.first.report()
        assert any("the lease is lost" in line for line in cluster.first.output), cluster.first.report()
        cluster.second.wait_confirmed(*cluster.sources.values())
    cluster.second.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()


def test_nobody_replicates_without_a_coordinator(cluster: Cluster) -> None:
    cluster.start()
    with Load(cluster.sources["eu"], 5):
        with coordinator_away(cluster.coordinator):
            assert cluster.first.wait() == 1, cluster.first.report()
            assert cluster.first.found("lease_lost")
            cluster.second.wait_event("coordinator_silent")
            assert not cluster.second.found("lease_taken")
        cluster.second.wait_event("lease_taken")
        cluster.second.wait_confirmed(*cluster.sources.values())
    cluster.second.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()


def test_what_a_person_wants_and_what_is_parked_outlive_the_process_that_had_it(cluster: Cluster) -> None:
    first, second = cluster.first, cluster.second
    cluster.start()
    first.begin_stop()
    second.wait_event("lease_taken", was_killed=False)
    assert first.wait() == 0, first.report()
    second.begin_stop()
    assert second.wait() == 0, second.report()
    paused = first.run("pause", "--table", "docs")
    assert paused.returncode == 0, paused.stderr
    second.start()
    second.wait_event("lease_taken")
    first.start()
    first.wait_event("standing_by")
    with Load(cluster.sources["eu"], 6), Load(cluster.sources["us"], 7):
        second.wait_until(lambda: sum(log.stat().st_size for log in second.parked()) > 100_000, "much is parked")
        second.kill()
        first.wait_event("lease_taken", was_killed=True)
        first.wait_until(lambda: sum(log.stat().st_size for log in first.parked()) > 200_000, "more is parked")
    first.begin_stop()
    assert first.wait() == 0, first.report()
    resumed = second.run("resume", "--table", "docs")
    assert resumed.returncode == 0, resumed.stderr
    second.start()
    second.wait_event("lease_taken")
    second.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()
    for process in (first, second):
        assert not process.found("copied"), "nothing is copied again"
        assert not process.found("table_failed"), process.report()
    assert cluster.coordinator.execute("SELECT count(*) FROM kuvasz.piece") == [(0,)]


def test_another_map_takes_nothing_over_from_one_that_lives(cluster: Cluster) -> None:
    first, second = cluster.first, cluster.second
    first.start()
    first.wait_event("lease_taken")
    (groups,) = cluster.groups
    second.write_map([{**groups, "tables": {"items": None}}])
    second.start()
    second.wait_event("map_differs")
    first.kill()
    time.sleep(2 * LEASE_S)
    assert not second.found("lease_taken"), second.report()
    second.write_map(cluster.groups)
    second.wait_event("lease_taken")
    second.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()


@pytest.mark.timeout(1800)
def test_turns_at_random_moments(cluster: Cluster) -> None:
    """Whoever replicates is killed, put to sleep or stopped, again and again, and comes back to stand by."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))  # noqa: S311
    print(f"seed {seed}")
    dice = random.Random(seed)  # noqa: S311
    cluster.start()
    holder, other = cluster.first, cluster.second
    with Load(cluster.sources["eu"], seed), Load(cluster.sources["us"], seed + 1):
        for _ in range(int(os.environ.get("TURNS") or 6)):
            time.sleep(dice.uniform(0, 6))
            how = dice.choice(["kill", "sleep", "stop"])
            print(how, flush=True)
            if how == "kill":
                holder.kill()
            elif how == "sleep":
                os.killpg(holder.pid, signal.SIGSTOP)
            else:
                holder.begin_stop()
            other.wait_event("lease_taken")
            time.sleep(dice.uniform(0, 4))
            if how == "sleep":
                os.killpg(holder.pid, signal.SIGCONT)
            assert how == "kill" or holder.wait() == (1 if how == "sleep" else 0), holder.report()
            holder.start()
            holder.wait_event("standing_by")
            holder, other = other, holder
    holder.wait_confirmed(*cluster.sources.values())
    cluster.assert_equal()
