"""The composition root: builds everything from the configuration, starts it, watches it and stops it in order.

Start: lake (Spark, catalog), workers, sources side by side. Stop: sources stop reading, workers finish what is in
hand, readers confirm what is durable and close, the lake saves its indexes. Nothing clever happens here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping

from kuvasz import failpoints, lsn
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.model import Config, OnLakeRewound
from kuvasz.errors import CheckError, ConfigError, KuvaszError, LakeError, LakeRewound, Retry, SourceError
from kuvasz.lake.iceberg import IcebergLake
from kuvasz.parking.logs import ParkedView, ParkingLogs
from kuvasz.ports import Failure, Lake, Receipt, Upkeep
from kuvasz.route.hashing import worker_of
from kuvasz.source.reader import ReaderOptions, ReaderState
from kuvasz.source.warmup import warm
from kuvasz.state.budget import Budget
from kuvasz.state.notes import NoteFile
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableState, TableStates
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.rules.targets import Targets
from kuvasz.sync.source_sync import SourceSync
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.worker import Worker

_log = logging.getLogger(__name__)

#: Seconds the workers get to finish what is in hand when kuvasz stops; the whole stop takes less than 30.
_STOP_S = 20.0

_LOOK_S = 0.2

#: A JVM refuses connections a moment before it is known to have ended.
_DEATH_S = 1.0

#: Between looks at a worker that is to finish what it has begun.
_SETTLE_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """What an observer sees of a source."""

    name: str
    state: str
    error: str | None
    received_lsn: int
    confirmed_lsn: int
    confirmable_lsn: int  #: everything before it is in the lake
    rows: int
    epoch: int
    commit_us: int | None  #: commit time of the last transaction handed to the workers
    last_message_at: float | None  #: monotonic seconds
    is_pending: bool  #: something was handed to the workers that is not in the lake yet
    is_paused: bool  #: it is not read now, because too much waits already
    retry_at: float | None = None  #: monotonic seconds of the next attempt after a failure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What an observer sees of everything, at one moment."""

    phase: str  #: starting, running, stopping
    sources: tuple[SourceView, ...]
    tables: tuple[TableState, ...]
    waiting_bytes: int
    commit_conflicts: int  #: commits made again because another writer was faster
    upkeep: tuple[Upkeep, ...] = ()  #: of the lake's tables, as far as maintenance has looked at them
    parked: Mapping[tuple[str, str], ParkedView] = dataclasses.field(default_factory=dict)  #: (target, source) -> it


class App:
    """One kuvasz process.

    Args:
        config: The whole configuration.
        lake: Another lake than Iceberg, for tests.
        until_caught_up: End by itself when everything that the sources had at the start is durable.
    """

    def __init__(self, config: Config, *, lake: Lake | None = None, until_caught_up: bool = False) -> None:
        self.config = config
        self.states = TableStates(file=NoteFile(config.pipeline.state_folder))
        self.progress = Progress()
        self.budget = Budget(config.pipeline.most_waiting_bytes)
        self.phase = "starting"
        self._lake: Lake = lake or IcebergLake(config)
        self._until_caught_up = until_caught_up
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._map = sources = config_sources.resolve(config)
        self._targets = Targets(sources, config.pipeline.workers)
        pipeline, progress = config.pipeline, self.progress
        self.lot = ParkingLogs(pipeline.state_folder, pipeline.park_bytes, progress.hold, progress.release)
        self.workers = [self._worker(number) for number in range(config.pipeline.workers)]
        share_bytes = pipeline.share_bytes(len(sources))
        shared = Shared(
            lake=self._lake,
            routes=self._targets,
            inboxes=self.workers,
            progress=self.progress,
            budget=self.budget,
            states=self.states,
            spill_bytes=min(pipeline.transaction_spill_bytes, share_bytes),
            gulp_bytes=min(ReaderOptions().gulp_bytes, share_bytes),
            copies=asyncio.Semaphore(max(1, (os.cpu_count() or 1) // 2)),
            state_folder=config.pipeline.state_folder,
            settle=self._settle,
            on_copy=self._on_copy,
            lot=self.lot,
            when_parked_full=config.pipeline.when_parked_full,
            on_lake_rewound=config.lake.on_lake_rewound,
            mask_secret=(config.pipeline.mask_secret or "").encode(),
        )
        self.sources = [SourceSync(source, shared) for source in sources]
        self._ended: dict[str, KuvaszError] = {}
        self._observers: list[Callable[[Receipt], None]] = []
        self._goals: dict[tuple[str, str, float], int] = {}

    def _worker(self, number: int) -> Worker:
        pipeline = self.config.pipeline
        return Worker(
            number,
            self._lake,
            target_of=self._targets.find,
            progress=self.progress,
            budget=self.budget,
            states=self.states,
            policy=FlushPolicy(interval_s=pipeline.commit_interval, bytes=pipeline.commit_bytes),
            on_failure=self._on_failure,
            on_receipt=self._on_receipt,
            lot=self.lot,
        )

    def stop(self) -> None:
        """Begin to stop; call it from the loop."""
        self._stop.set()

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._lake

    async def run(self) -> int:
        """Replicate until stopped; returns the exit code.

        Raises:
            LakeError: The lake cannot be reached or written.
        """
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(asyncio.to_thread(self._open_lake), asyncio.to_thread(warm))
        try:
            for worker in self.workers:
                worker.start()
            self.phase = "running"
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._source(sync), name=sync.source.name) for sync in self.sources]
                await self._watch()
                self.phase = "stopping"
                await self._shut_down()
                _, late = await asyncio.wait(running, timeout=5)
                for task in late:
                    task.cancel()
            return self._exit_code()
        finally:
            await asyncio.to_thread(self._lake.close)
            self.lot.close()

    def _open_lake(self) -> None:
        begin = time.monotonic()
        _log.info("starting spark", extra={"event": "lake_opening"})
        self._lake.open()
        self._let_go_unmapped()
        seconds = round(time.monotonic() - begin, 1)
        _log.info("the lake is open", extra={"event": "lake_open", "seconds": seconds})

    def _let_go_unmapped(self) -> None:
        """Have the lake know which tables left the map: from now on their changes are confirmed and in no table.

        Whoever comes back has a gap, which is closed or told as any other. Nothing is confirmed before that is noted.
        """
        feeds = {source.name: {spec.identifier for spec in source.tables} for source in self._map}
        for target, source in self._lake.unmapped(feeds):
            # Members of a group have files of their own, which nobody compares: they are copied again.
            self._lake.forget(target, source, to_repair=not names.member_of(source))
            self.lot.drop(target, names.source_of(source))
            _log.warning("a table is not in the map any more: its changes are not kept", extra={
                "event": "table_unmapped", "source": source, "table": target})  # fmt: skip

    async def _source(self, sync: SourceSync) -> None:
        try:
            await sync.run()
        except* KuvaszError as group:
            error = _first(group)
            sync.error = error
            self._ended[sync.source.name] = error
            _log.error("a source stops", extra={"event": "source_stopped", "source": sync.source.name,
                                                "error": str(error)})  # fmt: skip
        except* Exception:
            if not await self._is_lake_dead():
                raise  # else it ended by whatever it was asking the JVM, and `_watch` says why

    async def _is_lake_dead(self) -> bool:
        end = time.monotonic() + _DEATH_S
        while time.monotonic() < end:
            if self._death() is not None:
                return True
            await asyncio.sleep(_SETTLE_S)
        return False

    def _death(self) -> LakeError | None:
        return self._lake.why_dead()

    async def _watch(self) -> None:
        """Wait until told to stop, until there is nothing left to do, or until a worker dies."""
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._stop.wait()
            except TimeoutError:
                pass
            self._promote()
            # The JVM first: without it workers die of whatever they were doing.
            if (death := self._death()) is not None:
                raise death
            for worker in self.workers:
                if worker.died is not None:
                    raise worker.died
            for error in self._ended.values():
                if isinstance(error, ConfigError):  # an expression of the map that fits no table
                    raise error
            if all(self._is_hopeless(sync) for sync in self.sources):
                return
            if self._until_caught_up and self._is_caught_up():
                _log.info("caught up", extra={"event": "caught_up"})
                return

    def _promote(self) -> None:
        """Call tables streaming that have what their source held when they began to catch up."""
        syncs = {sync.source.name: sync for sync in self.sources}
        goals: dict[tuple[str, str, float], int] = {}
        for state in self.states.snapshot():
            if state.state is State.CATCHING_UP and not self.lot.has(state.target, state.source):
                key, sync = (state.target, state.source, state.since), syncs[state.database]
                received = 0 if sync.reader is None else sync.reader.received_lsn
                goals[key] = self._goals.get(key) or max(received, sync.target_lsn or 0)
                if self._has_reached(sync, goals[key]):
                    self.states.set(state.target, state.source, State.STREAMING)
        self._goals = goals

    def _has_reached(self, sync: SourceSync, goal: int) -> bool:
        # Under steady load something is pending at every look, and while another table holds the source the
        # confirmable LSN stands still: either of the two will do.
        if sync.reader is None or sync.reader.state is not ReaderState.STREAMING:
            return False
        name = sync.source.name
        is_empty = self.progress.received_lsn(name) >= goal and not self.progress.pending(name)
        return is_empty or self.progress.confirmable(name) >= goal

    def _is_caught_up(self) -> bool:
        for sync in self.sources:
            if self._is_ended(sync):
                continue
            if sync.target_lsn is None or not sync.is_streaming or sync.reader is None:
                return False
            name = sync.source.name
            if self.progress.received_lsn(name) < sync.target_lsn or self.progress.pending(name):
                return False
        return True

    async def _shut_down(self) -> None:
        for sync in self.sources:
            sync.quiesce()
        await asyncio.gather(*(asyncio.to_thread(worker.stop, _STOP_S) for worker in self.workers))
        failpoints.hit("shutdown")
        for sync in self.sources:
            sync.stop()

    def _is_hopeless(self, sync: SourceSync) -> bool:
        """Whether a source lost its stream, or did not even pass its checks, and waits for a person."""
        is_refused = sync.error is not None and sync.error.retry is Retry.HUMAN and not sync.has_started
        return self._is_ended(sync) or is_refused

    def _is_ended(self, sync: SourceSync) -> bool:
        return sync.is_lost or sync.source.name in self._ended

    def _exit_code(self) -> int:
        if all(self._is_hopeless(sync) for sync in self.sources):
            return max(sync.error.exit_code for sync in self.sources if sync.error is not None)
        return 0

    # Called from workers' threads

    def _on_failure(self, failure: Failure) -> None:
        _log.error("a table stops", extra={"event": "table_failed", "table": failure.target,
                                           "error": str(failure.error)})  # fmt: skip
        is_repaired = self.config.lake.on_lake_rewound is OnLakeRewound.REPAIR
        if failure.error.retry is Retry.TIMED or (isinstance(failure.error, LakeRewound) and is_repaired):
            for source in self.states.sources_of(failure.target):
                self.sync(source).retry_later(names.member_name(failure.target, names.member_of(source)))

    def sync(self, source: str) -> SourceSync:
        """Return what keeps a source replicated; pause, resume, retry and resync its tables there, on the loop."""
        return next(sync for sync in self.sources if sync.source.name == names.source_of(source))

    async def _settle(self, target: str) -> None:
        """Return when no mini-transaction that has begun can touch a target any more.

        Raises:
            SourceError: kuvasz stops.
        """
        worker = self.workers[worker_of(target, len(self.workers))]
        begun = worker.begun()
        while not worker.has_ended(begun, target):
            if worker.is_stopping:
                raise SourceError(f"stopped while changes of table {target} were under way")
            await asyncio.sleep(_SETTLE_S)

    def _on_receipt(self, receipt: Receipt) -> None:
        log_receipt(receipt)
        for observer in self._observers:
            observer(receipt)

    def _on_copy(self, source: str, table: str, done: int, total: int, rows: int) -> None:
        _log.debug("copying", extra={"event": "copying", "source": source, "table": table, "done": done,
                                     "total": total, "rows": rows})  # fmt: skip

    # For observers

    def observe(self, on_receipt: Callable[[Receipt], None]) -> None:
        """Have `on_receipt` called for every commit of streamed changes, in a worker's thread; call before `run`."""
        self._observers.append(on_receipt)

    def view(self) -> View:
        """Return what is going on."""
        return View(
            phase=self.phase,
            sources=tuple(self._view(sync) for sync in self.sources),
            tables=tuple(self.states.snapshot()),
            waiting_bytes=self.budget.bytes,
            commit_conflicts=self._lake.commit_conflicts,
            upkeep=tuple(upkeep for _, upkeep in sorted(self._lake.upkeep().items())),
            parked=self.lot.views(),
        )

    def _view(self, sync: SourceSync) -> SourceView:
        reader = sync.reader
        state = "starting" if reader is None else reader.state.value
        error = sync.error or (reader.error if reader is not None else None)
        return SourceView(
            name=sync.source.name,
            state="error" if self._is_ended(sync) else "waiting" if reader is None and error else state,
            error=None if error is None else str(error),
            received_lsn=0 if reader is None else reader.received_lsn,
            confirmed_lsn=0 if reader is None else reader.confirmed_lsn,
            confirmable_lsn=self.progress.confirmable(sync.source.name),
            rows=0 if reader is None else reader.rows,
            epoch=0 if reader is None else reader.epoch,
            commit_us=None if reader is None else reader.commit_us,
            last_message_at=None if reader is None else reader.last_message_at,
            is_pending=self.progress.pending(sync.source.name),
            is_paused=reader is not None and reader.is_paused,
            retry_at=sync.retry_at if reader is None else reader.retry_at,
        )


def log_receipt(receipt: Receipt) -> None:
    """Tell of a commit: one line per table and mini-transaction."""
    if receipt.snapshot_id is None:
        return
    _log.info("committed", extra={
        "event": "committed", "table": receipt.target, "rows": receipt.rows, "snapshot": receipt.snapshot_id,
        "positions": {source: lsn.render(position.lsn) for source, position in receipt.positions.items()},
        "source_commit_us": receipt.commit_us, "seconds": round(receipt.seconds, 4)})  # fmt: skip


def _first(group: BaseExceptionGroup[KuvaszError]) -> KuvaszError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, KuvaszError)
    return error


__all__ = ["App", "CheckError", "LakeError", "View"]
