"""Real PostgreSQL servers, one per version and session, and a fresh database per test.

Most tests have a server of version 18, some a second one, of 16. POSTGRES=14 (15, 17) puts that version in the place
of 18; tests of what a version lacks then skip themselves (`needs`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres, binaries
from tests.support import scratch
from tests.support.releases import RELEASES, programs

_numbers = itertools.count()

#: The beginning of the name of a folder that has a server's data and nothing else.
_ABOVE = "kuvasz-test-"

#: Of the server that most tests have.
VERSION: Final = int(os.environ.get("POSTGRES") or 18)


class Server(EmbeddedPostgres):
    """A server of any version that kuvasz supports, by default of the one that most tests have."""

    def __init__(
        self,
        folder: Path,
        *,
        version: int = VERSION,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, version=version, settings=settings, port=port)

    def command(self, name: str) -> Path:
        if self.version not in RELEASES:
            return super().command(name)
        program = programs(self.version) / name
        return program if program.exists() else binaries(18) / name  # clients can do with older servers

    def remove(self) -> None:
        super().remove()
        if self.folder.parent.name.startswith(_ABOVE):
            with contextlib.suppress(OSError):  # else somebody keeps something beside the data
                self.folder.parent.rmdir()


def needs(server: EmbeddedPostgres, version: int, what: str) -> None:
    """Skip a test of something that came with a later version than the server's."""
    if server.version < version:
        pytest.skip(f"{what}: not before PostgreSQL {version}, and this is {server.version}")


class Database:
    """One database on a real server; dropped with its slots after the test."""

    def __init__(self, server: EmbeddedPostgres, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple]:
        """Run one statement in its own transaction and return its rows, if it has any."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def takes(self, statement: str) -> bool:
        """Whether the server carries out a statement."""
        try:
            self.execute(statement)
        except psycopg.Error:
            return False
        return True

    def connect(self, **options: Any) -> psycopg.Connection:
        """Open a session."""
        return psycopg.connect(self.url, **options)


def create_database(server: EmbeddedPostgres, name: str | None = None, options: str = "") -> Database:
    name = name or f"test_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {options}')
    return Database(server, name)


def drop_database(database: Database) -> None:
    with psycopg.connect(database.server.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", (database.name,)
        )
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
        for (slot,) in connection.execute(slots, (database.name,)).fetchall():
            connection.execute(  # and wait: its walsender lets go of the slot as it ends
                "SELECT pg_terminate_backend(active_pid, 60000) FROM pg_replication_slots WHERE slot_name = %s"
                " AND active_pid IS NOT NULL", (slot,),
            )  # fmt: skip
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        connection.execute(f'DROP DATABASE IF EXISTS "{database.name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def postgres18() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 18 server, or of the version that stands in its place."""
    with Server(new_data_folder()) as server:
        yield server


@pytest.fixture(scope="session")
def postgres17() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 17 server, with ICU."""
    with Server(new_data_folder(), version=17) as server:
        yield server


@pytest.fixture(scope="session")
def postgres16() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 16 server."""
    with Server(new_data_folder(), version=16) as server:
        yield server


@pytest.fixture(scope="session")
def postgres15() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 15 server."""
    with Server(new_data_folder(), version=15) as server:
        yield server


@pytest.fixture(scope="session")
def postgres14() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 14 server, the oldest that kuvasz supports."""
    with Server(new_data_folder(), version=14) as server:
        yield server


@pytest.fixture(scope="session")
def new_data() -> Iterator[Path]:
    """The data folder of a new PostgreSQL 18 server that is stopped: `cp -a` of it costs less than initdb."""
    template = Server(new_data_folder(), version=18)
    template.start()
    template.stop()
    yield template.folder
    template.remove()


@pytest.fixture
def database(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh database on the server of most tests."""
    created = create_database(postgres18)
    yield created
    drop_database(created)


@pytest.fixture
def coordinator(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh database for a cluster's coordinator, beside a source in `database`."""
    created = create_database(postgres18)
    yield created
    drop_database(created)


@pytest.fixture(params=[pytest.param(16, marks=pytest.mark.slow), 18])
def source(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database on either server of the suite."""
    created = create_database(request.getfixturevalue(f"postgres{request.param}"))
    yield created
    drop_database(created)


def new_data_folder() -> Path:
    """Return where a new server's data goes: in memory if there is room, for each database is three hundred files.

    What is above it is open to the account that the server runs under when the tests run as root, as pytest's own
    folder is not.
    """
    above = scratch.new_folder(_ABOVE)
    above.chmod(0o711)
    return above / "data"
