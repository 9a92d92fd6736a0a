"""Servers that are put back to an older state under kuvasz's eyes, and what must never be seen meanwhile."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import threading
from pathlib import Path

import psycopg
import pytest

from kuvasz.demo import postgres
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.postgres import Database


class Backup:
    """A copy of a server's data folder, to be put back while kuvasz is up."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self.folder = server.folder.with_name(f"{server.folder.name}-backup")
        server.stop()
        shutil.copytree(server.folder, self.folder, symlinks=True)
        server.start()

    def put_back(self, *, is_promoted: bool = False) -> None:
        """The server is as it was, on the same port; promoted: as a standby that had got so far."""
        self.server.stop("immediate")
        shutil.rmtree(self.server.folder)
        shutil.copytree(self.folder, self.server.folder, symlinks=True)
        if is_promoted:
            (self.server.folder / "standby.signal").touch()
        give_away(self.server.folder)
        self.server.start()
        if is_promoted:
            with psycopg.connect(self.server.url(), autocommit=True) as session:
                session.execute("SELECT pg_promote(true, 60)")

    def remove(self) -> None:
        """Nobody needs it any more."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Confirmations(threading.Thread):
    """Looks all the time whether the slot is confirmed beyond the server's own WAL."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self.database = database
        self.beyond: list[tuple] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        ask = (
            "SELECT confirmed_flush_lsn, pg_current_wal_insert_lsn() FROM pg_replication_slots"
            " WHERE NOT temporary AND confirmed_flush_lsn > pg_current_wal_insert_lsn()"
        )
        while not self._is_over.wait(0.02):
            with contextlib.suppress(psycopg.Error), self.database.connect(autocommit=True) as session:
                while not self._is_over.wait(0.02):
                    self.beyond += session.execute(ask).fetchall()

    def __enter__(self) -> Confirmations:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        assert self.beyond == []


def times_lost(caplog: pytest.LogCaptureFixture) -> int:
    """How often a source was told to be lost and begun anew."""
    return len([record for record in caplog.records if getattr(record, "event", "") == "slot_lost"])


def give_away(folder: Path) -> None:
    """Have every file belong to the server's account again."""
    if os.geteuid() == 0:
        owner = pwd.getpwnam(postgres.SERVER_ACCOUNT)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)
