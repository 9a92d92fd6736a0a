"""The lines to hold kuvasz against: what PostgreSQL's own programs, and the barest clients, need for the same rows.

Each reads the same rows from the same server in the same run, and does less than kuvasz has to.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from psycopg import pq
from psycopg.conninfo import make_conninfo

from kuvasz import lsn
from kuvasz.source.conninfo import replication_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kuvasz.demo.postgres import EmbeddedPostgres

#: COPY text that is parsed and written as one row group or so.
_BATCH_BYTES = 8 << 20


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
    return _copy(url, f"COPY {table} TO STDOUT", lambda _: None)


def copy_to_parquet(url: str, table: str, file: Path) -> Reference:
    """Read a table with one ``COPY`` as CSV and write it as one Parquet file with pyarrow, on one thread."""
    buffer = bytearray()
    writer: pyarrow.parquet.ParquetWriter | None = None
    names = _columns(url, table)
    types = {name: pa.string() for name in names}  # guesses from a first batch need not hold for the next one

    def flush() -> None:
        nonlocal writer
        if not buffer:
            return
        parsed = pyarrow.csv.read_csv(
            io.BytesIO(bytes(buffer)),
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
        buffer.clear()
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(file, parsed.schema, compression="zstd")
        writer.write_table(parsed)

    def take(row: bytes | memoryview) -> None:
        buffer.extend(row)
        if len(buffer) >= _BATCH_BYTES:
            flush()

    began, cpu = time.perf_counter(), time.process_time()
    done = _copy(url, f"COPY {table} TO STDOUT (FORMAT csv)", take)
    flush()
    if writer is not None:
        writer.close()
    return Reference(rows=done.rows, seconds=time.perf_counter() - began, cpu_s=time.process_time() - cpu)


def _copy(url: str, statement: str, take: Callable[[bytes | memoryview], None]) -> Reference:
    connection = pq.PGconn.connect(url.encode())
    try:
        began, cpu = time.perf_counter(), time.process_time()
        result = connection.exec_(statement.encode())
        if result.status != pq.ExecStatus.COPY_OUT:
            raise RuntimeError(f"{statement} refused: {connection.error_message.decode()}")
        rows = 0
        while True:
            length, row = connection.get_copy_data(0)
            if length < 0:
                break
            take(row)
            rows += 1  # the server sends a message per row
        return Reference(rows=rows, seconds=time.perf_counter() - began, cpu_s=time.process_time() - cpu)
    finally:
        connection.finish()


def _columns(url: str, table: str) -> list[str]:
    with psycopg.connect(url) as connection:
        described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description
        return [column.name for column in described or ()]


def create_slot(url: str, slot: str) -> None:
    """Create the slot that a later reference reads: it keeps the WAL from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))


def copy_slot(url: str, slot: str, twin: str) -> None:
    """Make a twin of a slot that nobody reads: it stands at the same LSN."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (slot, twin))


def drop_slot(url: str, slot: str, *, patience_s: float = 30.0) -> None:
    """Drop a slot, if it is there; who still reads it has a while to let go."""
    end_at = time.monotonic() + patience_s
    query = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            try:
                connection.execute(query, (slot,))
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > end_at:
                    raise
                time.sleep(0.1)
            else:
                return


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is waiting in a slot, as its reader must name it."""

    url: str
    slot: str
    publication: str
    end_lsn: int


def recvlogical(server: EmbeddedPostgres, backlogs: Sequence[Backlog], *, rows: int, log: Path) -> Reference:
    """Read backlogs, side by side, into /dev/null with PostgreSQL's own program.

    `rows` is what the caller knows them to hold. The client confirms every 10 s at most, as by default.
    """
    program = str(server.command("pg_recvlogical"))
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(backlogs)) as pool:
        cpu = list(pool.map(lambda backlog: _recvlogical(program, backlog, log), backlogs))
    return Reference(rows=rows, seconds=time.perf_counter() - began, cpu_s=sum(cpu))


def _recvlogical(program: str, backlog: Backlog, log: Path) -> float:
    command = [
        program, "-d", backlog.url, "--slot", backlog.slot, "--start", "--no-loop",
        "--endpos", lsn.render(backlog.end_lsn), "-o", "proto_version=1",
        "-o", f"publication_names={backlog.publication}", "-f", "/dev/null",
    ]  # fmt: skip
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"pg_recvlogical ended with {process.returncode}: {log.read_text()[-500:]}")
    return float(usage.ru_utime + usage.ru_stime)


def bare_reader(backlogs: Sequence[Backlog], *, rows: int) -> Reference:
    """Read backlogs, side by side, with psycopg alone: each message is copied into a buffer and forgotten."""
    began, cpu = time.perf_counter(), time.process_time()
    with concurrent.futures.ThreadPoolExecutor(len(backlogs)) as pool:
        list(pool.map(_read, backlogs))
    return Reference(rows=rows, seconds=time.perf_counter() - began, cpu_s=time.process_time() - cpu)


def _read(backlog: Backlog) -> None:
    # It confirms nothing, and one of 64 readers may wait for its turn longer than the server would for an answer.
    url = make_conninfo(backlog.url, options="-c wal_sender_timeout=0")
    connection = pq.PGconn.connect(replication_conninfo(url).encode())
    try:
        options = f"(proto_version '1', publication_names '{backlog.publication}')"
        started = connection.exec_(f"START_REPLICATION SLOT {backlog.slot} LOGICAL 0/0 {options}".encode())
        if started.status != pq.ExecStatus.COPY_BOTH:
            raise RuntimeError(f"slot {backlog.slot} cannot be read: {connection.error_message.decode()}")
        connection.nonblocking = 1
        gulp, reached = bytearray(), 0
        while reached < backlog.end_lsn:
            select.select([connection.socket], [], [])
            connection.consume_input()
            while True:
                size, view = connection.get_copy_data(1)
                if size == 0:
                    break
                if size < 0:
                    raise RuntimeError(f"the stream of {backlog.slot} ended: {connection.error_message.decode()}")
                # The end is told by a Commit's own end (byte 35), or by a keepalive where nothing follows it.
                if view[0] == ord("k"):
                    reached = max(reached, int.from_bytes(view[1:9], "big"))
                elif view[25] == ord("C"):
                    reached = int.from_bytes(view[35:43], "big")
                gulp += view
            if len(gulp) > 1 << 22:
                gulp = bytearray()
    finally:
        connection.finish()
