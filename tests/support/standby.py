"""Standbys that stream from a server, and one that lags and takes over in its place."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.postgres import Database, Server
from tests.support.restore import Backup
from tests.support.waiting import wait_until

#: From this version of PostgreSQL on a standby keeps slots.
SYNCED_SLOTS = 17

#: Seconds in which a standby looks for slots to keep, usually.
_SYNC_S = 3.0


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"


@contextlib.contextmanager
def removed_after(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Yield a server that runs, and leave nothing of it; a test may have stopped it."""
    yield server
    with contextlib.suppress(RuntimeError):
        server.stop("immediate")
    server.remove()


def make_standby(primary: EmbeddedPostgres, *, keeps_slots: bool) -> EmbeddedPostgres:
    """A standby, which follows from now on."""
    slot = f"standby_{uuid.uuid4().hex[:8]}"
    Database(primary, "postgres").execute(f"SELECT pg_create_physical_replication_slot('{slot}', true)")
    settings = primary.settings | {
        "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres",
        "primary_slot_name": slot, "hot_standby_feedback": "on",
    }  # fmt: skip
    if primary.version >= SYNCED_SLOTS:
        settings["sync_replication_slots"] = "on" if keeps_slots else "off"
    standby = Server(new_folder(), version=primary.version, settings=settings)
    standby.folder.parent.chmod(0o777)
    standby._run("pg_basebackup", "-D", str(standby.folder), "-d", primary.url(), "-X", "stream", "-c", "fast", "-R")
    standby.start()
    return standby


def catch_up(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Return when a standby has what its primary has written."""
    ((end,),) = Database(primary, "postgres").execute("SELECT pg_current_wal_lsn()::text")
    there = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    wait_until(lambda: Database(standby, "postgres").execute(there, (end,)) == [(True,)], "the standby has it all")


class LateStandby(Backup):
    """A standby that has streamed until it was made, with the slots it found, and lags from then on."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        standby = make_standby(server, keeps_slots=True)
        self.folder = standby.folder
        kept = "SELECT 1 FROM pg_replication_slots WHERE synced AND NOT temporary"
        if server.version >= SYNCED_SLOTS:
            with contextlib.suppress(AssertionError):  # without a slot it takes over all the same
                wait_until(lambda: Database(standby, "postgres").execute(kept), "it keeps a slot", _SYNC_S)
        catch_up(server, standby)
        standby.stop()
