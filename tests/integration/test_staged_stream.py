"""A reader behind a staged log, against a real server: what is confirmed, and what is heard again, and from where."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine

import numpy as np
import pytest
import uvloop

from kuvasz.model import Delivery, PgType, Relation, Segment
from kuvasz.source.conninfo import replication_conninfo
from kuvasz.source.reading.ends import Downstream, Upstream
from kuvasz.source.reading.facts import ReaderState
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.reader import Reader
from kuvasz.source.reading.staging import StagedProgress
from kuvasz.staging.staged_log import StagedLog
from kuvasz.staging.stretch import Stretch
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.state.staged.memory import MemoryIndex
from tests.support.memory_store import MemoryStore
from tests.support.pgoutput import keepalive
from tests.support.postgres import Database
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

QUICK = ReaderOptions(confirm_interval_s=0.05, first_backoff_s=0.05, last_backoff_s=0.3, spill_bytes=1 << 18)
CONFIRMED = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 FROM pg_replication_slots WHERE slot_name = 's'"
WAL_END = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8"
KILL = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 's' AND active"


def on_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test on the loop that kuvasz uses."""

    @functools.wraps(test)
    def run(*arguments: object, **fixtures: object) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*arguments, **fixtures), PATIENCE_S))

    return run


async def until(condition: Callable[[], object]) -> None:
    while not await asyncio.to_thread(condition):  # noqa: ASYNC110 (of a server, which tells nobody)
        await asyncio.sleep(0.02)


class Process:
    """A reader and its worker, which makes nothing durable until it is told; and the log of this process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.progress, self.budget = Progress(), Budget(world.budget_bytes)
        self.log = StagedLog(world.index, world.store, interval_s=0.02, object_bytes=1 << 20, sources=1)
        self.log.open()
        if self.log.source("eu").position is None:
            ((lsn,),) = world.database.execute(CONFIRMED)
            self.log.begin_anew("eu", lsn)
        self.deliveries: list[Delivery] = []
        upstream = Upstream(
            source="eu", conninfo=lambda: replication_conninfo(world.database.url), slot="s", publications=["p"],
            staged=self.log,
        )  # fmt: skip
        downstream = Downstream(routes=self, inboxes=[self], progress=self.progress, budget=self.budget)
        self.reader = Reader(upstream, downstream, types, options=QUICK)

    def worker(self, source: str, relation: Relation) -> int:
        return 0

    def put(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def make_durable(self) -> None:
        """Have the lake what came."""
        for delivery in self.deliveries:
            self.progress.durable("eu", 0, delivery.through, delivery.epoch)
        self.budget.remove({"eu": self.budget.bytes})

    def values(self, epoch: int) -> list[int]:
        """The first column of the rows that came with one connection of the reader."""
        rows: dict[int, list[bytes]] = {}
        for delivery in self.deliveries:
            for change in delivery.changes if delivery.epoch == epoch else ():
                if isinstance(change, Segment):
                    ends = [0, *np.cumsum(change.lengths).tolist()]
                    messages = [bytes(change.data[a:b]) for a, b in itertools.pairwise(ends)]
                    begin = 0
                    runs = change.transactions
                    for lsn, end in zip(runs.commit_lsn.tolist(), runs.row_end.tolist(), strict=True):
                        rows.setdefault(lsn, []).extend(messages[begin:end])
                        begin = end
        found = [row for lsn in sorted(rows) for row in rows[lsn]]
        return [int(row[13 : 13 + int.from_bytes(row[9:13], "big")]) for row in found]


class World:
    """A server, and what outlives a process."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.index, self.store = MemoryIndex(), MemoryStore()
        self.budget_bytes = 1 << 30
        database.execute("CREATE TABLE t (id int PRIMARY KEY, d text)")
        database.execute("CREATE PUBLICATION p FOR ALL TABLES")
        database.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[Process]:
        made = await asyncio.to_thread(Process, self)
        async with asyncio.TaskGroup() as group:
            group.create_task(made.reader.run())
            try:
                yield made
            finally:
                made.reader.stop()
        await asyncio.to_thread(made.log.close)

    def insert(self, first: int, last: int, size: int = 10) -> int:
        """Insert rows in one transaction and return where the WAL ends then."""
        self.database.execute(f"INSERT INTO t SELECT i, repeat('x', {size}) FROM generate_series({first}, {last}) i")
        return int(self.database.execute(WAL_END)[0][0])

    def is_confirmed(self, lsn: int) -> bool:
        return int(self.database.execute(CONFIRMED)[0][0]) >= lsn


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def types(oids: list[int]) -> dict[int, PgType]:
    return {oid: PgType(oid=oid, name=f"type {oid}") for oid in oids}


@on_loop
async def test_a_source_lets_go_of_what_is_staged_and_the_next_process_reads_it(world: World) -> None:
    async with world.process() as first:
        for number in range(5):
            end = world.insert(number * 10, number * 10 + 9)
        await until(lambda: world.is_confirmed(end))
        await until(lambda: len(first.values(1)) == 50)
        assert first.progress.confirmable("eu") < end
        assert world.store.reads == 0, "it comes from memory"
    assert world.store.objects
    end = world.insert(50, 59)
    async with world.process() as second:
        await until(lambda: len(second.values(1)) == 60)
        assert second.values(1) == list(range(60))
        assert world.store.reads
        await until(lambda: world.is_confirmed(end))
        second.make_durable()
        await until(lambda: not world.store.objects)
    assert not world.index.objects()
    async with world.process() as third:
        end = world.insert(60, 69)
        await until(lambda: len(third.values(1)) == 10)
        assert third.values(1) == list(range(60, 70))


@on_loop
async def test_a_reader_goes_back_to_where_the_lake_is(world: World) -> None:
    async with world.process() as process:
        world.insert(0, 9)
        await until(lambda: len(process.values(1)) == 10)
        process.make_durable()
        end = world.insert(10, 19)
        await until(lambda: world.is_confirmed(end))
        await until(lambda: len(process.values(1)) == 20)
        await until(lambda: process.log.source("eu").applied > 0)
        process.reader.rewind()
        world.insert(20, 29)
        await until(lambda: process.values(2)[-1:] == [29])
        again = process.values(2)
        assert again == list(range(again[0], 30))
        assert again[0] in {0, 10}, "as far as the log was told"


@on_loop
async def test_whoever_takes_over_may_have_transactions_where_the_one_before_had_none(world: World) -> None:
    async with world.process() as process:
        end = world.insert(0, 9)
        await until(lambda: world.is_confirmed(end))
        await until(lambda: len(process.values(1)) == 10)
        process.make_durable()
        source = process.log.source("eu")
        await until(lambda: source.applied >= end)
        ended, far = source.known.ended, source.known.lsn + 1_000_000
        # The server before said that there is nothing of ours up to there.
        source.add([Stretch(number=source.newest[2] + 1, data=keepalive(far), lsn=far, ended=ended, has_rows=False,
                            lengths=np.array([len(keepalive(far))], np.uint32))])  # fmt: skip
        await until(lambda: process.progress.confirmable("eu") >= far and source.applied >= far)
        await asyncio.to_thread(StagedProgress(process.log, process.progress).begin_anew, "eu", ended)
        assert source.applied <= max(ended, end)
        epoch = process.reader.epoch
        world.database.execute(KILL)
        # The walsender ends when it looks at its interrupts: until then it may send what is inserted.
        await until(lambda: process.reader.epoch > epoch)
        world.insert(10, 19)
        await until(lambda: process.values(process.reader.epoch)[-1:] == [19])
        assert process.progress.confirmable("eu") < far
        process.make_durable()
        await until(lambda: ended < process.progress.confirmable("eu") < far)


@on_loop
async def test_connections_that_break_lose_and_double_nothing(world: World) -> None:
    async with world.process() as process:
        for number in range(8):
            world.insert(number * 1000, number * 1000 + 999, size=300)
            if number % 2:
                world.database.execute(KILL)
        end = world.insert(9000, 9009)
        await until(lambda: world.is_confirmed(end))
        await until(lambda: process.values(process.reader.epoch)[-1:] == [9009])
        expected = [*range(8000), *range(9000, 9010)]
        seen: dict[int, int] = {}
        for epoch in range(1, process.reader.epoch + 1):
            values = process.values(epoch)
            assert values == sorted(values)
            seen |= dict.fromkeys(values, epoch)
        assert sorted(seen) == expected
        assert process.values(process.reader.epoch) == expected, "nothing was durable: all of it came again"


@on_loop
async def test_a_large_transaction_goes_out_in_parts_and_is_read_again_as_a_whole(world: World) -> None:
    async with world.process() as process:
        end = world.insert(0, 29_999, size=300)
        await until(lambda: world.is_confirmed(end))
        await until(lambda: len(process.values(1)) == 30_000)
        assert any(delivery.is_open for delivery in process.deliveries)
        assert any(one.is_open for one in world.index.slices("eu", 0, through=0, most=99))
    async with world.process() as second:
        await until(lambda: len(second.values(1)) == 30_000)
        assert second.values(1) == list(range(30_000))
        second.make_durable()
        await until(lambda: not world.store.objects)


@on_loop
async def test_nothing_is_confirmed_while_the_store_is_away(world: World) -> None:
    async with world.process() as process:
        end = world.insert(0, 9)
        await until(lambda: world.is_confirmed(end))
        world.store.is_away = True
        end = world.insert(10, 19)
        await until(lambda: len(process.values(1)) == 20)
        await until(lambda: process.log.writer.error is not None)
        for _ in range(30):
            world.insert(100, 4099, size=300)
            world.database.execute("DELETE FROM t WHERE id >= 100")
        assert not world.is_confirmed(end)
        await until(lambda: not process.log.room.is_there)
        world.store.is_away = False
        end = world.insert(20, 29)
        await until(lambda: world.is_confirmed(end))


@on_loop
async def test_a_reader_that_is_far_behind_reads_from_objects(world: World) -> None:
    world.budget_bytes = 1 << 20
    async with world.process() as process:
        for number in range(10):
            end = world.insert(number * 3000, number * 3000 + 2999, size=300)
        await until(lambda: world.is_confirmed(end))
        while len(process.values(1)) < 30_000:
            process.make_durable()
            await asyncio.sleep(0.02)
        found = process.values(1)
        assert (len(found), found == list(range(30_000))) == (30_000, True), [
            (a, b) for a, b in itertools.pairwise(found) if b != a + 1
        ]
        assert process.reader.facts.state is ReaderState.STREAMING
        assert world.store.reads
