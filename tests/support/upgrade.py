"""Servers that pg_upgrade makes of older ones."""

from __future__ import annotations

import shlex

from kuvasz.demo.postgres import EmbeddedPostgres, binaries

#: From this version of PostgreSQL on pg_upgrade takes logical slots along.
TAKES_SLOTS = 17


def upgrade(old: EmbeddedPostgres, new: EmbeddedPostgres) -> None:
    """Have pg_upgrade fill a new server's folder from a stopped server's, and start it.

    Raises:
        RuntimeError: pg_upgrade refuses; the old server can be started again.
    """
    sums = "" if old.version == new.version else "--no-data-checksums"
    new.folder.parent.mkdir(parents=True, exist_ok=True)
    new._run(
        "initdb", "-D", str(new.folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", *sums.split()
    )
    (new.folder / "postgresql.auto.conf").write_text("wal_level = logical\n")
    command = [
        str(new.command("pg_upgrade")), "-b", str(binaries(old.version)), "-B", str(binaries(new.version)),
        "-d", str(old.folder), "-D", str(new.folder), "-U", "postgres", "-s", str(new._sockets()),
    ]  # fmt: skip
    new._run("/bin/sh", "-c", f"cd {shlex.quote(str(new.folder))} && exec {shlex.join(command)}")
    new.start()
