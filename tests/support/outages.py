"""What a cluster does without for a while: its catalog, or its coordinator; and what its sources keep meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.catalogs import CatalogProcess
from tests.support.postgres import Database
from tests.support.process import Process

#: WAL that a server keeps for its slots.
HELD = (
    "SELECT max(pg_current_wal_lsn() - restart_lsn)::int8 FROM pg_replication_slots WHERE slot_name LIKE 'kuvasz_%'"
)


@contextlib.contextmanager
def catalog_away(process: Process) -> Iterator[None]:
    """Somebody else has the catalog for himself, which is in a file."""
    if isinstance(process, CatalogProcess):
        pytest.skip("it is about a catalog in a file")
    with contextlib.closing(sqlite3.connect(process.folder / "catalog.db", isolation_level=None)) as catalog:
        catalog.execute("PRAGMA busy_timeout = 20000")
        catalog.execute("BEGIN EXCLUSIVE")
        yield
        catalog.execute("ROLLBACK")


@contextlib.contextmanager
def coordinator_away(database: Database) -> Iterator[None]:
    """The coordinator refuses whoever comes, and ends those who are there."""
    with psycopg.connect(database.server.url(), autocommit=True) as session:
        session.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS false')
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database.name,))
        yield
        session.execute(f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS true')


__all__ = ["HELD", "catalog_away", "coordinator_away"]
