"""Two processes with one map: one reads the sources and stages, the other one applies; each dies at any time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from kuvasz import lsn
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.jvm import spark
from tests.support import oracle
from tests.support.lake import group
from tests.support.load import TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.stores import S3

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MOST_MB = 150


@pytest.fixture
def coordinator(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(postgres18)
    yield database
    drop_database(database)


class Roles:
    """A process that reads, and one that applies; their log is in a folder, or in a store if there is one."""

    def __init__(
        self,
        sources: dict[str, Database],
        coordinator: Database,
        new_process: Callable[..., Process],
        store: S3 | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.sources = sources
        groups = group(sources, dict.fromkeys(TABLES))
        lake = {} if store is None else {"properties": store.properties}
        self.apply = new_process(groups, lake=lake)
        self.log = self.apply.folder / "log"
        place = str(self.log) if store is None else f"s3://{store.bucket}/{self.apply.folder.name}"
        cluster = {"coordinator": coordinator.url, "lease": "5s", "log": place}
        self.apply._cluster = {**cluster, "role": "apply"}
        self.apply.write_map(groups)
        self.read = new_process(groups, cluster=cluster, lake=lake, lake_of=self.apply)
        for database in sources.values():
            fill_tables(database)

    def start_read(self) -> None:
        self.read.start("--role", "read")

    def start(self) -> None:
        self.start_read()
        self.apply.start()
        self.wait_applied()

    def wait_applied(self) -> None:
        """Wait until all that sources have by now is in the lake."""
        for sid, database in self.sources.items():
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            query = f"SELECT 1 FROM kuvasz.log_source WHERE source = 'shop_{sid}' AND applied >= {lsn.parse(now)}"

            def is_applied(query: str = query) -> bool:
                return bool(self.coordinator.execute("SELECT to_regclass('kuvasz.log_source')")[0][0]) and bool(
                    self.coordinator.execute(query)
                )

            self.apply.wait_until(is_applied, f"{sid} is in the lake up to {now}")

    def assert_equal(self, session: Any) -> None:
        """By PyIceberg, DuckDB and Spark."""
        reader = session.newSession()
        for setting, value in spark.settings(load(self.apply.map, {}).config).items():
            if setting.startswith("spark.sql.catalog."):
                reader.conf.set(setting, value)
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.apply.assert_equal(table, *rows)
            seen = oracle.lake_rows_spark(reader, f"kuvasz.shop.{table}")
            oracle.assert_equal(self.apply.rows(table), seen, key=("sid", "id"))

    def committed(self, more: int = 5) -> None:
        self.apply.wait_event("committed", len(self.apply.found("committed")) + more)


@pytest.fixture
def roles(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Roles:
    return Roles(two_sources, coordinator, new_process)


def memory_mb(reader: psutil.Process) -> int:
    """Return what a process has in memory, in MB, of its own and of the files that it runs."""
    found = reader.memory_full_info()
    size = found.rss >> 20
    print(f"the reader takes {size} MB, {found.uss >> 20} of them its own, {reader.num_threads()} threads")
    return size


def test_one_reads_and_the_other_one_applies_and_each_is_killed(roles: Roles, spark_session: object) -> None:
    roles.start()
    with Load(roles.sources["eu"], 1), Load(roles.sources["us"], 2):
        roles.committed()
        nodes = json.loads(roles.read.run("cluster", "nodes", "--json").stdout)["nodes"]
        assert {(node["pid"], node["role"], node["replicates"]) for node in nodes} == {
            (roles.read.pid, "read", True), (roles.apply.pid, "apply", True),
        }  # fmt: skip
        roles.read.kill()
        roles.start_read()
        roles.committed()
        # Nobody applies: sources are staged and confirmed all the same.
        roles.apply.kill()
        roles.read.wait_confirmed(*roles.sources.values())
        assert list(roles.log.iterdir())
        roles.apply.start()
        roles.committed()
        reader = psutil.Process(roles.read.pid)
        memory = memory_mb(reader)
        assert not reader.children(recursive=True), "there is no JVM"
        roles.read.kill()
        roles.apply.kill()
        roles.apply.start()
        roles.start_read()
        roles.committed()
    roles.wait_applied()
    assert not roles.apply.found("copied"), "nothing is copied again"
    roles.apply.wait_until(lambda: not list(roles.log.iterdir()), "no object is left")
    roles.read.terminate()
    roles.apply.terminate()
    roles.assert_equal(spark_session)
    assert memory <= MOST_MB


def test_one_that_reads_into_a_store_is_as_small(
    two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process], s3: S3,
    spark_session: object,
) -> None:  # fmt: skip
    roles = Roles(two_sources, coordinator, new_process, s3)
    roles.start()
    reader = psutil.Process(roles.read.pid)
    with Load(roles.sources["eu"], 1), Load(roles.sources["us"], 2):
        roles.committed(20)
        memory = memory_mb(reader)
    roles.wait_applied()
    roles.apply.wait_until(lambda: not objects(s3, roles), "no object is left")
    roles.read.terminate()
    roles.apply.terminate()
    roles.assert_equal(spark_session)
    assert memory <= MOST_MB


def objects(s3: S3, roles: Roles) -> list[str]:
    """What a store has of the log; not the empty object where PyArrow had a folder."""
    return [key for key in s3.keys(f"{roles.apply.folder.name}/") if not key.endswith("/")]
