"""Memory stays within `pipeline.memory` and a base, whatever comes: see "Memory" in docs/operating.md."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, Server, create_database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

MEMORY_BYTES = 64_000_000


class Gauge:
    """The most that driver and Python workers hold together, shared pages counted once, while it is watched."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.base = self._look()
        self.most = self.base

    def __enter__(self) -> Gauge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        print(f"base {self.base / 1e6:.0f} MB, growth {self.growth / 1e6:.0f} MB")

    @property
    def growth(self) -> int:
        """Bytes beyond what was held when the watch began."""
        return self.most - self.base

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.most = max(self.most, self._look())

    def _look(self) -> int:
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            for one in (psutil.Process(self._process.pid), *self._process.helpers()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if one.name() != "java":
                        total += one.memory_full_info().pss
        return total


@pytest.fixture
def start(database: Database, new_process: Callable[..., Process]) -> Iterator[Callable[..., Process]]:
    """Starts kuvasz with little memory on tables of the database."""

    def run(*tables: str, failpoints: str = "") -> Process:
        pipeline = {"memory": MEMORY_BYTES, "commit_interval": "500ms"}
        process = new_process(group({None: database}, dict.fromkeys(tables)), pipeline=pipeline)
        process.start(failpoints=failpoints)
        process.wait_until(lambda: process.found("reader.streaming"), "it streams", patience_s=900)
        return process

    return run


def test_a_large_transaction(database: Database, start: Callable[..., Process]) -> None:
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, name text)")
    process = start("items")
    with Gauge(process) as gauge:
        database.execute("INSERT INTO items SELECT i, i, 'item ' || i FROM generate_series(1, 3000000) i")
        database.execute("UPDATE items SET n = n + 1 WHERE id % 3 = 0")
        process.wait_confirmed(database)
    assert process.terminate() < 60
    ((count, total),) = database.execute("SELECT count(*), sum(n) FROM items")
    assert count == 3_000_000
    assert sum(row[1] * times for row, times in process.rows("items").rows.items()) == total
    assert gauge.growth < 4 * MEMORY_BYTES + 300e6


def test_values_of_50_megabytes(database: Database, start: Callable[..., Process]) -> None:
    database.execute("CREATE TABLE docs (id bigint PRIMARY KEY, body text)")
    process = start("docs")
    with Gauge(process) as gauge:
        for number in range(6):
            database.execute(f"INSERT INTO docs VALUES ({number}, repeat(md5('{number}'), 50000000 / 32))")
        database.execute("UPDATE docs SET body = body || 'x' WHERE id < 3")
        process.wait_confirmed(database)
    process.assert_equal("docs", source_rows(database.url, "docs"))
    assert gauge.growth < 4 * MEMORY_BYTES + 16 * 50e6


def test_a_catalog_that_does_not_answer(database: Database, start: Callable[..., Process]) -> None:
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, body text)")
    process = start("items", failpoints="before_commit:sleep=25:2")
    with Gauge(process) as gauge:
        for number in range(150):
            database.execute("INSERT INTO items SELECT i, repeat('x', 1000) FROM"
                             f" generate_series({number * 10000}, {number * 10000 + 9999}) i")  # fmt: skip
        process.wait_confirmed(database)
    assert process.found("failpoint")
    assert len(process.rows("items")) == 1_500_000
    assert gauge.growth < 4 * MEMORY_BYTES + 300e6


def test_a_thousand_tables(database: Database, start: Callable[..., Process]) -> None:
    names = [f"t_{number}" for number in range(1000)]
    with database.connect() as session:
        for name in names:
            session.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, n int)")
            session.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 10) i")
    process = start(*names)
    with Gauge(process) as gauge:
        for _ in range(3):
            with database.connect() as session:
                for name in names:
                    session.execute(f"UPDATE {name} SET n = n + 1 WHERE id = 1")
            process.wait_confirmed(database)
    for name in names[::100]:
        process.assert_equal(name, source_rows(database.url, name))
    assert gauge.growth < 4 * MEMORY_BYTES + 300e6


def test_64_sources_that_catch_up_at_once(
    tmp_path_factory: pytest.TempPathFactory, new_process: Callable[..., Process]
) -> None:
    settings = {"max_replication_slots": "80", "max_wal_senders": "80", "max_connections": "400"}
    with Server(Path(tmp_path_factory.mktemp("many")) / "data", settings=settings) as server:
        sources = {f"s{number:02}": create_database(server) for number in range(64)}
        for source in sources.values():
            source.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, body text)")
        pipeline = {"memory": MEMORY_BYTES, "commit_interval": "500ms"}
        process = new_process(group(sources, {"items": None}), pipeline=pipeline)
        process.start("--until-caught-up")
        assert process.wait(600) == 0, process.report()
        for source in sources.values():
            source.execute("INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series(1, 20000) i")
            source.execute("UPDATE items SET n = n + 1 WHERE id % 2 = 0")
        process.start()
        process.wait_until(lambda: process.found("lake_open"), "the lake is open", patience_s=300)
        with Gauge(process) as gauge:
            process.wait_confirmed(*sources.values())
            assert len(process.found("reader.streaming")) >= 64
        parts = [source_rows(source.url, "items", sid=sid) for sid, source in sources.items()]
        process.assert_equal("items", *parts, key=("sid", "id"))
        assert process.terminate() < 60
        process.remove()
    assert gauge.growth < 4 * MEMORY_BYTES + 300e6


def test_verify_of_large_tables(database: Database, new_process: Callable[..., Process]) -> None:
    """Memory does not grow with the tables: one of each way of comparing, with three times the rows.

    Fewer are compared too fast for the gauge, which then misses the Python workers.
    """
    shapes = {"items": None, "past": {"type": "history"}, "logged": {"type": "changelog"}}
    for table in shapes:
        database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int, name text)")
    process = new_process(group({None: database}, shapes), pipeline={"memory": MEMORY_BYTES})
    most = []
    for first, last in ((1, 1_000_000), (1_000_001, 3_000_000)):
        for table in shapes:
            rows = f"SELECT i, 0, 'item ' || i FROM generate_series({first}, {last}) i"
            database.execute(f"INSERT INTO {table} {rows}")
        process.start()
        process.wait_confirmed(database)
        process.terminate()
        process.start("verify")
        with Gauge(process) as gauge:
            assert process.wait(600) == 0, process.report()
        most.append(gauge.most)
    assert most[1] < most[0] + 300e6
