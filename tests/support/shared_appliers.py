"""Several processes that apply groups of databases, one that reads them, and a coordinator: who has what."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from kuvasz import lsn
from tests.support.lake import group
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

_HELD = """
SELECT g.name, l.owner FROM kuvasz.applied_group AS g LEFT JOIN kuvasz.lease AS l
    ON l.cluster = 'kuvasz/apply/' || g.holder AND l.number = g.held AND l.owner IS NOT NULL
"""


class SharedAppliers:
    """The processes that apply, by name, and the one that reads.

    Args:
        sources: Databases by the name of the group that each is.
        coordinator: Where they meet.
        new_process: Makes one.
        lease_s: For how long a lease is.
    """

    def __init__(
        self,
        sources: Mapping[str, Database],
        coordinator: Database,
        new_process: Callable[..., Process],
        lease_s: float,
    ) -> None:
        self.sources = sources
        self.coordinator = coordinator
        self.lease_s = lease_s
        self.groups = [
            one for name, database in sources.items()
            for one in group({None: database}, {table: {"target": f"{table}_{name}"} for table in TABLES}, name)
        ]  # fmt: skip
        self.all: dict[str, Process] = {}
        self._new_process = new_process
        self.read = new_process(self.groups)
        self.cluster = {
            "coordinator": coordinator.url, "lease": f"{lease_s}s", "log": str(self.read.folder / "log"),
            "log_interval": "100ms",
        }  # fmt: skip
        self.read._cluster = {**self.cluster, "role": "read"}
        self.read.write_map(self.groups)
        for database in sources.values():
            create_tables(database)
            fill_tables(database, 100)

    def make(self, name: str) -> Process:
        """Return a process that applies, made if it is missing."""
        if name not in self.all:
            cluster = {**self.cluster, "role": "apply"}
            self.all[name] = self._new_process(
                self.groups, cluster=cluster, lake_of=self.read, address="127.0.0.1:0"
            )  # fmt: skip
        return self.all[name]

    def write_map(self, groups: Collection[str]) -> None:
        """Have the maps of all who apply have some groups alone, for who reads them again."""
        for process in self.all.values():
            process.write_map([one for one in self.groups if one["database"] in groups])

    def start(self, *names: str) -> None:
        """Have processes begin to apply."""
        for name in names:
            self.make(name).start()
        for name in names:
            self.all[name].wait_event("lease_taken")

    def node(self, name: str) -> str:
        """Return what the cluster calls a process."""
        return str(self.all[name].wait_event("lease_taken")["node"])

    def held(self) -> dict[str, str | None]:
        """Return which node holds each group; None: nobody who may still write."""
        is_made = self.coordinator.execute("SELECT to_regclass('kuvasz.applied_group') IS NOT NULL") == [(True,)]
        return dict(self.coordinator.execute(_HELD)) if is_made else {}

    def wait_shared(self, *names: str) -> dict[str, str | None]:
        """Wait until processes hold all groups, about as many each; return who holds which."""
        nodes = {self.node(name) for name in names}

        def is_shared() -> bool:
            counts = Counter(self.held().values())
            sizes = [counts[node] for node in nodes]
            return sum(sizes) == sum(counts.values()) == len(self.sources) and max(sizes) - min(sizes) <= 1

        wait_until(is_shared, lambda: f"{names} hold all: {self.held()}\n{self.report()}")
        return self.held()

    def taken_over_s(self, name: str, since: float) -> float:
        """Wait until nothing is one process's any more, and all is held; return the seconds since then."""
        node = self.node(name)
        wait_until(
            lambda: len(held := self.held()) == len(self.sources) and not {node, None} & set(held.values()),
            lambda: f"{name} has nothing\n{self.report()}",
        )
        return time.monotonic() - since

    def nodes(self) -> dict[str, dict]:
        """Return the processes as the command lists them."""
        found = self.read.run("cluster", "nodes", "--json").stdout
        return {node["name"]: node for node in json.loads(found)["nodes"]}

    @contextlib.contextmanager
    def load(self) -> Iterator[list[Load]]:
        """Have all sources be written to while the body runs."""
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(Load(database, seed, pause_s=0.2))
                for seed, database in enumerate(self.sources.values())
            ]

    def wait_applied(self) -> None:
        """Wait until all that the sources have committed by now is in the lake."""
        ends = {
            name: lsn.parse(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
            for name, database in self.sources.items()
        }

        def is_there() -> bool:
            is_made = self.coordinator.execute("SELECT to_regclass('kuvasz.log_source') IS NOT NULL") == [(True,)]
            found = dict(self.coordinator.execute("SELECT source, applied FROM kuvasz.log_source")) if is_made else {}
            return all(found.get(source, 0) >= end for source, end in ends.items())

        wait_until(is_there, lambda: f"all is in the lake\n{self.report()}")

    def assert_equal(self) -> None:
        """By PyIceberg and DuckDB, row for row."""
        for name, database in self.sources.items():
            for table in TABLES:
                self.read.assert_equal(f"{table}_{name}", source_rows(database.url, table))

    def report(self, names: Collection[str] = ()) -> str:
        """Return what the processes told, for failures."""
        return "\n".join(f"{name}:\n{self.all[name].report()}" for name in names or self.all)


__all__ = ["SharedAppliers"]
