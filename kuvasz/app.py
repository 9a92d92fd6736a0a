"""The composition root: builds everything from the configuration, starts it, watches it and stops it in order.

Start: lake (Spark, catalog), workers, sources side by side. Stop: sources stop reading, workers finish what is in
hand, readers confirm what is durable and close, the lake saves its indexes. Nothing clever happens here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

from kuvasz import failpoints
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.model import Config, CopyLimits, OnLakeRewound, PipelineConfig
from kuvasz.config.sources import Source
from kuvasz.errors import KuvaszError, LakeRewound, MapBusy, Retry
from kuvasz.events import Event, EventLog
from kuvasz.index import seed as index_seed
from kuvasz.lake.files import spared, store_access
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.parking.logs import ParkingLogs
from kuvasz.parking.store import logs_of
from kuvasz.ports import Failure, Lake
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.rest.rounds import Rounds
from kuvasz.source.warmup import warm
from kuvasz.staging.staged_log import StagedLog
from kuvasz.state.budget import Budget
from kuvasz.state.lakes.index_secret import SharedIndexSecret
from kuvasz.state.ports import StateStore
from kuvasz.state.progress import Progress
from kuvasz.state.staged.ports import LogIndex
from kuvasz.state.store import index_secret, log_index, state_of, table_owners
from kuvasz.state.tables import TableStates
from kuvasz.state.verdicts.verdicts import Verdicts
from kuvasz.sync import map_change
from kuvasz.sync.catching_up import CatchingUp
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.group_shares import GroupClaims
from kuvasz.sync.pattern_tables import PatternTables
from kuvasz.sync.rules import map_difference
from kuvasz.sync.rules.map_difference import MapDifference
from kuvasz.sync.rules.targets import Targets
from kuvasz.sync.source_sync import SourceSync
from kuvasz.sync.sources import Sources
from kuvasz.tracing.open_telemetry import Tracing
from kuvasz.view import View, source_view, staged_view
from kuvasz.worker.cuts import Cuts
from kuvasz.worker.flush import FlushPolicy
from kuvasz.worker.lake_patrol import patrol
from kuvasz.worker.receipts import Receipts
from kuvasz.worker.worker import Worker
from kuvasz.worker.workers import Workers

_log = EventLog(__name__)

#: Seconds the workers get to finish what is in hand when kuvasz stops; the whole stop takes less than 30.
_STOP_S = 20.0

_LOOK_S = 0.2

#: Of the bytes that may wait, what waits for paces of their own may be one part of so many.
_SLOW_SHARE = 4

#: Made when they are needed.
_THREADS = 256


class App:
    """One kuvasz process.

    Large because everything is put together here.

    Args:
        config: The whole configuration.
        lake: Another lake than Iceberg, or one that is prepared.
        holds_lease: It is the one of its cluster that replicates, so whoever reads its slots is about to be gone.
        snapshot_only: Every table is copied once, as of one LSN of each source, and that is all.
        claims: Which groups of the map it applies, where others apply as well; None: all.
    """

    def __init__(
        self,
        config: Config,
        *,
        lake: Lake | None = None,
        holds_lease: bool = False,
        snapshot_only: bool = False,
        claims: GroupClaims | None = None,
    ) -> None:
        state = state_of(config)
        self.patterns = PatternTables(state.feeds, may_keep=True)
        self.config = config = self.patterns.applied(config)
        self._claims = claims
        self.groups = None if claims is None else claims.groups  #: of the map, that are applied here; None: all
        self.patterns.is_mine = self._is_mine
        self.is_shared_out = claims is None  #: it has all that it is to have
        self.patterns.tell(config)
        self.lake: Lake = lake or IcebergLake(config, state.witness, owners=table_owners(config))
        self.states = TableStates(state.notes)
        self.progress = progress = Progress()
        self.budget = Budget(config.pipeline.most_waiting_bytes)
        self.receipts = Receipts()
        self.verdicts = Verdicts(state.verdicts)
        self._tracing = Tracing(config.tracing.endpoint) if config.tracing.enabled else None
        self.phase = "starting"
        self.faults: Sequence[KuvaszError] = ()  #: of sources and tables, that its exit code comes from once it ended
        self.lot = ParkingLogs(logs_of(config), config.pipeline.park_bytes, progress.hold, progress.release)
        self._stop = asyncio.Event()
        whole = config_sources.resolve(config)
        mapped = map_difference.of_groups(whole, self.groups)
        self._holds_lease = holds_lease
        self._staged = _staged(config, len(whole), is_shared=claims is not None) if holds_lease else None
        paces = config_sources.paces(whole)
        own = list(paces)
        self._targets = targets = Targets(mapped, config.pipeline.workers, own)
        policies = _policies(config.pipeline, tuple(paces.values()))
        workers = [self._worker(number, targets, policy) for number, policy in enumerate(policies)]
        self._workers = Workers(workers, targets.routed_by, own)
        shared = dataclasses.replace(
            self._shared(state, targets), holds_lease=holds_lease, is_snapshot_only=snapshot_only
        )
        self._sources = Sources(mapped, shared.among(max(1, len(mapped)), config.pipeline), self._elsewhere)
        self.cuts = Cuts(self._workers, self.lake, self.states, self.progress)
        self._catching_up = CatchingUp(self._sources, self.states, self.progress, self.lot)

    def _elsewhere(self, sources: Collection[str]) -> Collection[str]:
        """Return those of some sources that another process feeds by another map still; blocks."""
        return () if self._claims is None else self._claims.elsewhere(sources, self.config)

    def _is_mine(self, source: Source) -> bool:
        return self.groups is None or source.database in self.groups

    def _worker(self, number: int, targets: Targets, policy: FlushPolicy) -> Worker:
        return Worker(
            number,
            self.lake,
            targets_of=targets.find,
            progress=self.progress,
            budget=self.budget,
            states=self.states,
            policy=policy,
            on_failure=self._on_failure,
            on_receipt=self.receipts.tell,
            lot=self.lot,
            on_durable=None if self._tracing is None else self._tracing.traces.durable,
        )

    def _shared(self, state: StateStore, targets: Targets) -> Shared:
        pipeline = self.config.pipeline
        return Shared(
            lake=self.lake,
            routes=targets,
            inboxes=self._workers.all,
            progress=self.progress,
            budget=self.budget,
            states=self.states,
            reading=ReaderOptions(spill_bytes=pipeline.transaction_spill_bytes),
            rounds=Rounds(self.progress, self.budget, self._workers.all),
            max_row_bytes=pipeline.max_row_bytes,
            copies=asyncio.Semaphore(max(1, (os.cpu_count() or 1) // 2)),
            state=state,
            settle=self._workers.settle,
            on_copy=_tell_copying,
            lot=self.lot,
            when_parked_full=pipeline.when_parked_full,
            on_lake_rewound=self.config.lake.on_lake_rewound,
            staged=self._staged,
            patterns=self.patterns,
            copy_limits=self._copy_limits,
            mask_secret=(pipeline.mask_secret or "").encode(),
        )

    def _copy_limits(self, servers: str) -> CopyLimits:
        """Return them as the map has them that runs by then."""
        return self.config.copy_limits(servers)

    @property
    def sources(self) -> Sequence[SourceSync]:
        """What keeps each source replicated."""
        return self._sources.all

    @property
    def log_index(self) -> LogIndex | None:
        """Where it is known how far the lake is with what is staged; None: nothing is."""
        return None if self._staged is None else self._staged.index

    def sync(self, source: str) -> SourceSync:
        """Return what keeps a source replicated, also by the name that a member of it goes by."""
        return self._sources.of(source)

    @property
    def released(self) -> Sequence[Source]:
        """Sources that left the map since the start, whose slots are there still."""
        return self._sources.released

    def difference(self, config: Config) -> MapDifference:
        """Return what another map has otherwise.

        Raises:
            ConfigError: It cannot follow without a restart, or a file that holds a part of a url cannot be read.
            StateError: The coordinator does not answer.
        """
        return self._difference(config, self.groups if self._claims is None else self._claims.planned(config))

    def _difference(self, config: Config, groups: frozenset[str] | None) -> MapDifference:
        earlier, ended, before = self._sources.earlier, self._sources.ended, self.groups
        if self._claims is not None:  # a source that another process had may have come into the map since
            earlier.read()
        found = map_difference.difference(
            self.config, config, ended, earlier.sids, self._workers.own, (before, groups)
        )
        for source in (*found.added, *(one.source for one in found.changed)):
            source.url.get()
        return found

    def ask_lake(self, found: MapDifference) -> None:
        """Have the lake answer what is asked when sources have ended: where it does not, they had better go on.

        It is asked by the map's credentials of its catalog, which count from here on.

        Raises:
            LakeError: The lake does not answer, or lets nobody in by these credentials.
            MapBusy: Another process has taken a group since that was to be applied here.
            StateError: The coordinator does not answer.
        """
        if found.credentials is not None:
            self.lake.renew(found.credentials)
        if self._claims is not None and found.groups is not None:
            self._claims.claim(found.groups)
            self._adopt(found)
        self._sources.earlier.left((*found.added, *(one.source for one in found.changed)))

    @property
    def is_changing(self) -> bool:
        """Whether the last map is still being put into use."""
        return self._sources.is_changing

    def refuse_if_changing(self) -> None:
        """Raise unless another map can be taken over now.

        Raises:
            MapBusy: The last one is still being put into use, or kuvasz is not running yet, or no more.
        """
        if self.phase != "running" or self._sources.is_changing:
            raise MapBusy("the map before it is still being put into use", hint="try it again in a moment")

    def take_over(self, found: MapDifference, *, may_drop: bool | None = None) -> None:
        """Go by another map from now on; what comes of it is seen in the states of sources and tables.

        Args:
            found: What it has otherwise, as `difference` returned it a moment ago.
            may_drop: Whether slots and publications of sources go that leave; None: as `map.drop_removed` says.

        Raises:
            MapBusy: See `refuse_if_changing`.
        """
        self.refuse_if_changing()
        if found.groups_before != self.groups:
            raise MapBusy("other groups are applied here by now", hint="try it again in a moment")
        self.config, self.groups = found.config, found.groups
        self._workers.pace(found.config.pipeline.commit_interval)
        self._have_workers(found)
        tell = functools.partial(_tell_ended, self._claims, found.config)
        self._sources.change(map_change.take_over(self._sources, found, may_drop=may_drop, on_ended=tell))

    def _have_workers(self, found: MapDifference) -> None:
        """Have a worker for each pace that a map has, as far as there may be more of them."""
        pipeline, workers = found.config.pipeline, self._workers
        for routed_by, pace in config_sources.paces(found.mapped).items():
            if routed_by in workers.own or len(workers.own) >= config_sources.MOST_PACES:
                continue
            policy = _own_policy(pipeline, pace, len(workers.own) + 1)
            workers.add(routed_by, self._worker(len(workers.all), self._targets, policy), policy.bytes)

    def restart(self) -> None:
        """End all sources, and begin them again as a start does.

        Raises:
            MapBusy: See `refuse_if_changing`.
        """
        self.refuse_if_changing()
        earlier, everyone = self._sources.earlier, [sync.source.name for sync in self.sources]
        found = map_difference.difference(
            self.config, self.config, everyone, earlier.sids, groups=(self.groups, self.groups)
        )
        self.take_over(found, may_drop=False)

    def keep_orders(self) -> None:
        """Have no source read that is not in the map; blocks.

        Raises:
            StateError: The coordinator does not answer.
        """
        if self._staged is not None:
            self._staged.keep_orders([source.name for source in config_sources.resolve(self.config)])

    async def apply(self, groups: frozenset[str]) -> bool:
        """Apply these groups of the map, and no others; return whether of those that it has no more all has ended.

        Raises:
            MapBusy: See `refuse_if_changing`.
            StateError: The coordinator does not answer.
        """
        self.refuse_if_changing()
        found = await asyncio.to_thread(self._handed, groups)
        self.take_over(found, may_drop=False)
        while self.is_changing:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(_LOOK_S / 4)
        return self._sources.has_changed  # else it was cut off: the lease says when all has ended

    def _handed(self, groups: frozenset[str]) -> MapDifference:
        self.patterns.read_again()
        found = self._difference(self.patterns.applied(self.config), groups)
        self._adopt(found)
        return found

    def _adopt(self, found: MapDifference) -> None:
        """Go by what is known by now of sources that come from another process."""
        if found.added:
            self.states.read_notes_again()
            self.verdicts.read()
            if self._staged is not None:
                self._staged.adopt([source.name for source in found.added])

    def stop(self) -> None:
        """Begin to stop; call it from the loop."""
        self._stop.set()

    async def run(self, *, until_caught_up: bool = False) -> int:
        """Replicate until stopped; returns the exit code.

        Args:
            until_caught_up: End by itself when everything that the sources had at the start is durable, but for what
                waits for a person: the exit code is then that of the error.

        Raises:
            LakeError: The lake cannot be reached or written.
        """
        # asyncio's own is as small as the machine.
        pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="kuvasz")
        asyncio.get_running_loop().set_default_executor(pool)
        await asyncio.gather(asyncio.to_thread(self._open_lake), asyncio.to_thread(warm))
        try:
            if until_caught_up:
                self._workers.hurry()
            self._workers.start()
            async with self._traced(), asyncio.TaskGroup() as tasks:
                self._sources.begin(tasks)
                self.phase = "running"
                beside = [
                    tasks.create_task(patrol(self.lake, self._workers), name="lake patrol"),
                    tasks.create_task(spared.keep_small(), name="heap"),
                ]
                await self._watch(until_caught_up=until_caught_up)
                for task in beside:
                    task.cancel()
                self.phase = "stopping"
                await self._shut_down()
                if running := self._sources.running:  # else the map was just changing
                    _, late = await asyncio.wait(running, timeout=5)
                    for task in late:
                        task.cancel()
            is_job = until_caught_up or self._sources.shared.is_snapshot_only
            self.faults = self._sources.faults(is_job=is_job)
            return max((error.exit_code for error in self.faults), default=0)
        finally:
            if self._staged is not None:
                await asyncio.to_thread(self._staged.close)
            await asyncio.to_thread(self.lake.close)
            self.lot.close()

    @contextlib.asynccontextmanager
    async def _traced(self) -> AsyncIterator[None]:
        """Have traces sent while the body runs, if the map says so."""
        if self._tracing is None:
            yield
            return
        try:
            with self._tracing.hearing():
                yield
        finally:
            await asyncio.to_thread(self._tracing.end)

    def _open_lake(self) -> None:
        begin = time.monotonic()
        _log.tell(Event.LAKE_OPENING)
        if self._holds_lease and (secret := index_secret(self.config)) is not None:
            _share_seed(self.config.pipeline.state_folder / "index", secret)
        self.lake.open()
        if self._staged is not None:
            self._staged.open()
            self._staged.adopt([sync.mapped.name for sync in self.sources])
            if self._claims is None or self._claims.is_alone:
                self.keep_orders()
        elif self._holds_lease and (index := log_index(self.config)) is not None:
            index.retire()
        self._sources.earlier.begin(is_whole=self._claims is None or self._claims.has_all)
        seconds = round(time.monotonic() - begin, 1)
        _log.tell(Event.LAKE_OPEN, seconds=seconds)

    async def _watch(self, *, until_caught_up: bool) -> None:
        """Wait until told to stop, until there is nothing left to do, or until a worker dies."""
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stop.wait()
            self._catching_up.promote()
            # The JVM first: without it workers die of whatever they were doing.
            staging = None if self._staged is None else self._staged.writer.died
            for error in (self.lake.why_dead(), self._workers.died, staging, self._sources.why_misfit):
                if error is not None:
                    raise error
            if self._sources.are_hopeless:
                return
            if self._sources.shared.is_snapshot_only and self._sources.are_done:
                return
            if until_caught_up and self.is_shared_out and self._catching_up.is_done:
                _log.tell(Event.CAUGHT_UP)
                return

    async def _shut_down(self) -> None:
        self._sources.quiesce()
        await self._workers.stop(_STOP_S)
        failpoints.hit("shutdown")
        self._sources.stop()

    def _on_failure(self, failure: Failure) -> None:
        """Have a table tried again whose failure may pass; called from workers' threads."""
        of = {} if failure.source is None else {"source": failure.source}
        _log.tell(Event.TABLE_FAILED, table=failure.target, error=str(failure.error), **of)
        is_repaired = self.config.lake.on_lake_rewound is OnLakeRewound.REPAIR
        if failure.error.retry is Retry.TIMED or (isinstance(failure.error, LakeRewound) and is_repaired):
            for source in self.states.sources_of(failure.target) if failure.source is None else [failure.source]:
                sync = self._sources.find(source)
                # Else it has left the map, or has an error of its own.
                if sync is not None and self.states.get(failure.target, source).error is failure.error:
                    sync.commands.retry_later(names.member_name(failure.target, names.member_of(source)))

    def view(self) -> View:
        """Return what is going on."""
        return View(
            phase=self.phase,
            sources=tuple(
                source_view(sync, self.progress, is_ended=self._sources.is_ended(sync)) for sync in self.sources
            ),
            tables=tuple(self.states.snapshot()),
            waiting_bytes=self.budget.bytes,
            commit_conflicts=self.lake.commit_conflicts,
            upkeep=tuple(upkeep for _, upkeep in sorted(self.lake.maintenance.upkeep().items())),
            workers=self._workers.shared,
            own_workers=tuple(self._workers.own),
            routed_by=self._workers.routed_by,
            parked=self.lot.views(),
            released=tuple(source.name for source in self.released),
            staged=staged_view(self._staged),
            verdicts=self.verdicts.all(),
        )


def _policies(pipeline: PipelineConfig, paces: Sequence[float]) -> list[FlushPolicy]:
    """Return when each worker begins a mini-transaction: those that share all targets, and one for each pace."""
    shared = FlushPolicy(interval_s=pipeline.commit_interval, bytes=pipeline.commit_bytes)
    return [*[shared] * pipeline.workers, *(_own_policy(pipeline, pace, len(paces)) for pace in paces)]


def _own_policy(pipeline: PipelineConfig, pace: float, paces: int) -> FlushPolicy:
    """Return that of a pace of targets: what waits for all of these leaves three quarters of the room to others."""
    most = pipeline.most_waiting_bytes // (_SLOW_SHARE * paces)
    return FlushPolicy(interval_s=pace, bytes=min(pipeline.commit_bytes, most), eager_share=1)


def _staged(config: Config, sources: int, *, is_shared: bool) -> StagedLog | None:
    """Return what sources' changes are staged in; None if the map knows of no such log."""
    cluster, index = config.cluster, log_index(config)
    if cluster.log_location is None or index is None:
        return None
    store = ObjectFolder(cluster.log_location, store_access.of_lake(config.lake))
    return StagedLog(
        index, store, interval_s=cluster.log_interval, object_bytes=cluster.log_bytes, sources=sources,
        role=cluster.role, is_shared=is_shared, secrets=config.pipeline.sealing_secrets,
    )  # fmt: skip


def _share_seed(folder: Path, shared: SharedIndexSecret) -> None:
    """Have the indexes of this machine go by the secret of all; with one of its own it can read no other's."""
    with contextlib.suppress(OSError):  # the first table that is loaded says so
        index_seed.replace(folder, shared.agree(index_seed.secret_of(folder)))


def _tell_ended(claims: GroupClaims | None, config: Config) -> None:
    """Let others who apply know that nothing is applied here by another map any more; blocks."""
    if claims is not None:
        claims.follow(config)


def _tell_copying(source: str, table: str, done: int, total: int, rows: int) -> None:
    _log.tell(Event.COPYING, source=source, table=table, done=done, total=total, rows=rows)


__all__ = ["App"]
