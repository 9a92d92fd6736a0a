"""The test stand of one run: a folder, a fresh PostgreSQL server with databases, and what is measured."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from benchmarks.profiles import Profiles
from benchmarks.run import APPLY_S, START_S
from benchmarks.sampler import Sampler
from benchmarks.store.emulator import ObjectStore
from benchmarks.subject import Group, Subject
from kuvasz.demo.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.outcome import Outcome
    from benchmarks.run import Run
    from benchmarks.workload import Mark, Workload
    from kuvasz.demo.fingerprint import RowField

#: A fan-in has a slot of kuvasz in every database, and some for the references.
_SLOTS = 500

_SETTINGS = {
    "max_replication_slots": str(_SLOTS),
    "max_wal_senders": str(_SLOTS),
    "max_connections": str(_SLOTS + 200),
    "max_wal_size": "8GB",
}

#: Between two samples, for each server: a look at all its sessions takes some 3 ms.
_SERVER_S = 0.25
#: The server of the one source that is beside a fleet.
_BESIDE = "beside"


class Load(Protocol):
    """Something that fills a database and changes it."""

    @property
    def fields(self) -> Mapping[str, Sequence[RowField]]:
        """The tables with what is compared of each; the first field is the key."""

    def create(self, url: str) -> None:
        """Create the tables with their first rows."""

    def change(self, url: str) -> Mark:
        """Change them; all is flushed when it returns."""


class Stand:
    """A context manager; the server is started when a database is asked for.

    Args:
        profiles: Where profiles of kuvasz go, if they are wanted.
    """

    def __init__(self, profiles: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kuvasz-bench-"))
        self._profiles = profiles
        self._servers: dict[str, EmbeddedPostgres] = {}

    @property
    def server(self) -> EmbeddedPostgres:
        """The server of all databases, but for fleets that have several."""
        return self._started("postgres")

    def database(self, name: str, server: EmbeddedPostgres | None = None) -> str:
        """Create a database and return its url."""
        server = server or self.server
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return server.url(name)

    def subject(
        self,
        load: Load,
        *,
        pipeline: Mapping[str, Any] | None = None,
        store: ObjectStore | None = None,
        log_interval: str = "",
        keeps_indexes: bool = False,
        name: str = "bench",
    ) -> Subject:
        """Return one source with the load's tables, filled; its lake is in a local folder, or in a store.

        With a `log_interval` its changes are staged in a local folder, and with `keeps_indexes` the indexes of its
        tables are kept in one; the coordinator is a database beside it. Each of several has a name of its own.
        """
        name = "bench_stored" if store else name
        url = self.database(name)
        self.say("filling the source")
        load.create(url)
        folder = self.folder / "stored" if store else self.folder if name == "bench" else self.folder / name
        groups = [Group(database=name, urls=[(None, url)], fields=load.fields)]
        cluster: dict[str, str] = {}
        if log_interval:
            cluster |= {"log": f"{folder.absolute()}/log", "log_interval": log_interval}
        if keeps_indexes:
            cluster["indexes"] = f"{folder.absolute()}/indexes"
        if cluster:
            cluster["coordinator"] = self.database(f"{name}_coordinator")
        return Subject(folder, groups, pipeline, store=store, cluster=cluster)

    def object_store(self, delay_ms: float) -> contextlib.closing[ObjectStore]:
        """Return an object store in which each request takes so long, as a context."""
        return contextlib.closing(ObjectStore(self.folder, delay_ms))

    def fleet(
        self,
        load: Workload,
        sources: int,
        name: str,
        *,
        servers: int = 1,
        pipeline: Mapping[str, Any] | None = None,
        beside: str | None = None,
    ) -> Subject:
        """Return so many sources with the load's tables, each filled in its own way; in a folder of that name.

        Args:
            load: Of each source.
            sources: How many.
            name: Of their databases.
            servers: Which these are spread over, for each walsender decodes the WAL of all databases of its server.
            pipeline: See `Subject`.
            beside: The name of one more, the last, in a server of its own.
        """
        places = [self.server, *(self._started(f"postgres_{number}") for number in range(1, servers))]
        urls = [
            (f"s{number}", self.database(f"{name}_{number}", places[number % servers])) for number in range(sources)
        ]
        if beside is not None:
            urls.append((beside, self._started(_BESIDE).url("postgres")))
        self.say(f"filling {len(urls)} sources")
        for number, (_, url) in enumerate(urls):
            dataclasses.replace(load, seed=load.seed + number).create(url)
        os.sync()  # what a thousand new databases leave to be written would be waited for by the first commits
        return Subject(self.folder / name, [Group(database=name, urls=urls, fields=load.fields)], pipeline)

    def sampler(self, run: Run, *, interval_s: float = 0.5) -> Sampler:
        """Sample a run and the servers, but for one beside them; the more of these, the more seldom."""
        folders = [server.folder for name, server in self._servers.items() if name != _BESIDE]
        return Sampler(run.pid, folders, interval_s=max(interval_s, _SERVER_S * len(folders)))

    def profiled(self, run: Run, name: str) -> contextlib.AbstractContextManager[object]:
        """Profile a run while the context lasts, if profiles are wanted."""
        if self._profiles is None:
            return contextlib.nullcontext()
        return Profiles(run.pid, self._profiles, name)

    def copied(self, subject: Subject) -> None:
        """Let kuvasz make slots, publications and the initial copies, and end."""
        self.say("initial copy")
        with subject.start("--until-caught-up") as run:
            run.wait_for("copied", timeout_s=START_S + APPLY_S, count=subject.copies)
            run.wait(APPLY_S)

    def verify(self, subject: Subject, outcome: Outcome) -> None:
        """Compare all rows, and say in the outcome how many these were.

        Raises:
            WrongResultError: Some differ.
        """
        self.say("comparing the lake with the source")
        outcome.add("rows compared", subject.compare(), "")

    def _started(self, name: str) -> EmbeddedPostgres:
        if name not in self._servers:
            self._servers[name] = EmbeddedPostgres(self.folder / name, settings=_SETTINGS)
            self._servers[name].start()
        return self._servers[name]

    @staticmethod
    def say(text: str) -> None:
        """Tell what is going on."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for server in self._servers.values():
                server.stop("immediate")
                server.remove()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
