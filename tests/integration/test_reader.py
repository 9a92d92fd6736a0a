"""The reader against real servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import numpy as np
import psycopg
import pytest
import uvloop

from kuvasz import errors
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import Delivery, PgType, Relation, Segment, Truncation
from kuvasz.source import conninfo
from kuvasz.source.catalog.type_catalog import TypeCatalog
from kuvasz.source.conninfo import replication_conninfo
from kuvasz.source.drain.plain import PlainDrain
from kuvasz.source.reading.connection import Connection
from kuvasz.source.reading.ends import Downstream, StreamWatch, Upstream
from kuvasz.source.reading.facts import ReaderState
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.reader import Reader
from kuvasz.source.reading.rest.rounds import Rounds
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from tests.support.postgres import Database, Server, create_database, drop_database
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

#: Ends the walsender.
KILL = """
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 's' AND active_pid IS NOT NULL
"""
QUICK = ReaderOptions(confirm_interval_s=0.05, first_backoff_s=0.05, last_backoff_s=0.3)
#: What slot `s` still has.
PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')
"""
CONFIRMED = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"


def on_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test on the loop that kuvasz uses."""

    @functools.wraps(test)
    def run(*arguments: object, **fixtures: object) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*arguments, **fixtures), PATIENCE_S))

    return run


class ByName:
    """Table names to workers; all to worker 0 by default."""

    def __init__(self, workers: dict[str, int | None] | None = None) -> None:
        self.workers = workers

    def worker(self, source: str, relation: Relation) -> int | None:
        return 0 if self.workers is None else self.workers.get(relation.table.name)


class Worker:
    """Keeps what it is given; makes it durable at once, or when told."""

    def __init__(self, house: House, number: int) -> None:
        self.house, self.number = house, number
        self.deliveries: list[Delivery] = []
        self.waiting: list[Delivery] = []
        self.is_patient = False

    def put(self, *deliveries: Delivery) -> None:
        self.deliveries += deliveries
        self.waiting += deliveries
        if not self.is_patient:
            self.make_durable()

    def make_durable(self) -> None:
        waiting, self.waiting = self.waiting, []
        for delivery in waiting:
            self.house.durable[self.number] = max(self.house.durable[self.number], delivery.through)
            self.house.progress.durable("eu", self.number, delivery.through, delivery.epoch)
            self.house.budget.remove({delivery.source: delivery.bytes})

    def rows(self, table: str = "t") -> list[bytes]:
        """Row messages, each transaction once, however often it was sent."""
        rows, seen = [], 0
        for delivery in self.deliveries:
            for change in delivery.changes:
                if isinstance(change, Segment) and change.relation.table.name == table:
                    start, at = 0, 0
                    ends = np.cumsum(change.lengths).tolist()
                    for end, end_lsn in zip(change.transactions.row_end, change.transactions.end_lsn, strict=True):
                        if end_lsn > seen:
                            bounds = zip([at, *ends[start : end - 1]], ends[start:end], strict=True)
                            rows += [bytes(change.data[a:b]) for a, b in bounds]
                        start, at = int(end), ends[int(end) - 1]
                    if not delivery.is_open:
                        seen = max(seen, int(change.transactions.end_lsn[-1]))
        return rows

    def values(self, table: str = "t") -> list[int]:
        """The first column of the inserts, whose text follows tag, oid, N, count, kind and length."""
        return [int(row[13 : 13 + int.from_bytes(row[9:13], "big")]) for row in self.rows(table) if row[:1] == b"I"]


class House:
    """A reader with all it needs."""

    def __init__(self, database: Database, *, workers: int = 1, budget_bytes: int = 1 << 30) -> None:
        self.database = database
        self.progress, self.budget = Progress(), Budget(budget_bytes)
        self.workers = [Worker(self, number) for number in range(workers)]
        self.durable = dict.fromkeys(range(workers), 0)
        self.routes = ByName()
        self.options = QUICK
        self.system_id: str | None = None
        self.is_among_many = False  #: many sources share their looks

    def reader(self, slot: str = "s", publication: str = "p") -> Reader:
        options = dataclasses.replace(self.options, rest_s=0.05) if self.is_among_many else self.options
        return Reader(self.upstream(slot=slot, publication=publication), self.downstream(), types, options=options)

    def upstream(self, conninfo: str = "", *, slot: str = "s", publication: str = "p") -> Upstream:
        conninfo = conninfo or replication_conninfo(self.database.url)
        return Upstream(
            source="eu", conninfo=lambda: conninfo, slot=slot, publications=[publication], system_id=self.system_id
        )

    def downstream(self) -> Downstream:
        return Downstream(
            routes=self.routes,
            inboxes=self.workers,
            progress=self.progress,
            budget=self.budget,
            rounds=Rounds(self.progress, self.budget, self.workers) if self.is_among_many else None,
        )

    def confirmed(self) -> int:
        return int(self.database.execute(CONFIRMED, ("s",))[0][0])

    def wal_end(self) -> int:
        return int(self.database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name=f"type {oid}") for oid in oids}


def prepare(database: Database) -> House:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, d text)")
    database.execute("CREATE TABLE u (id int PRIMARY KEY, d text)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    return House(database)


@pytest.fixture
def house(database: Database, request: pytest.FixtureRequest) -> House:
    house = prepare(database)
    house.is_among_many = getattr(request, "param", False)
    return house


#: Whether the source is looked at together with others.
ALONE_AND_AMONG_MANY = pytest.mark.parametrize("house", [False, True], indirect=True, ids=["alone", "among-many"])


@contextlib.asynccontextmanager
async def running(reader: Reader) -> AsyncIterator[asyncio.Task[None]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run())
        try:
            yield task
        finally:
            reader.stop()


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)


async def in_thread(function: Callable[..., object], *arguments: object) -> object:
    return await asyncio.to_thread(function, *arguments)


@ALONE_AND_AMONG_MANY
@on_loop
async def test_rows_arrive_whole_and_in_order(house: House):
    expected: list[int] = []

    def write() -> None:
        numbers, following = random.Random(3), 0  # noqa: S311
        with house.database.connect() as connection:
            for _ in range(150):
                wanted = []
                for _ in range(numbers.randrange(1, 30)):
                    following += 1
                    connection.execute("INSERT INTO t VALUES (%s, 'x')", (following,))
                    wanted.append(following)
                    if numbers.random() < 0.15:
                        connection.execute("SAVEPOINT a")
                        connection.execute("INSERT INTO t VALUES (%s, 'gone')", (following + 1_000_000,))
                        connection.execute("ROLLBACK TO SAVEPOINT a")
                if numbers.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    expected.extend(wanted)

    reader = house.reader()
    async with running(reader):
        await in_thread(write)
        await until(lambda: len(house.workers[0].values()) >= len(expected))
    assert house.workers[0].values() == expected
    assert reader.rows == len(expected)
    assert reader.facts.state is ReaderState.STOPPED
    for delivery in house.workers[0].deliveries:
        for change in delivery.changes:
            assert np.all(change.transactions.end_lsn > change.transactions.commit_lsn)
            assert int(change.transactions.end_lsn[-1]) <= delivery.through


@ALONE_AND_AMONG_MANY
@on_loop
async def test_nothing_undurable_is_confirmed(house: House):
    house.workers = [Worker(house, 0), Worker(house, 1)]
    house.durable = {0: 0, 1: 0}
    house.routes = ByName({"t": 0, "u": 1})
    house.workers[1].is_patient = True
    reader = house.reader()
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO u VALUES (1)")
        await until(lambda: house.workers[1].deliveries)
        first_u = house.workers[1].deliveries[0].through
        for number in range(20):
            await in_thread(house.database.execute, "INSERT INTO t VALUES (%s)", (number,))
        await until(lambda: len(house.workers[0].values()) == 20)
        status = reader.facts.last_status_at
        await in_thread(house.database.execute, "SELECT pg_switch_wal()")
        await until(lambda: reader.received_lsn > first_u and house.durable[0] > first_u)
        assert house.confirmed() < first_u
        assert status == reader.facts.last_status_at or reader.facts.confirmed_lsn < first_u
        house.workers[1].make_durable()
        await until(lambda: reader.facts.confirmed_lsn > first_u)
        await until(lambda: house.confirmed() > first_u)


@on_loop
async def test_the_last_status_update_confirms_what_is_durable(house: House):
    house.options = ReaderOptions(confirm_interval_s=3600, status_interval_s=3600)
    reader = house.reader()
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
        await until(lambda: house.workers[0].deliveries)
    assert house.confirmed() >= house.workers[0].deliveries[-1].through


@ALONE_AND_AMONG_MANY
@on_loop
async def test_quiesce_stops_reading_but_goes_on_confirming(house: House):
    house.workers[0].is_patient = True
    reader = house.reader()
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
        await until(lambda: house.workers[0].deliveries)
        reader.quiesce()
        await until(lambda: reader.facts.is_paused)
        await in_thread(house.database.execute, "INSERT INTO t VALUES (2)")
        house.workers[0].make_durable()
        through = house.workers[0].deliveries[-1].through
        await until(lambda: house.confirmed() >= through)
    assert house.workers[0].values() == [1]


@on_loop
async def test_an_idle_source_follows_another_databases_writes(house: House, postgres18: EmbeddedPostgres):
    other = create_database(postgres18)
    reader = house.reader()
    try:
        async with running(reader):
            await until(lambda: reader.facts.state is ReaderState.STREAMING)
            await in_thread(other.execute, "CREATE TABLE w AS SELECT generate_series(1, 20000)")
            end = house.wal_end()
            await until(lambda: house.confirmed() >= end - 100_000)
            assert house.workers[0].deliveries == []
    finally:
        drop_database(other)


@ALONE_AND_AMONG_MANY
@on_loop
async def test_back_pressure_pauses_and_resumes(house: House):
    house.budget = Budget(200_000)
    house.options = ReaderOptions(confirm_interval_s=0.05, status_interval_s=0.05, gulp_bytes=50_000)
    house.workers[0].is_patient = True
    insert = "INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(%s::int, %s::int) i"
    reader = house.reader()
    async with running(reader):
        for start in range(0, 10_000, 100):
            await in_thread(house.database.execute, insert, (start, start + 99))
        await until(lambda: reader.facts.is_paused)
        before, status = reader.facts.bytes, reader.facts.last_status_at
        await until(lambda: reader.facts.last_status_at > status + 0.2)  # the status clock goes on
        assert reader.facts.bytes == before
        assert house.budget.peak_bytes < 200_000 + 2 * 50_000 + 100_000
        assert 0 < len(house.workers[0].values()) < 10_000
        house.workers[0].is_patient = False
        await in_thread(house.workers[0].make_durable)
        await until(lambda: len(house.workers[0].values()) == 10_000)
    assert house.workers[0].values() == list(range(10_000))
    assert house.budget.bytes == 0


@on_loop
async def test_a_large_transaction_comes_in_open_parts(house: House):
    house.options = ReaderOptions(spill_bytes=200_000, gulp_bytes=100_000, confirm_interval_s=0.05)
    house.workers[0].is_patient = True
    peaks: list[int] = []
    reader = house.reader()
    async with running(reader):
        sql = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i"
        await in_thread(house.database.execute, sql)

        def is_whole() -> bool:
            peaks.append(reader._assembler.waiting_bytes)
            return bool(house.workers[0].deliveries) and not house.workers[0].deliveries[-1].is_open

        await until(is_whole)
    parts = house.workers[0].deliveries
    assert len(parts) > 5
    assert all(part.is_open for part in parts[:-1])
    assert max(part.bytes for part in parts) < 500_000
    assert max(peaks) <= 200_000
    assert {part.through for part in parts[:-1]} == {0}
    assert house.workers[0].values() == list(range(1, 20001))


@on_loop
async def test_an_open_transaction_begins_again_after_a_reconnect(house: House):
    house.options = ReaderOptions(
        spill_bytes=50_000, gulp_bytes=20_000, confirm_interval_s=0.05, first_backoff_s=0.05
    )
    house.budget = Budget(300_000)
    house.workers[0].is_patient = True
    reader = house.reader()
    async with running(reader):
        sql = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i"
        await in_thread(house.database.execute, sql)
        await until(lambda: reader.facts.is_paused and house.workers[0].deliveries)
        reader.rewind()
        house.workers[0].is_patient = False
        await in_thread(house.workers[0].make_durable)
        await until(lambda: house.workers[0].deliveries and not house.workers[0].deliveries[-1].is_open)
    assert {delivery.epoch for delivery in house.workers[0].deliveries} == {1, 2}
    house.workers[0].deliveries = [d for d in house.workers[0].deliveries if d.epoch == 2]
    assert house.workers[0].values() == list(range(1, 20001))


@ALONE_AND_AMONG_MANY
@on_loop
async def test_a_killed_walsender_is_replaced(house: House):
    reader = house.reader()
    async with running(reader):
        for number in range(6):
            await until(lambda: reader.facts.state is ReaderState.STREAMING)
            epoch = reader.epoch
            await in_thread(house.database.execute, "INSERT INTO t VALUES (%s)", (number,))
            await in_thread(house.database.execute, KILL)
            await until(lambda epoch=epoch: reader.epoch > epoch)
        await until(lambda: sorted(set(house.workers[0].values())) == list(range(6)))
    assert house.workers[0].values() == list(range(6))


@on_loop
async def test_a_server_that_fails_at_one_place_is_asked_less_and_less(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.options = ReaderOptions(confirm_interval_s=0.05, first_backoff_s=0.05)
    waits: list[float] = []
    wait = Reader._wait

    async def noted(reader: Reader, delay_s: float) -> None:
        waits.append(delay_s)
        await wait(reader, delay_s)

    monkeypatch.setattr(Reader, "_wait", noted)
    house.database.execute("INSERT INTO t VALUES (1)")
    reader = house.reader()
    async with running(reader):
        # What the server itself writes now and then (a snapshot of its transactions) is heard: the row begins anew.
        for times in range(1, 51):
            await until(lambda: reader.facts.state is ReaderState.STREAMING)
            await in_thread(house.database.execute, KILL)
            await until(lambda times=times: len(waits) >= times)
            if waits[-1] > 2 * 0.05 * 1.5:
                break
    assert max(waits) > 2 * 0.05 * 1.5, waits


@on_loop
async def test_a_restarted_server_is_found_again(tmp_path: Path):
    with Server(tmp_path / "data") as server:
        house = prepare(create_database(server))
        reader = house.reader()
        async with running(reader):
            await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
            await until(lambda: house.workers[0].values() == [1])
            # A fast shutdown waits until the reader has confirmed the shutdown checkpoint: a proof that it does.
            await in_thread(server.stop, "fast")
            await until(lambda: reader.facts.state is ReaderState.WAITING)
            assert isinstance(reader.facts.error, errors.SourceError)
            await in_thread(server.start)
            await in_thread(house.database.execute, "INSERT INTO t VALUES (2)")
            await until(lambda: house.workers[0].values() == [1, 2])
            await in_thread(server.restart, "immediate")
            await in_thread(house.database.execute, "INSERT INTO t VALUES (3)")
            await until(lambda: house.workers[0].values() == [1, 2, 3])
            assert reader.facts.error is None


@on_loop
async def test_a_slot_in_use_is_waited_for(house: House):
    holder = await Connection.open(replication_conninfo(house.database.url), "holder")
    await holder.start_replication("s", "p")
    (pid,) = house.database.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = 's'")[0]
    reader = house.reader()
    async with running(reader):
        await until(lambda: reader.facts.error is not None)
        assert type(reader.facts.error) is errors.SourceError
        assert f"is active for PID {pid}" in str(reader.facts.error)
        assert f"SELECT pg_terminate_backend({pid})" in str(reader.facts.error)
        holder.close()
        await until(lambda: reader.facts.state is ReaderState.STREAMING)


@on_loop
async def test_a_missing_slot_is_lost(house: House):
    with pytest.raises(errors.SlotLost, match='replication slot "nope" does not exist') as caught:
        await house.reader(slot="nope").run()
    assert caught.value.exit_code == 5


@on_loop
async def test_what_a_server_means_is_known_in_any_language(translated: EmbeddedPostgres):
    """Its words are for people; a slot or publication that is gone is told by what stays untranslated."""
    database = create_database(translated)
    house = prepare(database)

    async def told(slot: str, publication: str) -> str | None:
        with pytest.raises(errors.SlotLost) as caught:
            await house.reader(slot=slot, publication=publication).run()
        assert not re.search("does not exist|cannot read", caught.value.message), "it is translated"
        return caught.value.hint

    assert "the slot was dropped: " in str(await told("nope", "p"))
    database.execute("INSERT INTO t VALUES (1)")
    assert "it was dropped, and one made anew lacks the changes in between: " in str(await told("s", "nope"))
    for _ in range(12):
        database.execute("SELECT pg_logical_emit_message(false, 'x', 'y'), pg_switch_wal()")
    with database.connect(autocommit=True) as session:
        session.execute("CHECKPOINT")
    assert "the missed changes are gone: " in str(await told("s", "p"))


@pytest.mark.parametrize("server", ["postgres16", "postgres18"])
def test_a_missing_publication_loses_the_slot(server: str, request: pytest.FixtureRequest):
    # Version 16 ends the stream with an error, 18 goes on without the publication's rows and only warns.
    database = create_database(request.getfixturevalue(server))

    @on_loop
    async def run() -> None:
        house = prepare(database)
        begun = house.wal_end()
        with database.connect(autocommit=False) as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            database.execute("CHECKPOINT")  # flushes what the transaction has written, so that the walsender reads it
            reading = asyncio.create_task(house.reader(publication="nope").run())
            await until(lambda: house.confirmed() > begun)  # amid the transaction, which is sent whole at its end
            connection.commit()
        with pytest.raises(errors.SlotLost, match='"nope"'):
            await reading
        await until(lambda: not database.execute("SELECT 1 FROM pg_replication_slots WHERE active"))
        assert [row[0][:1] for row in database.execute(PEEK)] == [b"B", b"R", b"I", b"C"]

    try:
        run()
    finally:
        drop_database(database)


@on_loop
async def test_a_server_says_how_much_it_has_sent(house: House, database: Database):
    other = create_database(database.server)
    reader = house.reader()
    assert await reader.ask_sent_lsn() is None, "nobody listens"
    async with running(reader):
        await until(lambda: reader.facts.state is ReaderState.STREAMING)
        begun = house.wal_end()
        await in_thread(other.execute, "CREATE TABLE elsewhere ()")
        sent = None
        while sent is None or sent <= begun:
            sent = await reader.ask_sent_lsn()
        assert begun < sent <= house.wal_end(), "another database of the server was written to"
        assert reader.facts.bytes == reader.facts.keepalive_bytes, "and nothing came but keepalives"
        await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
        await until(house.workers[0].rows)
        assert reader.facts.bytes > reader.facts.keepalive_bytes
    drop_database(other)


@on_loop
async def test_another_cluster_is_refused(house: House):
    house.system_id = "1"
    with pytest.raises(errors.SlotLost, match=r"source eu: cluster [0-9]+ answers, not 1"):
        await house.reader().run()


@on_loop
async def test_a_dead_host_is_tried_again_and_can_be_stopped():
    house = House(Database.__new__(Database))
    reader = Reader(
        house.upstream("host=127.0.0.1 port=1 dbname=x user=y password=secret replication=database"),
        house.downstream(), types, options=QUICK,
    )  # fmt: skip
    async with running(reader):
        await until(lambda: reader.epoch >= 3)
        assert isinstance(reader.facts.error, errors.SourceError)
        assert "secret" not in str(reader.facts.error)


@on_loop
async def test_a_host_that_never_answers_leaves_the_loop_free():
    listener = await asyncio.start_server(lambda _reader, _writer: asyncio.sleep(3600), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    conninfo = f"host=127.0.0.1 port={port} dbname=x user=y connect_timeout=1 replication=database"
    turns = 0
    opening = asyncio.create_task(Connection.open(conninfo, "eu"))
    while not opening.done():
        await asyncio.sleep(0.01)
        turns += 1
    with pytest.raises(errors.SourceError, match="source eu: no answer from the server within 1 s"):
        await opening
    assert turns > 20
    listener.close()


@on_loop
async def test_truncate_and_dropped_tables(house: House):
    house.routes = ByName({"t": 0})
    reader = house.reader()
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO u SELECT generate_series(1, 5)")
        await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
        await in_thread(house.database.execute, "TRUNCATE t, u")
        await in_thread(house.database.execute, "INSERT INTO t VALUES (2)")
        await until(lambda: house.workers[0].values() == [1, 2])
    changes = [change for delivery in house.workers[0].deliveries for change in delivery.changes]
    assert [type(change) for change in changes] == [Segment, Truncation, Segment]
    assert reader.dropped_rows == 5


@on_loop
async def test_both_drains_see_the_same_stream(house: House):
    # Whoever analyzes it while one of them reads has it described once more there.
    house.database.execute("ALTER TABLE t SET (autovacuum_enabled = off)")
    house.database.execute("INSERT INTO t SELECT i, repeat('y', i % 3000) FROM generate_series(1, 3000) i")
    house.database.execute("INSERT INTO t VALUES (0, repeat('z', 5000000))")
    seen = []
    for is_plain in (True, False):
        connection = await Connection.open(replication_conninfo(house.database.url), "eu")
        await connection.start_replication("s", "p")
        if is_plain:
            connection._drain = PlainDrain(connection._pgconn)
        messages: list[bytes] = []
        async with asyncio.timeout(30):
            while sum(message[25:26] == b"C" for message in messages) < 2:
                connection.drain(100_000)
                gulp, lengths = connection.gulp()
                at = 0
                for size in lengths.tolist():
                    messages.append(bytes(gulp[at : at + size]))
                    at += size
                connection.clear()
                await asyncio.sleep(0)
        await connection.finish()
        # XLogData's send times differ from run to run.
        seen.append([message[25:] for message in messages if message[:1] == b"w"])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3001 + 5


@on_loop
async def test_a_slot_is_free_once_its_stream_is_finished(house: House):
    query = "SELECT active FROM pg_replication_slots WHERE slot_name = 's'"
    with house.database.connect(autocommit=True) as session:
        for _ in range(100):
            connection = await Connection.open(replication_conninfo(house.database.url), "eu")
            await connection.start_replication("s", "p")
            await connection.finish()
            assert session.execute(query).fetchone() == (False,)


@on_loop
async def test_the_loop_is_not_held_up_by_a_type_look_up(house: House):
    house.database.execute("CREATE TYPE mood AS ENUM ('ok')")
    house.database.execute("CREATE TABLE m (id int PRIMARY KEY, m mood)")
    entered, release = threading.Event(), threading.Event()

    def slow_types(oids: list[int]) -> dict[int, PgType]:
        entered.set()
        assert release.wait(10)
        return types(oids)

    reader = Reader(house.upstream(), house.downstream(), slow_types, options=QUICK)
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO m VALUES (1, 'ok')")
        await until(entered.is_set)
        release.set()
        await until(lambda: house.workers[0].values("m") == [1])


@pytest.mark.parametrize(("routing_s", "gather_s"), [(0.0005, 0.02), (0.007, 0.07), (1.5, 0.2)])
def test_gulps_that_take_long_to_route_are_fewer(routing_s: float, gather_s: float) -> None:
    assert ReaderOptions().gather_s(routing_s) == pytest.approx(gather_s)


@on_loop
async def test_many_tables_are_described_on_few_connections(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, asked = conninfo.connect, []
    monkeypatch.setattr(conninfo, "connect", lambda url: asked.append(url) or connect(url))
    names = [f"of_{number}" for number in range(20)]
    for name in names:
        house.database.execute(
            f"CREATE TYPE e{name} AS ENUM ('x'); CREATE TABLE {name} (id int PRIMARY KEY, e e{name})"
        )
    house.database.execute(";".join(f"INSERT INTO {name} VALUES (1, 'x')" for name in names))
    catalog = TypeCatalog(lambda: house.database.url)
    reader = Reader(
        house.upstream(), house.downstream(), catalog, watch=StreamWatch(on_described=catalog.close), options=QUICK
    )
    async with running(reader):
        await until(lambda: all(house.workers[0].values(name) == [1] for name in names))
    assert 1 <= len(asked) < len(names) // 2  # they may come in a few gulps


@on_loop
async def test_a_silent_server_is_left(house: House):
    """A proxy that swallows everything after the stream began stands for a half-open connection."""
    swallow = asyncio.Event()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if not swallow.is_set():
                    writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = await asyncio.open_connection("127.0.0.1", house.database.server.port)
        await asyncio.gather(pipe(reader, other[1]), pipe(other[0], writer))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    url = f"postgresql://postgres@127.0.0.1:{port}/{house.database.name}"
    options = ReaderOptions(
        silence_timeout_s=2.0, status_interval_s=0.1, confirm_interval_s=0.05, first_backoff_s=0.05
    )
    reader = Reader(house.upstream(replication_conninfo(url)), house.downstream(), types, options=options)
    async with running(reader):
        await until(lambda: reader.facts.state is ReaderState.STREAMING)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 3.0)
        assert reader.epoch == 1  # the replies asked for keep a quiet connection alive
        swallow.set()
        await until(lambda: reader.epoch > 1)
        assert "nothing came from the server" in str(reader.facts.error)
    proxy.close()


@on_loop
async def test_transaction_options_reach_the_slot_by_name(house: House):
    with psycopg.connect(house.database.url, autocommit=True) as connection:
        connection.execute('CREATE PUBLICATION "odd ""name" FOR ALL TABLES')
    house.database.execute("SELECT pg_drop_replication_slot('s')")
    house.database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    reader = house.reader(publication='odd "name')
    async with running(reader):
        await in_thread(house.database.execute, "INSERT INTO t VALUES (1)")
        await until(lambda: house.workers[0].values() == [1])
