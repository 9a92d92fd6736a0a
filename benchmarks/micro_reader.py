"""How near the reader stays to PostgreSQL's own walsender.

The same backlog of row changes is drained from identical slots by `Reader` (into inboxes that throw it away and
call it durable), by ``pg_recvlogical`` into /dev/null and by a bare psycopg loop that copies each message, in turn
and several times, on one machine. Prints rows/s, CPU of the reading process in µs a row, CPU of the walsender in
µs a row, and the ratio to pg_recvlogical. Several ``--pause`` are compared with each other.

Run: ``python benchmarks/micro_reader.py --rows 500000 --transaction 100``
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psycopg
import uvloop

from benchmarks import reference
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import Delivery, PgType, Relation
from kuvasz.source.conninfo import replication_conninfo
from kuvasz.source.reading.ends import Downstream, Upstream
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.reader import Reader
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress

PAYLOAD = "repeat(md5(i::text), 2)"  # 64 bytes: a row of about 110 with its numbers


class OneWorker:
    def worker(self, source: str, relation: Relation) -> int:  # noqa: ARG002 - the port's signature
        return relation.oid % 2


class Discard:
    def __init__(self, progress: Progress, budget: Budget, worker: int) -> None:
        self.progress, self.budget, self.worker = progress, budget, worker

    def put(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            self.progress.durable(delivery.source, self.worker, delivery.through, delivery.epoch)
            self.budget.remove({delivery.source: delivery.bytes})


def fill(connection: psycopg.Connection, rows: int, tables: int, transaction: int) -> int:
    """Make the backlog: 60 % update, 25 % insert, 15 % delete; returns the row changes."""
    statements = []
    for table in range(tables):
        name = f"t{table}"
        statements.append(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, a int, b numeric(12,2), c timestamptz, d text)"
        )
        statements.append(
            f"INSERT INTO {name} SELECT i, i, i * 1.5, now(), {PAYLOAD} FROM generate_series(1, {rows // tables}) i"
        )
    statements.append("CREATE PUBLICATION bench FOR ALL TABLES")
    for statement in statements:
        connection.execute(statement)
    return (rows // tables // transaction) * transaction * tables


def change(connection: psycopg.Connection, rows: int, tables: int, transaction: int) -> None:
    """Write the changes, in transactions of a fixed size, each on one table."""
    updates, inserts, deletes = transaction * 60 // 100, transaction * 25 // 100, 0
    deletes = transaction - updates - inserts
    blocks = []
    for table in range(tables):
        block = f"""
            UPDATE t{table} SET a = a + 1, d = md5(d) || md5(a::text) WHERE id > n * {transaction}
                AND id <= n * {transaction} + {updates};
            INSERT INTO t{table} SELECT 100000000 + n * {inserts} + i, i, i * 1.5, now(), {PAYLOAD}
                FROM generate_series(1, {inserts}) i;
            DELETE FROM t{table} WHERE id > n * {transaction} + {updates}
                AND id <= n * {transaction} + {updates + deletes};
            COMMIT;"""
        blocks.append(block)
    connection.execute(f"""
        DO $$ DECLARE n int; BEGIN
        FOR n IN 0 .. {rows // tables // transaction - 1} LOOP {"".join(blocks)} END LOOP; END $$""")


def slot(connection: psycopg.Connection, name: str) -> None:
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))


def sender_cpu_s(connection: psycopg.Connection, name: str) -> float:
    """CPU seconds of the walsender that serves a slot; Linux only."""
    row = connection.execute(
        "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active_pid IS NOT NULL", (name,)
    ).fetchone()
    if row is None:
        return 0.0
    fields = Path(f"/proc/{row[0]}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


class SenderWatch:
    """Samples the walsender's CPU until told to stop, since the process ends with the stream."""

    def __init__(self, url: str, name: str) -> None:
        self.cpu_s, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, name), daemon=True)
        self._thread.start()

    def _run(self, url: str, name: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not self._stop.wait(0.1):
                self.cpu_s = max(self.cpu_s, sender_cpu_s(connection, name))

    def stop(self) -> float:
        self._stop.set()
        self._thread.join()
        return self.cpu_s


def own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_utime + usage.ru_stime


async def drain_reader(url: str, name: str, end_lsn: int, options: ReaderOptions) -> tuple[float, float, Reader]:
    progress, budget = Progress(), Budget(1 << 30)
    reader = Reader(
        Upstream(source="bench", conninfo=lambda: replication_conninfo(url), slot=name, publications=["bench"]),
        Downstream(
            routes=OneWorker(), inboxes=[Discard(progress, budget, 0), Discard(progress, budget, 1)],
            progress=progress, budget=budget,
        ),
        lambda oids: {oid: PgType(oid=oid, name=str(oid)) for oid in oids}, options=options,
    )  # fmt: skip
    began, cpu = time.perf_counter(), own_cpu_s()
    task = asyncio.create_task(reader.run())
    while progress.confirmable("bench") < end_lsn:  # noqa: ASYNC110 - has no event to wait for
        await asyncio.sleep(0.005)
    seconds, cpu = time.perf_counter() - began, own_cpu_s() - cpu
    reader.stop()
    await task
    return seconds, cpu, reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--transaction", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, action="append", help="longest pause between two looks, in seconds")
    parser.add_argument("--socket", action="store_true", help="UNIX socket instead of TCP")
    parser.add_argument("--only", choices=["reader", "recvlogical", "bare"], default=None)
    arguments = parser.parse_args()
    readers = {f"reader_{n}": pause for n, pause in enumerate(arguments.pause or [None])}
    folder = Path(tempfile.mkdtemp()) / "data"
    with EmbeddedPostgres(folder, settings={"max_wal_size": "8GB", "autovacuum": "off"}) as server:
        url = server.socket_url() if arguments.socket else server.url()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            rows = fill(connection, arguments.rows, arguments.tables, arguments.transaction)
            kinds = (
                [*readers]
                if arguments.only == "reader"
                else [arguments.only]
                if arguments.only
                else ["recvlogical", *readers, "bare"]
            )
            names = [(kind, f"{kind}_{number}") for number in range(arguments.rounds) for kind in kinds]
            for _, name in names:
                slot(connection, name)
            change(connection, arguments.rows, arguments.tables, arguments.transaction)
            connection.execute("CREATE TABLE finished (id int PRIMARY KEY)")
            connection.execute("CHECKPOINT")
            [(end_lsn,)] = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchall()
            connection.execute("INSERT INTO finished VALUES (1)")
        end_lsn = int(end_lsn)

        def waiting(slot: str) -> reference.Backlog:
            return reference.Backlog(url=url, slot=slot, publication="bench", end_lsn=end_lsn)

        results: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
        for kind, name in names:
            watch = SenderWatch(server.url(), name)
            if kind in readers:
                pause = readers[kind]
                options = ReaderOptions() if pause is None else ReaderOptions(longest_pause_s=pause)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    seconds, cpu, reader = runner.run(drain_reader(url, name, end_lsn, options))
                if reader.rows < rows:
                    raise SystemExit(f"reader lost rows: {reader.rows} of {rows}")
            elif kind == "recvlogical":
                done = reference.recvlogical(server, [waiting(name)], rows=rows, log=folder.parent / "log")
                seconds, cpu = done.seconds, done.cpu_s
            else:
                done = reference.bare_reader([waiting(name)], rows=rows)
                seconds, cpu = done.seconds, done.cpu_s
            results[kind].append((seconds, cpu, watch.stop()))
    base = statistics.median(run[0] for run in results["recvlogical"]) if "recvlogical" in results else None
    print(f"{rows} row changes, {arguments.transaction} a transaction, {arguments.tables} tables")
    for kind, runs in results.items():
        seconds, cpu, sender = (statistics.median(column) for column in zip(*runs, strict=True))
        ratio = f"{base / seconds:5.2f} x pg_recvlogical" if base else ""
        best = rows / min(run[0] for run in runs) / 1e3
        name = f"reader {readers[kind] or ''}" if kind in readers else kind
        print(f"{name:14} {rows / seconds / 1e3:7.0f} k rows/s (best {best:.0f}), own CPU {cpu / rows * 1e6:5.2f},"
              f" walsender {sender / rows * 1e6:5.2f} µs/row  {ratio}")  # fmt: skip


if __name__ == "__main__":
    main()
