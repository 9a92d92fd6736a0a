"""Into parking logs and out of them, between real neighbours, but for reader and lake, which fail as told."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, LakeRewound, ParkedLost, TableError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Delivery, Segment, SourcePosition, TableName, TableType
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.logs import ParkingLogs
from kuvasz.route.row_limit import RowLimit
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates
from kuvasz.sync.beside import Beside, ErrandClock
from kuvasz.sync.context import current_reader
from kuvasz.sync.tables import parking, replays
from kuvasz.sync.tables.parking import Parking
from kuvasz.sync.tables.replays import Replays
from kuvasz.sync.tables.source_logs import SourceLogs
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.worker import Worker
from tests.support.changes import ITEMS, TARGET, Sender, feed, insert, relation, target
from tests.support.examples import examples
from tests.support.stalls import stalls
from tests.support.waiting import PATIENCE_S

EU = "eu"
OTHER = "shop.others"
OTHERS = relation(table=TableName(schema="public", name="others"), oid=2)
SPECS = [
    SourceTableSpec(table=found.table, config=TableConfig(), namespace="shop", target=found.table.name, has_sid=True)
    for found in (ITEMS, OTHERS)
]
RELATIONS = {TARGET: ITEMS, OTHER: OTHERS}


class Lake(MemoryLake):
    """Refuses the rows of some targets."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        stage: Any = self._write_stage
        self._apply, stage._apply = stage._apply, self._apply_or_refuse

    def _apply_or_refuse(self, table: Any, chunk: Any) -> Any:
        if table.target.name in self.broken:
            raise TableError(f"table {table.target.name} is broken")
        return self._apply(table, chunk)


@dataclasses.dataclass(frozen=True)
class Transaction:
    commit_lsn: int
    end_lsn: int
    parts: list[list[Segment]]


class World:
    """What outlives a process: the source with its slot, the lake, and the state folder."""

    def __init__(self, folder: Path, most_bytes: int = 1 << 20) -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self.notes = MemoryNotes()
        self.wal: list[Transaction] = []
        self.confirmed = 1000
        self.ids: dict[str, list[int]] = {TARGET: [], OTHER: []}
        self.lake = Lake()
        self.lake.open()
        for name, found in RELATIONS.items():
            at = target(name, table_type=TableType.CHANGELOG)
            self.lake.prepare(at, feed(EU, name, table=found.table), found)
            self.lake.copy(feed(EU, name, table=found.table), found, [], SourcePosition(lsn=1000), lambda *_: None)

    def commit(self, parts: int = 1, rows: int = 2) -> None:
        """Insert rows that were never there into both tables, in one transaction."""
        lsn = 1000 + 100 * (len(self.wal) + 1)
        sent = []
        for part in range(parts):
            changes = []
            for name, ids in self.ids.items():
                fresh = range(len(ids), len(ids) + rows)
                ids.extend(fresh)
                sender, messages = Sender(EU, RELATIONS[name]), [insert(n) for n in fresh]
                changes.append(sender.segment([(lsn, messages)], is_open=part < parts - 1))
            sent.append(changes)
        self.wal.append(Transaction(commit_lsn=lsn, end_lsn=lsn + 8, parts=sent))

    @property
    def end(self) -> int:
        return self.wal[-1].end_lsn if self.wal else 1000

    def assert_equal(self) -> None:
        for name, ids in self.ids.items():
            assert sorted(self.lake.rows(name)["id"].to_pylist()) == ids, name


class Reader:
    """Sends what is not confirmed, again after each rewind."""

    def __init__(self, life: Life) -> None:
        self.epoch = 0
        self._life = life
        self._is_rewinding = False

    def rewind(self) -> None:
        self._is_rewinding = True

    async def run(self) -> None:
        life, world = self._life, self._life.world
        while True:
            self.epoch += 1
            self._is_rewinding = False
            life.progress.restarted(EU, self.epoch)
            begin = max(world.confirmed, life.progress.confirmable(EU))
            queue = [one for one in world.wal if one.end_lsn > begin]
            known = len(world.wal)
            life.progress.received(EU, begin)
            before = begin
            while not self._is_rewinding:
                await asyncio.sleep(0.001)
                world.confirmed = max(world.confirmed, life.progress.confirmable(EU))
                queue += world.wal[known:]
                known = len(world.wal)
                if queue:
                    before = await self._send(queue.pop(0), before)
                else:
                    life.progress.received(EU, before)

    async def _send(self, one: Transaction, before: int) -> int:
        for changes in one.parts:
            if self._is_rewinding:
                return before
            is_last = changes is one.parts[-1]
            through = one.end_lsn if is_last else before
            size = sum(len(change.data) for change in changes)
            self._life.progress.routed(EU, 0, through)
            self._life.budget.add(EU, size)
            self._life.worker.put(
                Delivery(source=EU, changes=tuple(changes), through=through, bytes=size, epoch=self.epoch,
                         is_open=not is_last)
            )  # fmt: skip
            await asyncio.sleep(0)
        self._life.progress.received(EU, one.end_lsn)
        return one.end_lsn


class Record:
    """What the source has let go of."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def standing(self) -> Any:
        return SimpleNamespace(confirmed_lsn=self._world.confirmed)


class Life:
    """One process, with what `SourceSync` does about parking."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.progress, self.budget = Progress(), Budget(1 << 20)
        self.states = TableStates(world.notes)
        self.lot = ParkingLogs(LogFolder(world.folder), world.most_bytes, self.progress.hold, self.progress.release)
        names = {found.table: name for name, found in RELATIONS.items()}
        self.worker = Worker(
            0, world.lake, targets_of=lambda source, found: [(names[found.table], source)], progress=self.progress,
            budget=self.budget, states=self.states, policy=FlushPolicy(interval_s=0.002, bytes=1 << 20),
            on_failure=lambda _: None, on_receipt=lambda _: None, lot=self.lot,
        )  # fmt: skip
        self.reader = Reader(self)
        self.failed: list[TableError] = []
        context: Any = SimpleNamespace(
            source=SimpleNamespace(name=EU, tables=SPECS),
            shared=SimpleNamespace(
                reading=ReaderOptions(),
                lot=self.lot, lake=world.lake, progress=self.progress, budget=self.budget, states=self.states,
                inboxes=[self.worker], routes=SimpleNamespace(worker_of_target=lambda _: 0), mask_secret=b"",
            ),
            troubles=SimpleNamespace(fail=self._fail),
            requests=SimpleNamespace(mended=lambda _: None),
        )  # fmt: skip
        resets: Any = SimpleNamespace(make_room=lambda _: None)
        record: Any = Record(world)
        self.logs = SourceLogs(context, record)
        self.parking = Parking(context, self.logs, resets)
        self.replays = Replays(
            context, self.logs, self.parking, number=lambda found, *_: dataclasses.replace(found, file=1),
            row_limit=RowLimit(1 << 20, lambda *_: False),
            activate=lambda spec, epoch: self.activate(spec.identifier, epoch),
        )  # fmt: skip
        self._tasks: set[asyncio.Task[Any]] = set()
        self._group = asyncio.TaskGroup()

    def _fail(self, spec: Any, error: Any) -> None:
        self.failed.append(error)
        self.states.set(spec.identifier, EU, State.ERROR, error)

    async def __aenter__(self) -> Life:
        for spec in SPECS:
            self.states.add(spec.identifier, EU, str(spec.table))
            try:
                self.logs.admit(spec)
            except ParkedLost as error:
                self._fail(spec, error)
        self.worker.start()
        for spec in SPECS:
            name = spec.identifier
            hold = self.progress.hold(EU, name)
            if self.logs.has(name):
                self.logs.begin(spec, self.reader.epoch + 1)
                self.task(self.back(name))
            elif self.states.get(name, EU).state is State.NEW:
                self.activate(name, self.reader.epoch + 1)
                self.progress.release(EU, name, hold)
        self.task(self.reader.run())
        await self._group.__aenter__()
        self._beside = Beside(self._group, ErrandClock(), EU)
        self.parking.watch(self.reader, self._beside)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beside.end()
        await self._group.__aexit__(None, None, None)
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert await asyncio.to_thread(self.worker.stop, 20)
        assert self.worker.died is None
        self.lot.close()
        for table in self.world.lake._tables.values():  # as the next process finds it
            table.era = WriteEra.begin(table.positions)
            table.rows.abandon_all()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def task(self, coroutine: Any) -> None:
        self._tasks.add(asyncio.ensure_future(coroutine))

    def activate(self, name: str, epoch: int) -> bool:
        self.states.activate(name, EU, epoch)
        error = self.world.lake.failure(name, EU)
        if error is not None:
            self.states.set(name, EU, State.ERROR, error)
        return self.states.is_streaming(name, EU)

    def pause(self, name: str) -> None:
        self.states.pause(name, EU, hold=functools.partial(self.progress.hold, EU, name))

    def resume(self, name: str) -> None:
        self.states.unpause(name, EU)
        self.task(self.back(name))

    async def back(self, name: str) -> None:
        """As `_readmit` and `_rejoin`."""
        async with self.parking.moving:
            state = self.states.get(name, EU)
            if state.state in {State.CATCHING_UP, State.STREAMING} or state.is_paused or self.failed:
                return
            self.progress.hold(EU, name)
            self.states.set(name, EU, State.NEW)
            await self._settled()
            self.world.lake.resume(name, self.world.lake.failure(name, EU))
        spec = next(spec for spec in SPECS if spec.identifier == name)
        if self.logs.has(name):
            await self.replays.replay(spec, self.reader)
            return
        epoch, hold = self.reader.epoch + 1, self.progress.hold(EU, name)
        self.activate(name, epoch)
        self.reader.rewind()
        await until(lambda: self.reader.epoch >= epoch, "it reads again")
        self.states.release(name, EU, lambda: self.progress.release(EU, name, hold))

    async def _settled(self) -> None:
        begun = self.worker.begun()
        await until(lambda: self.worker.has_ended(begun), "settled")

    async def let_go(self) -> None:
        """Wait until the source has let go of everything it has now."""
        await until(lambda: self.world.confirmed >= self.world.end, "the source lets go")

    async def all_back(self) -> None:
        """Bring every table back that does not follow, until all do."""
        while not all(self.states.is_streaming(spec.identifier, EU) for spec in SPECS):
            for spec in SPECS:
                await self.back(spec.identifier)
            await asyncio.sleep(0.01)

    async def all_applied(self) -> None:
        await until(lambda: not self.lot.views() and self.world.confirmed >= self.world.end, "all is applied")
        assert all(self.states.is_streaming(spec.identifier, EU) for spec in SPECS)


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "_LOOK_S", 0.005)
    monkeypatch.setattr(replays, "_POLL_S", 0.001)
    monkeypatch.setattr(current_reader, "_POLL_S", 0.001)
    monkeypatch.setattr(replays, "_PORTION_BYTES", 60)


def test_a_source_lets_go_of_what_is_parked(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with Life(world) as life:
            life.pause(TARGET)
            for parts in (1, 3, 1, 2):
                world.commit(parts)
            await life.let_go()
            assert world.lake.notes.parked(TARGET, EU) == life.lot.id_of(TARGET, EU)
        assert world.lake.rows(TARGET).num_rows == 0
        assert world.lake.rows(OTHER).num_rows == len(world.ids[OTHER])
        async with Life(world) as life:
            world.commit(2)
            await life.let_go()
            life.resume(TARGET)
            world.commit()
            await life.all_applied()
            assert world.lake.notes.parked(TARGET, EU) is None
            assert not life.logs.is_replaying
        world.assert_equal()

    asyncio.run(run())


def test_a_log_that_is_gone_is_told_though_the_slot_is_fine(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with Life(world) as life:
            world.commit()
            await life.let_go()
            life.pause(TARGET)
            world.commit()
            await life.let_go()
        for file in (tmp_path / "parked").rglob("*.log"):
            file.unlink()
        async with Life(world) as life:
            (error,) = life.failed
            assert error.message.startswith("source eu, table public.items: changes between 0/454 and 0/4B8 may be")
            command = "kuvasz resync --table shop.items, and then kuvasz resume --table shop.items"
            assert error.hint.endswith(command)
            world.commit()
            await life.let_go()  # holding the source would save nothing

    asyncio.run(run())


def test_a_lake_that_knows_nothing_of_a_log_was_set_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec: Any = SPECS[0]

    async def run() -> None:
        async with Life(world) as life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()

    asyncio.run(run())
    world.lake.notes.park(TARGET, EU, None)  # as in a catalog from before
    for _ in range(2):
        with pytest.raises(LakeRewound) as told:
            Life(world).logs.admit(spec)
        assert told.value.message == (
            "source eu, table shop.items: someone set the table back in the lake: its changes up to 0/44C were"
            " parked, and it knows nothing of that"
        )
    (file,) = (tmp_path / "parked").rglob("*.log")
    file.write_bytes(b"?" + file.read_bytes()[1:])
    with pytest.raises(LakeRewound, match=f"it had parked changes once, and {file} is no parking log"):
        Life(world).logs.admit(spec)
    world.lake.forget(TARGET, EU)
    Life(world).logs.admit(spec)
    assert not file.exists(), "a copy brings all of it"


def test_a_log_that_is_finished_may_be_left_behind(tmp_path: Path) -> None:
    """Its changes may have cancelled out, and then the position stays where it was."""
    world = World(tmp_path)
    logs = ParkingLogs(LogFolder(tmp_path), 1 << 20, lambda *_: None, lambda *_: None)
    logs.create(TARGET, EU)
    logs.begin(TARGET, EU, 1)
    logs.park(TARGET, EU, 1, [Sender(EU).segment([(2000, [insert(1)])])], 2008, is_open=False)
    logs.finish(TARGET, EU)
    logs.close()

    async def run() -> None:
        async with Life(world) as life:
            assert not life.failed
            assert not list((tmp_path / "parked").rglob("*.log"))

    asyncio.run(run())


def test_what_finds_no_room_is_kept_by_the_source(tmp_path: Path) -> None:
    world = World(tmp_path, 2500)

    async def run() -> None:
        async with Life(world) as life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()
            for _ in range(30):
                world.commit()
            await until(lambda: life.lot.is_full(TARGET, EU), "it is full")
            await until(lambda: world.lake.rows(OTHER).num_rows == len(world.ids[OTHER]), "the other goes on")
            assert world.confirmed < world.end
            life.resume(TARGET)
            await life.all_applied()
        world.assert_equal()

    asyncio.run(run())


@pytest.mark.parametrize("is_before", [True, False])
def test_a_table_that_fails_as_its_replay_ends_is_parked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    """The worker's thread may stop the table right before its source is released, or right after."""
    world = World(tmp_path)
    release = TableStates.release

    def fail(states: TableStates, target: str, source: str) -> None:
        hold = functools.partial(life.progress.hold, source, target)
        states.set(target, source, State.ERROR, TableError("it is broken"), hold=hold)

    def released(states: TableStates, target: str, source: str, undo: Callable[[], object]) -> bool:
        if is_before:
            fail(states, target, source)
        done = release(states, target, source, undo)
        if not is_before:
            fail(states, target, source)
        return done

    life = Life(world)

    async def run() -> None:
        async with life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()
            life.resume(TARGET)
            await until(lambda: life.states.get(TARGET, EU).state is State.ERROR, "it fails")
            # Held, or in its log by now: a release of the new hold would leave it in neither.
            assert TARGET in life.progress.held(EU) or life.lot.is_parking(TARGET, EU)

    monkeypatch.setattr(TableStates, "release", released)
    asyncio.run(run())


def test_a_table_that_is_stopped_as_its_replay_ends_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker took of the log since then was left out, and must not be passed by."""
    world = World(tmp_path)
    go_on = TableStates.go_on
    life = Life(world)

    def stopped(states: TableStates, target: str, source: str, epoch: int) -> bool:
        states.set(target, source, State.ERROR, hold=functools.partial(life.progress.hold, source, target))
        return go_on(states, target, source, epoch)

    async def run() -> None:
        async with life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()
            monkeypatch.setattr(TableStates, "go_on", stopped)
            life.resume(TARGET)
            await until(lambda: life.states.get(TARGET, EU).state is State.ERROR, "it is stopped")
            world.commit()
            await until(lambda: world.lake.rows(OTHER).num_rows == len(world.ids[OTHER]), "the other goes on")
            assert life.states.get(TARGET, EU).state is State.ERROR
            monkeypatch.setattr(TableStates, "go_on", go_on)
            await asyncio.wait_for(life.all_back(), PATIENCE_S)
            await life.all_applied()
        world.assert_equal()

    asyncio.run(run())


def test_a_log_that_was_gone_for_a_while_is_not_trusted_again(tmp_path: Path) -> None:
    """What came meanwhile is in no log, and the source has let go of it."""
    world = World(tmp_path)

    async def run() -> None:
        async with Life(world) as life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()
            (file,) = (tmp_path / "parked").rglob("*.log")
            file.rename(aside := tmp_path / "aside")
            await until(lambda: life.failed, "it is found out")
            world.commit()
            await life.let_go()
            aside.rename(file)
        async with Life(world) as life:
            (error,) = life.failed
            assert isinstance(error, ParkedLost)

    asyncio.run(run())


def test_the_source_is_held_until_the_lake_knows_that_a_log_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(parking, "_RETRY_S", 0.01)

    async def run() -> None:
        async with Life(world) as life:
            life.pause(TARGET)
            world.commit()
            await life.let_go()
            table = world.lake.notes
            park, refused = table.park, 0

            def refuse(*_: Any) -> None:
                nonlocal refused
                refused += 1
                raise LakeError("the catalog is away")

            monkeypatch.setattr(type(table), "park", refuse)
            (file,) = (tmp_path / "parked").rglob("*.log")
            file.unlink()
            await until(lambda: refused > 1, "the lake is told, and told again")
            before = world.confirmed
            world.commit()
            await until(lambda: world.lake.rows(OTHER).num_rows == len(world.ids[OTHER]), "the other goes on")
            assert world.confirmed == before
            monkeypatch.setattr(type(table), "park", lambda _, *arguments: park(*arguments))
            await life.let_go()

    asyncio.run(run())


async def anything(world: World, life: Life, dice: random.Random) -> None:
    """Do something to a table, the stream, or the source."""
    name = dice.choice([TARGET, OTHER])
    match dice.randrange(9):
        case 0:
            life.pause(name)
        case 1 | 2:
            life.resume(name)
        case 3:
            world.lake.broken.add(name)
        case 4:
            world.lake.broken.discard(name)
            life.task(life.back(name))
        case 5:
            life.task(life.back(name))
        case 6:
            life.reader.rewind()
        case _:
            for _ in range(dice.randint(1, 3)):
                world.commit(dice.choice([1, 1, 2, 4]))
    await asyncio.sleep(dice.choice([0, 0.002, 0.01, 0.03]))


def live(folder: Path, seed: int) -> None:
    """Live three random lives and a quiet one; every change has to be in the lake once."""
    dice = random.Random(seed)  # noqa: S311
    world = World(folder, dice.choice([3000, 1 << 20]))

    async def run() -> None:
        for _ in range(3):
            async with Life(world) as life:
                for _ in range(25):
                    await anything(world, life, dice)
        world.lake.broken.clear()
        async with Life(world) as life:
            for name in (TARGET, OTHER):
                life.resume(name)
            world.commit()
            await asyncio.wait_for(life.all_back(), PATIENCE_S)
            await life.all_applied()
        world.assert_equal()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(examples(4)))
def test_whatever_happens_every_change_is_applied_once(tmp_path: Path, seed: int) -> None:
    live(tmp_path, seed)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PARKINGS", examples(4)))))
def test_whoever_is_overtaken_every_change_is_applied_once(tmp_path: Path, seed: int) -> None:
    with stalls(seed, 0.003):
        live(tmp_path, seed)
