"""The lines to hold kuvasz against: what PostgreSQL's own programs need for the same rows on the same machine."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

from kuvasz import lsn

if TYPE_CHECKING:
    from pathlib import Path

    from kuvasz.demo.postgres import EmbeddedPostgres


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One run of a reference."""

    rows: int
    seconds: float
    cpu_s: float  #: of the client alone, user and system

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


def bare_copy(url: str, table: str) -> Reference:
    """Read a table with one ``COPY … TO STDOUT`` and throw the rows away (manual, section 32.10)."""
    connection = pq.PGconn.connect(url.encode())
    try:
        began, cpu = time.perf_counter(), time.process_time()
        result = connection.exec_(f"COPY {table} TO STDOUT".encode())
        if result.status != pq.ExecStatus.COPY_OUT:
            raise RuntimeError(f"copy of {table} refused: {connection.error_message.decode()}")
        rows = 0
        while True:
            length, _ = connection.get_copy_data(0)
            if length < 0:
                break
            rows += 1  # the server sends a message per row
        return Reference(rows=rows, seconds=time.perf_counter() - began, cpu_s=time.process_time() - cpu)
    finally:
        connection.finish()


def create_slot(url: str, slot: str) -> None:
    """Create the slot a later `pg_recvlogical` reads: it keeps the WAL from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))


def drop_slot(url: str, slot: str) -> None:
    """Drop a slot, if it is there."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (slot,)
        )


def recvlogical(
    server: EmbeddedPostgres, url: str, *, slot: str, publication: str, end_lsn: int, rows: int, log: Path
) -> Reference:
    """Read a slot's backlog up to `end_lsn` into /dev/null with PostgreSQL's own program.

    `rows` is what the caller knows the backlog to hold. The client confirms every 10 s at most, as by default.
    """
    command = [
        str(server.command("pg_recvlogical")), "-d", url, "--slot", slot, "--start", "--no-loop",
        "--endpos", lsn.render(end_lsn), "-o", "proto_version=1", "-o", f"publication_names={publication}",
        "-f", "/dev/null",
    ]  # fmt: skip
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"pg_recvlogical ended with {process.returncode}: {log.read_text()[-500:]}")
    return Reference(rows=rows, seconds=seconds, cpu_s=usage.ru_utime + usage.ru_stime)
