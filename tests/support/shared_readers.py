"""Several processes that read a number of sources, and a coordinator: who of them holds what."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from kuvasz import lsn
from tests.support.lake import group
from tests.support.load import TABLES, Load, create_tables, fill_tables
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

_HELD = """
SELECT s.source, l.owner FROM kuvasz.log_source AS s LEFT JOIN kuvasz.lease AS l
    ON l.cluster = 'kuvasz/read/' || s.holder AND l.number = s.held AND l.owner IS NOT NULL
WHERE s.wanted IS NOT NULL
"""
_LEASES = "SELECT owner FROM kuvasz.lease WHERE cluster LIKE 'kuvasz/read/%' AND owner IS NOT NULL"
_RECEIVING = """
SELECT count(*)::int FROM kuvasz.log_source WHERE wanted IS NOT NULL AND (answer ->> 'is_receiving')::boolean
"""


class SharedReaders:
    """The processes that read, by name.

    Args:
        sources: Databases by sid.
        coordinator: Where they meet.
        new_process: Makes one.
        apply: The process that applies, whose log and lake they have.
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
        self.groups = group(dict(sources.items()), dict.fromkeys(TABLES))
        self.all: dict[str, Process] = {}
        self._new_process = new_process
        self.apply = new_process(self.groups, address="127.0.0.1:0")
        self.cluster = {
            "coordinator": coordinator.url, "lease": f"{lease_s}s", "log": str(self.apply.folder / "log"),
            "log_interval": "100ms",
        }  # fmt: skip
        for database in sources.values():
            create_tables(database)
            fill_tables(database, 100)

    def start(self, *names: str) -> None:
        """Have processes begin to read."""
        for name in names:
            if name not in self.all:
                self.all[name] = self._new_process(self.groups, cluster=self.cluster, lake_of=self.apply)
            self.all[name].start("--role", "read")
        for name in names:
            self.all[name].wait_event("lease_taken")

    def node(self, name: str) -> str:
        """Return what the cluster calls a process."""
        return str(self.all[name].wait_event("lease_taken")["node"])

    def held(self) -> dict[str, str | None]:
        """Return which node holds each source that is to be read; None: nobody who may still write."""
        return dict(self.coordinator.execute(_HELD)) if self._is_made() else {}

    def _is_made(self) -> bool:
        return self.coordinator.execute("SELECT to_regclass('kuvasz.log_source') IS NOT NULL") == [(True,)]

    def wait_shared(self, *names: str) -> dict[str, str | None]:
        """Wait until processes hold all sources, about as many each, and receive them; return who holds which."""
        nodes = {self.node(name) for name in names}

        def is_shared() -> bool:
            counts = Counter(self.held().values())
            sizes = [counts[node] for node in nodes]
            return (
                sum(sizes) == sum(counts.values()) == len(self.sources)
                and max(sizes) - min(sizes) <= 1
                and self.coordinator.execute(_RECEIVING) == [(len(self.sources),)]
            )

        wait_until(is_shared, lambda: f"{names} hold all: {self.held()}\n{self.report()}")
        return self.held()

    def taken_over_s(self, name: str, since: float) -> float:
        """Wait until nothing is one process's any more, and all is held; return the seconds since then."""
        node = self.node(name)
        wait_until(
            lambda: not {node, None} & set(self.held().values()), lambda: f"{name} has nothing\n{self.report()}"
        )
        return time.monotonic() - since

    def nodes(self) -> dict[str, dict]:
        """Return the processes as the command lists them."""
        found = self.apply.run("cluster", "nodes", "--json").stdout
        return {node["name"]: node for node in json.loads(found)["nodes"]}

    @contextlib.contextmanager
    def load(self) -> Iterator[list[Load]]:
        """Have all sources be written to while the body runs."""
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(Load(database, seed, pause_s=0.2))
                for seed, database in enumerate(self.sources.values())
            ]

    def is_applied(self) -> bool:
        """Whether all that the sources have committed by now is in the lake."""
        ends = {
            f"shop_{sid}": lsn.parse(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
            for sid, database in self.sources.items()
        }

        def is_there() -> bool:
            found = dict(self.coordinator.execute("SELECT source, applied FROM kuvasz.log_source"))
            return all(found.get(source, 0) >= end for source, end in ends.items())

        wait_until(is_there, lambda: f"all is in the lake\n{self.report()}")
        return True

    def report(self, names: Collection[str] = ()) -> str:
        """Return what the processes told, for failures."""
        return "\n".join(f"{name}:\n{self.all[name].report()}" for name in names or self.all)


__all__ = ["SharedReaders"]
