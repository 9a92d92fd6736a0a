"""Three processes share six sources: each is killed, sleeps, is drained or joins under load, and nothing is lost.

In most tests the process that applies is this one, with a lake in memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.config.model import ClusterRole
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.jvm import spark
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.state.store import state_of
from tests.support import oracle
from tests.support.lake import MemoryPipeline
from tests.support.load import TABLES
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.shared_readers import SharedReaders

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

SIDS = ("de", "es", "eu", "fr", "uk", "us")


class Applier(MemoryPipeline):
    """The process that applies, in this one."""

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.lake = MemoryLake()
        self.app = App(self.config, lake=self.lake, holds_lease=True)
        self._ready.set()
        return await self.app.run()


def applier(readers: SharedReaders) -> Applier:
    """Return it; it has its lease for as long as a test may take."""
    readers.apply._cluster = {**readers.cluster, "role": "apply", "lease": "10m"}
    readers.apply.write_map(readers.groups)
    config = load(readers.apply.map, {}).config
    store: Any = state_of(config)
    store._lease.role = ClusterRole.APPLY
    assert store._lease.take("applies", "") is None
    return Applier(config, None)  # type: ignore[arg-type]


@pytest.fixture
def databases(postgres18: EmbeddedPostgres) -> Iterator[list[Database]]:
    made = [create_database(postgres18) for _ in range(len(SIDS) + 1)]
    yield made
    for database in made:
        drop_database(database)


@pytest.fixture
def readers(databases: list[Database], new_process: Callable[..., Process]) -> SharedReaders:
    *sources, coordinator = databases
    return SharedReaders(dict(zip(SIDS, sources, strict=True)), coordinator, new_process, lease_s=5)


def assert_equal(readers: SharedReaders, lake: MemoryLake) -> None:
    """Row for row."""
    assert readers.is_applied()
    for table in TABLES:
        expected = Counter(
            (sid, *row) for sid, database in readers.sources.items()
            for row in database.execute(f"SELECT * FROM {table}")
        )  # fmt: skip
        assert Counter(tuple(row.values()) for row in lake.rows(f"shop.{table}").to_pylist()) == expected


def test_one_is_killed_and_joins_again_one_sleeps_for_three_leases_and_one_is_drained(readers: SharedReaders) -> None:
    readers.start("one", "two", "three")
    with applier(readers) as apply:
        with readers.load():
            killed_and_back(readers)
            slept(readers)
            drained = readers.apply.run("cluster", "drain", readers.node("two"))
            assert drained.returncode == 0, drained.stderr
            readers.wait_shared("three")
        assert_equal(readers, apply.lake)
        assert not apply.errors()
    for name in ("two", "three"):
        readers.all[name].terminate()


def killed_and_back(readers: SharedReaders) -> None:
    """What the killed one held is read on by the others, and some of it is given to it when it is back."""
    before = readers.wait_shared("one", "two", "three")
    begin = time.monotonic()
    readers.all["one"].kill()
    taken_s = readers.taken_over_s("one", begin)
    print(f"with a lease of {readers.lease_s} s, all is held after {taken_s:.1f} s")
    assert taken_s < 1.5 * readers.lease_s
    after = readers.wait_shared("two", "three")
    kept = {source for source, node in before.items() if node != readers.node("one")}
    assert {after[source] for source in kept} == {before[source] for source in kept}
    assert all(after[source] == before[source] for source in kept), "nothing else moves"
    readers.start("one")
    joined = readers.wait_shared("one", "two", "three")
    moved = {source for source in joined if joined[source] != after[source]}
    assert {joined[source] for source in moved} == {readers.node("one")}
    given = [one["source"] for name in ("two", "three") for one in readers.all[name].found("source_given_back")]
    assert set(given) == moved
    assert sorted(node["sources"] for node in readers.nodes().values()) == [2, 2, 2]


def slept(readers: SharedReaders) -> None:
    """One that sleeps for three leases has lost what it held, writes nothing when it wakes, and ends."""
    begin = time.monotonic()
    os.killpg(readers.all["one"].pid, signal.SIGSTOP)
    assert readers.taken_over_s("one", begin) < 1.5 * readers.lease_s
    held = readers.wait_shared("two", "three")
    while time.monotonic() < begin + 3 * readers.lease_s:
        time.sleep(0.1)
    os.killpg(readers.all["one"].pid, signal.SIGCONT)
    assert readers.all["one"].wait() == 1, readers.report(["one"])
    assert any("the lease is lost" in line for line in readers.all["one"].output), readers.report(["one"])
    assert readers.wait_shared("two", "three") == held, "it has disturbed nobody"


@pytest.mark.slow
@pytest.mark.spark
def test_all_of_it_with_a_process_that_applies_through_spark(
    databases: list[Database], new_process: Callable[..., Process], spark_session: Any
) -> None:
    *sources, coordinator = databases
    readers = SharedReaders(dict(zip(SIDS, sources, strict=True)), coordinator, new_process, lease_s=5)
    readers.apply._cluster = {**readers.cluster, "role": "apply"}
    readers.apply.write_map(readers.groups)
    readers.start("one", "two", "three")
    readers.apply.start()
    with readers.load():
        readers.wait_shared("one", "two", "three")
        readers.apply.wait_event("committed", 20)
        assert not readers.apply.run("pause", "--table", "docs").returncode
        readers.all["two"].kill()
        readers.wait_shared("one", "three")
        assert not readers.apply.run("resync", "--table", "items").returncode
        readers.start("two")
        readers.wait_shared("one", "two", "three")
        assert not readers.apply.run("resume", "--table", "docs").returncode
        begin = time.monotonic()
        os.killpg(readers.all["three"].pid, signal.SIGSTOP)
        readers.taken_over_s("three", begin)
        readers.apply.kill()
        while time.monotonic() < begin + 3 * readers.lease_s:
            time.sleep(0.1)
        os.killpg(readers.all["three"].pid, signal.SIGCONT)
        assert readers.all["three"].wait() == 1, readers.report(["three"])
        readers.apply.start()
        readers.start("three")
        readers.wait_shared("one", "two", "three")
        assert not readers.apply.run("cluster", "drain", readers.node("one")).returncode
        readers.wait_shared("two", "three")
        readers.all["one"].terminate()
        readers.start("one")
        readers.wait_shared("one", "two", "three")
    assert readers.is_applied()
    for name in ("one", "two", "three"):
        readers.all[name].terminate()
    readers.apply.terminate()
    session = spark_session.newSession()
    for setting, value in spark.settings(load(readers.apply.map, {}).config).items():
        if setting.startswith("spark.sql.catalog."):
            session.conf.set(setting, value)
    for table in TABLES:
        rows = [source_rows(database.url, table, sid=sid) for sid, database in readers.sources.items()]
        readers.apply.assert_equal(table, *rows, key=("sid", "id"))
        seen = oracle.lake_rows_spark(session, f"kuvasz.shop.{table}")
        oracle.assert_equal(readers.apply.rows(table), seen, key=("sid", "id"))
