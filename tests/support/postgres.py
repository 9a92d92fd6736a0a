"""Real PostgreSQL servers, one per version and session, and a fresh database per test."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres

_numbers = itertools.count()


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
    """A PostgreSQL 18 server."""
    with EmbeddedPostgres(new_data_folder(), version=18) as server:
        yield server


@pytest.fixture(scope="session")
def postgres16() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 16 server."""
    with EmbeddedPostgres(new_data_folder(), version=16) as server:
        yield server


@pytest.fixture(scope="session")
def new_data() -> Iterator[Path]:
    """The data folder of a new PostgreSQL 18 server that is stopped: `cp -a` of it costs less than initdb."""
    template = EmbeddedPostgres(new_data_folder(), version=18)
    template.start()
    template.stop()
    yield template.folder
    template.remove()


class DebianPostgres(EmbeddedPostgres):
    """A server of Debian's package."""

    def command(self, name: str) -> Path:
        return Path(f"/usr/lib/postgresql/{self.version}/bin/{name}")


@pytest.fixture(scope="session")
def postgres15() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 15 server, where Debian's is installed."""
    server = DebianPostgres(new_data_folder(), version=15)
    if not server.command("postgres").exists():
        pytest.skip("there is no PostgreSQL 15")
    with server:
        yield server


@pytest.fixture
def database(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh database on PostgreSQL 18."""
    created = create_database(postgres18)
    yield created
    drop_database(created)


@pytest.fixture(params=[16, 18])
def source(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database on the oldest and on the newest server of the suite."""
    created = create_database(request.getfixturevalue(f"postgres{request.param}"))
    yield created
    drop_database(created)


def new_data_folder() -> Path:
    # pytest's own folder is closed to the account the server runs under when the tests run as root.
    return Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
