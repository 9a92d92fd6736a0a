"""The way out of a parking log: all of it goes to the worker first, and then the table follows the stream."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import KuvaszError, LakeError, ParkedLost, SourceError, StateError, TableError
from kuvasz.model import Delivery, Relation, Segment
from kuvasz.parking.ports import LogDamaged
from kuvasz.route.row_limit import RowLimit
from kuvasz.state.tables import State
from kuvasz.sync.beside import Beside, ErrandClock
from kuvasz.sync.tables import replays
from kuvasz.sync.tables.replays import NEVER, Replays
from kuvasz.sync.tables.source_logs import SourceLogs
from tests.support.changes import Sender, insert
from tests.support.scene import Scene

TARGET, SOURCE = "shop.items", "shop"


class Inbox:
    """A worker that has in the lake at once what it is given, unless it is told to wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.took: list[Delivery] = []
        self.is_slow = False

    def put(self, delivery: Delivery) -> None:
        self.took.append(delivery)
        self._world.shared.budget.remove({delivery.source: delivery.bytes})
        if not self.is_slow:
            self.apply()

    def apply(self) -> None:
        for delivery in self.took:
            assert delivery.replay is not None
            applied = self._world.shared.lot.replays.applied
            applied(TARGET, SOURCE, delivery.replay.number, delivery.replay.end)


class World(Scene):
    """`items` is parked; nobody reads but who does as told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copy(self.items)
        record: Any = SimpleNamespace(standing=SimpleNamespace(confirmed_lsn=0x2000))
        self.logs = SourceLogs(self.context, record)
        self.inbox = Inbox(self)
        self.mended: list[str] = []
        self.errors: list[KuvaszError] = []
        self.numbered: list[tuple[int, int]] = []
        self.activates = True
        lot = self.shared.lot
        lot.most_bytes = 1 << 20
        shared = dataclasses.replace(self.shared, inboxes=(self.inbox,))
        context: Any = SimpleNamespace(
            source=self.source, shared=shared, requests=SimpleNamespace(mended=self.mended.append)
        )
        parking: Any = SimpleNamespace(moving=asyncio.Lock())
        self.replays = Replays(
            context, self.logs, parking, number=self._number, row_limit=RowLimit(1 << 20, lambda *_: False),
            activate=self._activate,
        )  # fmt: skip
        self.reader: Any = SimpleNamespace(epoch=1, rewound=0)
        self.reader.rewind = self._rewind
        self.logs.open(self.items)
        self.logs.begin(self.items, 1)
        self.sender = Sender(SOURCE)

    def _rewind(self) -> None:
        self.reader.rewound += 1
        self.reader.epoch += 1

    def _number(self, relation: Relation, commit_lsn: int, xid: int) -> Relation:
        if self.errors:
            raise self.errors.pop(0)
        self.numbered.append((commit_lsn, xid))
        return dataclasses.replace(relation, file=9)

    def _activate(self, spec: SourceTableSpec, epoch: int) -> bool:
        assert epoch == NEVER, "it follows no connection before all that is parked was sent"
        if self.activates:
            self.states.activate(spec.identifier, SOURCE, epoch)
            self.source_tables.set(spec, State.CATCHING_UP)
        return self.activates

    def park(self, count: int = 3) -> None:
        for key in range(count):
            segment = self.sender.one(insert(key))
            lsn = int(segment.transactions.end_lsn[0])
            self.shared.lot.park(TARGET, SOURCE, 1, [segment], lsn, is_open=False)

    def replay(self) -> bool:
        async def run() -> bool:
            async with asyncio.timeout(30):
                return await self.replays.replay(self.items, self.reader)

        return asyncio.run(run())

    @property
    def sent(self) -> list[Segment]:
        return [one for delivery in self.inbox.took for one in delivery.changes if isinstance(one, Segment)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(replays, "_POLL_S", 0.001)
    monkeypatch.setattr(replays, "_FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(replays, "_RETRY_S", 0.001)
    return World(tmp_path)


def test_all_that_is_parked_is_sent_and_then_the_table_follows(world: World) -> None:
    world.park(3)
    assert world.replay()
    assert [int(one.transactions.commit_lsn[0]) for one in world.sent] == [1100, 1200, 1300]
    assert world.reader.rewound == 1, "what came meanwhile comes again"
    assert world.states.is_active(TARGET, SOURCE, world.reader.epoch)
    assert (world.logs.has(TARGET), world.lake.notes.parked(TARGET, SOURCE)) == (False, None)
    assert TARGET not in world.progress.held(SOURCE)


def test_parked_rows_are_numbered_as_live_ones_once_for_each_relation(world: World) -> None:
    world.park(3)
    world.replay()
    assert {one.relation.file for one in world.sent} == {9}
    assert world.numbered == [(1100, 0)]


def test_columns_are_those_of_the_transaction_that_described_them(world: World) -> None:
    """The last transaction of its rows may be another one, whose xid says nothing of when that was."""
    segments = [world.sender.one(insert(key)) for key in range(2)]
    runs = [one.transactions for one in segments]
    of_both = {
        field.name: np.concatenate([getattr(one, field.name) for one in runs])
        for field in dataclasses.fields(runs[0])
    }
    described = int(runs[0].commit_lsn[0])
    segment = dataclasses.replace(
        segments[0], transactions=dataclasses.replace(runs[0], **of_both),
        relation=dataclasses.replace(segments[0].relation, described_lsn=described),
    )  # fmt: skip
    assert replays._described(segment) == (described, int(runs[0].xid[0]))
    undescribed = dataclasses.replace(segment, relation=segments[0].relation)
    assert replays._described(undescribed) == (int(runs[1].commit_lsn[0]), int(runs[1].xid[0]))


def test_a_large_log_comes_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.park(5)
    monkeypatch.setattr(replays, "_PORTION_BYTES", 1)
    assert world.replay()
    assert len(world.inbox.took) == 5
    ends = [delivery.replay.end for delivery in world.inbox.took if delivery.replay is not None]
    assert ends == sorted(set(ends))


def test_a_worker_is_never_given_more_than_two_portions_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.park(6)
    monkeypatch.setattr(replays, "_PORTION_BYTES", 1)
    world.inbox.is_slow = True

    async def run() -> int:
        task = asyncio.ensure_future(world.replays.replay(world.items, world.reader))
        for _ in range(60):
            await asyncio.sleep(0.001)
        ahead = len(world.inbox.took)
        world.inbox.is_slow = False
        world.inbox.apply()
        async with asyncio.timeout(30):
            assert await task
        return ahead

    assert asyncio.run(run()) == 2
    assert len(world.sent) == 6


def test_a_table_that_may_not_follow_is_sent_nothing(world: World) -> None:
    world.park()
    world.activates = False
    assert not world.replay()
    assert (world.sent, world.reader.rewound, world.logs.has(TARGET)) == ([], 0, True)


@pytest.mark.parametrize(
    "error", [SourceError("no route"), LakeError("no catalog"), StateError("too many open files")]
)
def test_what_fails_while_it_is_read_is_tried_again(world: World, error: KuvaszError) -> None:
    world.park(2)
    world.errors = [error, error]
    assert world.replay()
    assert len(world.sent) == 2


def test_a_table_that_is_stopped_meanwhile_keeps_its_log_and_does_not_follow(world: World) -> None:
    world.park(2)
    number = world.replays._number

    def stop(relation: Relation, commit_lsn: int, xid: int) -> Relation:
        world.source_tables.set(world.items, State.ERROR, TableError("broken"))
        return number(relation, commit_lsn, xid)

    world.replays._number = stop
    assert not world.replay()
    assert (world.reader.rewound, world.logs.has(TARGET)) == (0, True)
    assert world.source_tables.state(world.items) is State.ERROR


def test_a_log_that_is_not_what_was_written_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.park(2)

    def damaged(*_: object) -> None:
        raise LogDamaged("it is torn")

    monkeypatch.setattr(world.shared.lot, "read", damaged)
    assert not world.replay()
    assert world.logs.is_lost(TARGET)
    assert isinstance(world.source_tables.look(world.items).error, ParkedLost)
    assert TARGET in world.progress.held(SOURCE)


def test_a_log_that_cannot_be_removed_yet_is_so_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.park(1)
    close, failures = world.logs.close, [LakeError("no catalog")]

    def fail(target: str) -> None:
        if failures:
            raise failures.pop()
        close(target)

    monkeypatch.setattr(world.logs, "close", fail)
    assert world.replay()
    assert not world.logs.has(TARGET)


def test_tables_that_are_due_are_brought_back_and_told(world: World) -> None:
    world.park(1)

    async def run() -> None:
        world.replays.begin()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            beside = Beside(tasks, ErrandClock(), "kuvasz")
            world.replays.attend(world.reader, beside)
            world.replays.send(world.items)
            while not world.mended:  # noqa: ASYNC110 (a condition, not an event)
                await asyncio.sleep(0.001)
            beside.end()

    asyncio.run(run())
    assert world.mended == [TARGET]
