"""The catalogs behind which kuvasz is tried as a process: in a file, in a PostgreSQL server, behind REST.

A test's processes have it in a file; with CATALOG=postgres (or rest) all have that one, as in `make test-catalogs`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from typing_extensions import override

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import client_ports, scratch
from tests.support.postgres import create_database, drop_database
from tests.support.process import Process
from tests.support.rest_catalog import rest_server
from tests.support.stores import CATALOG_USER, own_by_keeper
from tests.support.waiting import wait_until

CATALOGS = ("sqlite", "postgres", "rest")

#: That of processes whose test does not say which.
KIND: Final = os.environ.get("CATALOG") or "sqlite"

#: Of tests that look into the file, or have it be away.
in_a_file = pytest.mark.skipif(KIND != "sqlite", reason="it is about a catalog in a file")

#: Client ports of the sessions of JVMs at a catalog, which are told by the name that their driver gives itself.
_OF_JVM = (
    "SELECT client_port FROM pg_stat_activity WHERE datname = current_database() AND usename = %s"
    " AND application_name LIKE 'PostgreSQL JDBC%%'"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Catalog:
    """A catalog that runs.

    Args:
        lake: Options of a map's section ``lake``; none: those of the file that a `Process` has by itself.
        pyiceberg: Properties for PyIceberg, but for the warehouse; none: likewise.
        settle: Waits until whatever a process that is gone had asked of it is answered.
    """

    lake: Mapping[str, object] = dataclasses.field(default_factory=dict)
    pyiceberg: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settle: Callable[[], None] = lambda: None


class CatalogProcess(Process):
    """kuvasz as a process behind a catalog.

    Args:
        databases: The map's groups.
        catalog: The catalog.
        folder: Its own; the warehouse is in it.
        lake: Options of the section ``lake`` that differ.
        options: As `Process` takes them.
    """

    def __init__(
        self,
        databases: Sequence[Mapping[str, object]],
        catalog: Catalog,
        *,
        folder: Path,
        lake: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        self.catalog = catalog
        super().__init__(databases, lake={**catalog.lake, **(lake or {})}, folder=folder, **options)

    @property
    @override
    def pyiceberg(self) -> dict[str, str]:
        return {**super().pyiceberg, **self.catalog.pyiceberg}

    @override
    def kill(self) -> None:
        super().kill()
        self.catalog.settle()

    @override
    def wait_killed(self) -> None:
        super().wait_killed()
        self.catalog.settle()


@contextlib.contextmanager
def running(kind: str, server: EmbeddedPostgres, warehouse: Path) -> Iterator[Catalog]:
    """Run a catalog.

    Args:
        kind: One of `CATALOGS`.
        server: Where the database is of one in PostgreSQL.
        warehouse: Where the tables are.
    """
    runs = {"sqlite": _in_file, "postgres": _in_postgres, "rest": _behind_rest}
    with runs[kind](server, warehouse) as made:
        yield made


@contextlib.contextmanager
def _in_file(_: EmbeddedPostgres, _warehouse: Path) -> Iterator[Catalog]:
    yield Catalog()


@contextlib.contextmanager
def _in_postgres(server: EmbeddedPostgres, _: Path) -> Iterator[Catalog]:
    database = create_database(server)
    own_by_keeper(database)
    address = f"127.0.0.1:{server.port}/{database.name}"

    def asking() -> set[int]:
        return {port for (port,) in database.execute(_OF_JVM, (CATALOG_USER,))}

    def settle() -> None:
        wait_until(lambda: asking() <= client_ports.of_the_living(), "sessions of the killed JVM end")

    lake = {
        "uri": f"jdbc:postgresql://{address}",
        "properties": {"jdbc.user": CATALOG_USER, "jdbc.password": "any"},
    }
    try:
        yield Catalog(
            lake=lake, pyiceberg={"uri": f"postgresql+psycopg://{CATALOG_USER}@{address}"}, settle=settle
        )  # fmt: skip
    finally:
        drop_database(database)


@contextlib.contextmanager
def _behind_rest(_: EmbeddedPostgres, warehouse: Path) -> Iterator[Catalog]:
    with rest_server(warehouse) as server:
        how = {"type": "rest", "uri": server.uri}
        yield Catalog(lake=how, pyiceberg=how, settle=server.settle)


@pytest.fixture
def new_process(request: pytest.FixtureRequest) -> Iterator[Callable[..., Process]]:
    """Makes `Process` objects that are gone after the test."""
    made: list[Process] = []
    with contextlib.ExitStack() as stack:

        def make(databases: Sequence[Mapping[str, object]], **options: Any) -> Process:
            if KIND == "sqlite":
                made.append(Process(databases, **options))
                return made[-1]
            folder = scratch.new_folder("kuvasz-process-")
            if isinstance(other := options.get("lake_of"), CatalogProcess):
                catalog = other.catalog
            else:
                catalog = stack.enter_context(running(KIND, request.getfixturevalue("postgres18"), folder / "wh"))
            made.append(CatalogProcess(databases, catalog, folder=folder, **options))
            return made[-1]

        yield make
        for process in made:
            process.remove()


__all__ = ["CATALOGS", "KIND", "Catalog", "CatalogProcess", "in_a_file", "new_process", "running"]
