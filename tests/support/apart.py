"""Two processes with one map and a staged log: one reads the sources, the other one applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kuvasz import lsn
from kuvasz.config.load import load
from kuvasz.lake.jvm import spark
from tests.support import oracle
from tests.support.lake import group
from tests.support.load import TABLES, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.stores import S3


class Roles:
    """A process that reads, and one that applies; their log is in a folder, or in a store if there is one.

    Args:
        sources: The sources by their sids, with empty tables.
        coordinator: The coordinator.
        new_process: Makes the processes.
        store: Where the log is.
        endpoint: How the store is reached, if not as it says itself.
        lease_s: For how long a lease is taken.
        options: Of the processes, besides.
    """

    def __init__(
        self,
        sources: dict[str, Database],
        coordinator: Database,
        new_process: Callable[..., Process],
        store: S3 | None = None,
        endpoint: str | None = None,
        lease_s: int = 5,
        **options: Any,
    ) -> None:
        self.coordinator = coordinator
        self.sources = sources
        self.store = store
        self.copies = len(sources) * len(TABLES)  #: of tables, at the first start
        by_sid: dict[str | None, Database] = dict(sources.items())
        groups = group(by_sid, dict.fromkeys(TABLES))
        properties = {} if store is None else {**store.properties, "s3.endpoint": endpoint or store.endpoint}
        lake = {"properties": properties} if properties else {}
        self.apply = new_process(groups, lake=lake, **options)
        self.log = self.apply.folder / "log"
        place = str(self.log) if store is None else f"s3://{store.bucket}/{self.apply.folder.name}"
        cluster = {"coordinator": coordinator.url, "lease": f"{lease_s}s", "log": place}
        self.apply._cluster = {**cluster, "role": "apply"}
        self.apply.write_map(groups)
        self.read, self.all = (
            new_process(groups, cluster=cluster, lake=lake, lake_of=self.apply, **options) for _ in range(2)
        )  #: the second one, if a test starts it, with `role: all`
        for database in sources.values():
            fill_tables(database)

    def start_read(self) -> None:
        """Start the one that reads."""
        self.read.start("--role", "read")

    def start(self) -> None:
        """Start both, and wait for the copies."""
        self.start_read()
        self.apply.start()
        self.apply.wait_event("copied", self.copies)
        self.wait_applied()

    def objects(self) -> list[str]:
        """What there is of the log; in a store not the empty object where PyArrow had a folder."""
        if self.store is None:
            return [file.name for file in self.log.iterdir()]
        return [key for key in self.store.keys(f"{self.apply.folder.name}/") if not key.endswith("/")]

    def wait_applied(self, by: Process | None = None) -> None:
        """Wait until all that sources have by now is in the lake, by the one that applies, or another one."""
        for sid, database in self.sources.items():
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            query = f"SELECT 1 FROM kuvasz.log_source WHERE source = 'shop_{sid}' AND applied >= {lsn.parse(now)}"

            def is_applied(query: str = query) -> bool:
                return bool(self.coordinator.execute("SELECT to_regclass('kuvasz.log_source')")[0][0]) and bool(
                    self.coordinator.execute(query)
                )

            (by or self.apply).wait_until(is_applied, f"{sid} is in the lake up to {now}")

    def wait_empty(self) -> None:
        """Wait until nothing is left of the log, neither objects nor rows of the coordinator."""
        rows = "SELECT (SELECT count(*) FROM kuvasz.log_slice) + (SELECT count(*) FROM kuvasz.log_object)"
        self.apply.wait_until(
            lambda: not self.objects() and self.coordinator.execute(rows) == [(0,)], "nothing is left of the log"
        )

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
        """Wait for so many more commits."""
        self.apply.wait_event("committed", len(self.apply.found("committed")) + more)


__all__ = ["Roles"]
