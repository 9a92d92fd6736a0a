"""One source, from nothing to streaming, and back there after every failure.

    connect ─> look at tables ─> publication ─> slot ─┬─ new: copy all tables from its snapshot ──> reader
                                                      └─ known: reader ── copy new tables beside it

A table that is copied while the stream runs is *held*: nothing beyond the stream's place at that time is confirmed.
When its copy is committed, the reader goes back to the confirmed LSN; every other table skips what it has by its
position (invariant 3 in ARCHITECTURE.md), this one begins at the position of its snapshot.

Commands (pause, resume, retry, resync) change what is wanted of a table and put it into one queue; `_readmit` looks
at it anew and brings it back by what it lacks: a copy, or the stream from its position on. What is wanted survives a
restart (`kuvasz.state.notes`, and for a table that is to be copied again: the position that is gone from the lake).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kuvasz import failpoints, lsn
from kuvasz.config import names
from kuvasz.config.model import OnSlotLost
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ConfigError,
    CopyNeeded,
    ExpressionRefused,
    InternalError,
    KuvaszError,
    LakeError,
    MapMismatch,
    ParkedLost,
    SchemaError,
    SchemaHeld,
    SlotLost,
    SourceError,
    SourceRefused,
    StateError,
    TableError,
)
from kuvasz.model import PgType, Position, TableName, TableType
from kuvasz.ports import Inbox
from kuvasz.route.hashing import worker_of
from kuvasz.source import (
    conninfo,
    continuity,
    failure,
    inserts,
    introspect,
    partitions,
    publication,
    slots,
    snapshot,
)
from kuvasz.source.look import wal_end
from kuvasz.source.reader import Reader, ReaderOptions
from kuvasz.source.table import SourceTable, TableKind
from kuvasz.state.standing import Standing, StandingFile
from kuvasz.state.tables import State
from kuvasz.sync import fitness, keyless, lost
from kuvasz.sync.consent import Consent
from kuvasz.sync.forgetting import Forgetting
from kuvasz.sync.lifetime import Lifetime
from kuvasz.sync.member_watch import MemberWatch
from kuvasz.sync.parking import Neighbours, Parking
from kuvasz.sync.plan import copy_ranges
from kuvasz.sync.requests import Requests
from kuvasz.sync.roster import Roster
from kuvasz.sync.schema_watch import SchemaWatch, tell
from kuvasz.sync.surroundings import Surroundings
from kuvasz.sync.targets import feed_of, narrowed

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.5
_LAST_BACKOFF_S = 30.0

#: Seconds between two looks whether tables that wait may be streamed.
_LOOK_S = 1.0

#: Seconds between two looks at the partitions of partitioned tables.
_PARTITIONS_S = 5.0
#: Between two looks at what the stream does not tell: a table that was dropped, or that lost or got its key.
PATROL_S = 30.0

#: Between looks at what a person wants while a source waits for that.
_WAIT_S = 0.2

#: The first version of servers that keep slots of theirs on standbys. Without a standby that changes nothing.
_FAILOVER_SINCE = 170000

#: Bytes at the source of one range of a copy: some seconds of work, so that progress shows and load spreads.
_RANGE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What was found and done before the stream begins."""

    tables: tuple[tuple[SourceTableSpec, SourceTable], ...]  #: usable ones
    snapshot: slots.ExportedSnapshot | None  #: of a slot that was created just now
    publications: tuple[str, ...]
    is_waiting: bool  #: tables wait until the stream may name the publication of INSERTs alone
    system_id: str


class SourceSync:
    """Keeps one source replicated until `stop`.

    Args:
        source: From the map.
        around: What all sources share.
    """

    def __init__(self, source: Source, around: Surroundings) -> None:
        self._lifetime = Lifetime()
        self._roster = Roster(source, around.lake, around.states, around.progress)
        self._requests = Requests(self._roster, self._lifetime)
        self._consent = Consent(around.mask_secret)
        self.error: KuvaszError | None = None  #: why it does not stream now
        self.target_lsn: int | None = None  #: where the source's WAL ended when it was first reached
        self.reader: Reader | None = None
        self._around = around
        self._url = source.url.get()
        self._slot = source.object_name
        self._epoch = 0  #: of the last connection: numbers are never used twice
        self.retry_at: float | None = None  #: monotonic seconds of the next attempt, while it waits for that
        self.is_lost = False  #: its stream cannot be continued, and it waits for a person
        self._is_starting_over = False
        self._standing = StandingFile(around.state_folder, source.name)
        self._unprepared: set[str] = set()  #: those that the lake would not take: what it has of them is unknown
        self._due: asyncio.Queue[SourceTableSpec] = asyncio.Queue()  #: to be copied beside the stream
        self._unread: set[str] = set()  #: partitions that the role may not read
        self._unfit: set[str] = set()  #: those whose source table cannot be replicated as it is
        self._replay: Callable[[str], None] = lambda _: None  #: begins a task of the stream's
        self._watch = SchemaWatch(
            source,
            around.lake,
            around.states,
            target_of=self._consent.target_of,
            checked=functools.partial(fitness.checked, source.name),
            on_trouble=self._on_trouble,
            on_followed=self._consent.followed,
        )
        self._members = MemberWatch(
            source,
            around.lake,
            around.states,
            around.progress,
            settle=self._settle,
            readmit=self._requests.send,
        )
        self.parking = Parking(
            source,
            Neighbours(
                lot=around.lot, lake=around.lake, progress=around.progress, budget=around.budget,
                states=around.states, inbox_of=self._inbox_of, number=self._watch.follow, fail=self._roster.fail,
                copy_again=lambda spec: self._forgetting.make_room(spec),  # noqa: PLW0108 (it is made below)
                confirmed_lsn=lambda: self._standing.standing.confirmed_lsn,
            ),
        )  # fmt: skip
        self._forgetting = Forgetting(
            around, self._roster, self._requests, drop_parked=self.parking.drop, settle=self._settle
        )

    @property
    def source(self) -> Source:
        """Of the map, with the tables that its collapses take in, as last seen."""
        return self._roster.source

    @property
    def has_started(self) -> bool:
        """Whether it passed its checks at least once."""
        return self._lifetime.has_started

    @property
    def is_streaming(self) -> bool:
        """Whether the reader runs and every table is past its copy or in error."""
        settled = {State.STREAMING, State.CATCHING_UP, State.ERROR, State.PAUSED}
        mine = [state for state in self._around.states.snapshot() if state.database == self.source.name]
        is_settled = self.reader is not None and all(state.state in settled for state in mine)
        return is_settled and not self.parking.is_replaying

    async def run(self) -> None:
        """Replicate until stopped. When the stream is lost, it waits for a person, or begins again by itself.

        Raises:
            ConfigError: The map does not fit the source.
        """
        self._lifetime.begin()
        try:
            await self._replicate()
        finally:
            self._standing.close()

    async def _replicate(self) -> None:
        wait = _FIRST_BACKOFF_S
        while not self._lifetime.is_ending:
            begin = time.monotonic()
            try:
                await self._once()
            except (KuvaszError, BaseExceptionGroup) as caught:
                error = _ours(caught)
                self.error = error
                self.reader = None
                if isinstance(error, ConfigError):
                    raise error from caught
                if isinstance(error, SlotLost):
                    await self._lost(error)
                    continue
                _log.warning("a source is not replicated now", extra={
                    "event": "source_failed", "source": self.source.name, "error": str(error)})  # fmt: skip
            if time.monotonic() - begin > _LAST_BACKOFF_S:
                wait = _FIRST_BACKOFF_S
            if not self._lifetime.is_ending:
                pause = wait * (0.5 + random.random())  # noqa: S311 (jitter)
                self.retry_at = time.monotonic() + pause
                await self._lifetime.sleep(pause)
                self.retry_at = None
            wait = min(2 * wait, _LAST_BACKOFF_S)

    async def _lost(self, error: SlotLost) -> None:
        """Have everything copied again, if the map or a person says so; without a word, wait."""
        if self.source.on_slot_lost is not OnSlotLost.STOP or self._is_resync_wanted():
            what = "compared with the lake" if self.source.on_slot_lost is OnSlotLost.REPAIR else "copied again"
            _log.warning("the stream was lost: the source is %s", what, extra={
                "event": "slot_lost", "source": self.source.name, "error": str(error)})  # fmt: skip
        else:
            _log.error("a source stops", extra={
                "event": "source_stopped", "source": self.source.name, "error": str(error)})  # fmt: skip
            self.is_lost = True
            while not self._lifetime.is_ending and not self._is_resync_wanted():
                await self._lifetime.sleep(_WAIT_S)
            self.is_lost = self._lifetime.is_ending
        if self._lifetime.is_ending:
            return
        self.error = None  # it is cured by what comes now; an error that stays would be taken for hopeless
        self._is_starting_over = True
        await self._lifetime.sleep(_FIRST_BACKOFF_S)

    def _is_resync_wanted(self) -> bool:
        """Whether every table is to be copied again, so that nothing of the old stream is needed."""
        due = [self._roster.look(spec).is_resync_due for spec in self.source.tables]
        has_rows = [self._roster.position(spec) is not None for spec in self.source.tables]
        return any(due) and all(is_due or not has for is_due, has in zip(due, has_rows, strict=True))

    def quiesce(self) -> None:
        """Stop reading, go on confirming."""
        self._lifetime.end()
        if self.reader is not None:
            self.reader.quiesce()

    def stop(self) -> None:
        """Confirm what is durable and end."""
        self._lifetime.end()
        if self.reader is not None:
            self.reader.stop()

    async def _once(self) -> None:
        await self._leave_stream()
        if self._is_starting_over:
            await asyncio.to_thread(self._start_over)
            self._is_starting_over = False
        start = await asyncio.to_thread(self._start)
        self.error = None
        self._lifetime.has_started = True
        new = [
            spec
            for spec, _ in start.tables
            if self._roster.position(spec) is None and not self._roster.is_paused(spec)
        ]
        try:
            if start.snapshot is not None:
                for spec in new:
                    async with self._around.copies:
                        await self._copy(spec, start.snapshot, start.system_id)
                new = []
        finally:
            if start.snapshot is not None:
                start.snapshot.close()
        streamed = {spec.key for spec, _ in start.tables}
        for spec in self.source.tables:
            self._begin(spec, is_streamed=spec.key in streamed)
        await self._stream(start, [spec for spec in new if self._roster.state(spec) is not State.ERROR])

    async def _leave_stream(self) -> None:
        """Cut what an earlier connection delivered off: the next one brings it again, and tables may change hands."""
        # Before a hold is released: until the next connection nothing counts as received beyond the confirmable LSN.
        self._epoch += 1
        self._around.progress.restarted(self.source.name, self._epoch)
        for spec in self.source.tables:
            if self._roster.is_streaming(spec):
                if self._is_parked(spec):  # it is to be replayed first, from where it is then
                    self._roster.set(spec, State.NEW)
                else:
                    self._around.states.activate(spec.identifier, self._roster.name(spec), self._epoch + 1)
            await self._around.settle(spec.identifier)

    def _begin(self, spec: SourceTableSpec, *, is_streamed: bool) -> None:
        """Let a table follow the stream that is about to begin, or hold the source if it is needed later."""
        target = spec.identifier
        is_stopped = self._roster.state(spec) in {State.PAUSED, State.ERROR}
        if self._roster.position(spec) is not None and self._is_parked(spec):
            self._roster.hold(spec)
            self.parking.begin(target, self._epoch + 1)
            if is_streamed and not is_stopped:
                self._requests.add(target)
        elif self._roster.position(spec) is not None and is_streamed and not is_stopped:
            self._roster.hold(spec)
            if self._activate(spec, self._epoch + 1):
                self._roster.release(spec)
        elif self._roster.position(spec) is not None or self._is_unknown(spec) or (is_streamed and not is_stopped):
            # Also for a table that is still to be copied: what is confirmed is in the lake, in every table. One that
            # waits for its publication is not published yet: nothing that comes now is needed for it.
            self._roster.hold(spec)
        else:
            self._roster.release(spec)

    def _is_parked(self, spec: SourceTableSpec) -> bool:
        """Whether a table lacks what is parked of it; the changes of members wait at the source."""
        return not spec.member and self.parking.has(spec.identifier)

    def _is_unknown(self, spec: SourceTableSpec) -> bool:
        """Whether nobody knows if the lake has rows of a table; of a member's target another one may have told."""
        return spec.key in self._unprepared and not (spec.member and self._around.lake.positions(spec.identifier))

    def _activate(self, spec: SourceTableSpec, epoch: int) -> bool:
        """Let a table follow from a connection on; returns whether it does.

        Meanwhile it may have failed by another source's changes. Such a failure reaches the sources that follow, so
        it is asked for when this one does: else its changes would be ignored and count as durable.
        """
        states, target, name = self._around.states, spec.identifier, self._roster.name(spec)
        states.activate(target, name, epoch)
        error = self._around.lake.failure(target)
        if error is not None:
            states.set(target, name, State.ERROR, error)
            self._requests.send_later(spec)
        return states.is_streaming(target, name)

    async def _stream(self, start: _Start, new: Sequence[SourceTableSpec]) -> None:
        around = self._around
        reader = Reader(
            self.source.name,
            conninfo.replication_conninfo(self._url),
            self._slot,
            ",".join(start.publications),
            routes=around.routes,
            inboxes=around.inboxes,
            progress=around.progress,
            budget=around.budget,
            types=self._types,
            follow=self._watch.follow,
            system_id=start.system_id,
            standing=self._standing,
            applied_lsn=self._applied_lsn,
            options=ReaderOptions(spill_bytes=around.spill_bytes, gulp_bytes=around.gulp_bytes),
        )
        reader.epoch = self._epoch
        self.reader = reader
        self._is_starting = False
        if self._lifetime.is_ending:
            return
        self._due = asyncio.Queue()
        for spec in new:
            self._due.put_nowait(spec)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._copy_beside(reader, start.system_id), name=f"copy {self._slot}"),
                tasks.create_task(self._readmit_all(reader), name=f"readmit {self._slot}"),
                tasks.create_task(self._await_inserts(reader, start), name=f"inserts {self._slot}"),
                tasks.create_task(self._watch_partitions(), name=f"partitions {self._slot}"),
                tasks.create_task(self._patrol(), name=f"patrol {self._slot}"),
                tasks.create_task(self.parking.watch(reader), name=f"park {self._slot}"),
            ]
            self._replay = lambda target: beside.append(
                tasks.create_task(self._replay_one(self._roster.spec(target), reader), name=f"replay {target}")
            )
            try:
                await reader.run()
            finally:
                self.reader = None
                self._epoch = reader.epoch
                for task in beside:
                    task.cancel()

    async def _patrol(self) -> None:
        """Look now and then at what the stream does not tell."""
        while not self._lifetime.is_ending:
            await self._lifetime.sleep(PATROL_S)
            try:
                is_fit = await asyncio.to_thread(self._watch.patrol, lambda spec: spec.key in self._unfit)
            except KuvaszError as error:  # the stream itself will tell, if it lasts
                _log.debug("the catalog cannot be looked at", extra={
                    "event": "patrol_failed", "source": self.source.name, "error": str(error)})  # fmt: skip
            else:
                for key in tuple(self._unfit) if is_fit else ():
                    self._requests.add(key)

    async def _await_inserts(self, reader: Reader, start: _Start) -> None:
        """Begin again when the stream may name the publication of INSERTs alone, and tables wait for that."""
        while start.is_waiting:
            await self._lifetime.sleep(_LOOK_S)
            from_lsn = await asyncio.to_thread(self._inserts_since)
            if from_lsn is not None and reader.confirmed_lsn >= from_lsn and not self._roster.is_copying:
                reader.stop()
                return

    def _inserts_since(self) -> int | None:
        try:
            with contextlib.closing(conninfo.connect(self._url)) as connection:
                return inserts.since(connection, inserts.object_name(self._slot))
        except SourceError:
            return None  # the reader finds out that the source is gone

    async def _watch_partitions(self) -> None:
        """Look now and then which partitions, and members of collapses, came and went: the stream does not tell."""
        while True:
            await asyncio.sleep(_PARTITIONS_S)
            try:
                await asyncio.to_thread(self._look_at_partitions)
            except KuvaszError as error:
                _log.debug("the partitions could not be looked at", extra={
                    "event": "partitions_unseen", "source": self.source.name, "error": str(error)})  # fmt: skip

    async def _copy_beside(self, reader: Reader, system_id: str) -> None:
        """Copy tables beside the running stream, each with a snapshot of its own."""
        while True:
            spec = await self._due.get()
            await self._copy_one(spec, system_id)
            if self._roster.look(spec).is_resync_due:
                self._requests.add(spec.key)
            elif self._roster.is_paused(spec):
                self._roster.set(spec, State.PAUSED)
            elif self._roster.position(spec) is not None and self._roster.state(spec) is not State.ERROR:
                await self._rejoin([spec], reader)

    async def _copy_one(self, spec: SourceTableSpec, system_id: str) -> None:
        """Copy a table unless it has its rows, is paused or in error; connections that fail are tried again."""
        around, name = self._around, self._roster.name(spec)
        wait = _FIRST_BACKOFF_S
        while self._roster.position(spec) is None and self._roster.state(spec) not in {State.PAUSED, State.ERROR}:
            try:
                async with around.copies:
                    self._roster.hold(spec)
                    with await asyncio.to_thread(self._temporary_snapshot, spec) as taken:
                        await self._copy(spec, taken, system_id)
            except SourceError as error:
                _log.warning("a copy failed and is tried again", extra={
                    "event": "copy_retry", "source": name, "table": str(spec.table),
                    "error": str(error)})  # fmt: skip
                around.states.retry_at(spec.identifier, name, time.monotonic() + wait)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LAST_BACKOFF_S)
                with contextlib.suppress(SourceError, LakeError):  # its columns may be what changed
                    await asyncio.to_thread(self._look, spec)
        if self._roster.position(spec) is None:
            self._roster.release(spec)

    # Commands: called on the loop

    # A table is named by its target, and one of several that are one target by `SourceTableSpec.key`.

    def pause(self, key: str) -> None:
        """Have a table stay where it is, and its changes at the source; the others go on."""
        spec = self._roster.spec(key)
        if self._roster.position(spec) is not None:
            # First: once it is paused, its changes are no longer applied.
            self._roster.hold(spec)
        self._around.states.pause(spec.identifier, self._roster.name(spec))

    def resume(self, key: str) -> None:
        """Let a paused table follow again, from where it is."""
        spec = self._roster.spec(key)
        self._around.states.unpause(spec.identifier, self._roster.name(spec))
        self._requests.add(key)

    def retry(self, key: str) -> None:
        """Try a table again that is in error, or waits for a person before it follows a change of its columns."""
        spec = self._roster.spec(key)
        self._requests.mended(key)
        self._consent.give(key, self._roster.look(spec).error)
        self._requests.add(key)

    def resync(self, key: str) -> None:
        """Copy a table again beside the stream; its rows in the lake stay until the new ones replace them at once.

        Survives a restart. Now if the source streams, else with its next start; a paused table waits until it is
        resumed. Safe in any state, also when the table was dropped from the lake.
        """
        spec = self._roster.spec(key)
        self._roster.resync(spec, is_due=True)
        self._requests.add(key)

    async def _readmit_all(self, reader: Reader) -> None:
        """Bring tables back that were paused, in error, or are to be copied again."""
        while True:
            ready = []
            for spec in self._roster.known(await self._requests.next()):
                async with self.parking.moving:
                    if await self._readmit(spec):
                        ready.append(spec)
            if ready:
                await self._rejoin(ready, reader)

    async def _readmit(self, spec: SourceTableSpec) -> bool:
        """Look at a table anew and have it copied if need be; returns whether it can follow the stream as it is."""
        target, name = spec.identifier, self._roster.name(spec)
        state = self._around.states.get(target, name)
        is_busy = state.state is State.COPYING or (
            state.state in {State.CATCHING_UP, State.STREAMING} and not state.is_resync_due
        )
        if is_busy or state.is_paused:
            return False  # what copies looks itself whether there is more to be done
        _log.info("a table is taken up again", extra={
            "event": "readmitted", "source": name, "table": target, "resync": state.is_resync_due})  # fmt: skip
        self._roster.hold(spec)
        if state.state in {State.CATCHING_UP, State.STREAMING}:
            self._around.states.set(target, name, State.NEW)
        try:
            await self._around.settle(target)
            is_usable = await asyncio.to_thread(self._look, spec)
        except (SourceError, LakeError, StateError) as error:
            self._refuse(spec, error)
            return False
        if not is_usable:
            if spec.member and self._roster.position(spec) is None and not self._is_unknown(spec):
                self._roster.release(spec)  # a newcomer that is refused holds nobody up
            return False
        if keyless.has_only_inserts(self._roster.tables[spec.key]):
            self._begin_again()  # whether the stream may name its publication is found out there
            return False
        if self._roster.position(spec) is None:
            self._due.put_nowait(spec)
            return False
        return True

    def _begin_again(self) -> None:
        """Leave the stream and look at everything anew, when no copy is torn by that."""
        if self._roster.is_copying:
            self._lifetime.call_later(_LOOK_S, self._begin_again)
        elif self.reader is not None:
            self.reader.stop()

    async def _rejoin(self, specs: Sequence[SourceTableSpec], reader: Reader) -> None:
        """Let tables follow the stream again from their positions on: the reader goes back to the confirmed LSN.

        What is parked of a table comes first, in a task of its own.
        """
        around = self._around
        for spec in specs:
            target = spec.identifier
            self._roster.hold(spec)
            if around.lake.failure(target) is not None:
                await around.settle(target)
                await asyncio.to_thread(around.lake.resume, target)
            if self._is_parked(spec):
                self._replay(target)
        specs = [spec for spec in specs if not self._is_parked(spec)]
        if not specs:
            return
        epoch = reader.epoch + 1
        for spec in specs:
            self._activate(spec, epoch)
        reader.rewind()
        while reader.epoch < epoch and reader is self.reader and not self._lifetime.is_ending:
            await self._lifetime.sleep(0.05)
        if reader is not self.reader:
            return  # the source begins anew: it looks at all of its tables
        for spec in specs:
            # Else it was paused again or has failed: its changes are still needed.
            if self._roster.is_streaming(spec):
                self._requests.mended(spec.key)
                self._roster.release(spec)

    async def _replay_one(self, spec: SourceTableSpec, reader: Reader) -> None:
        if await self.parking.replay(
            spec, reader, lambda target, epoch: self._activate(self._roster.spec(target), epoch)
        ):
            self._requests.mended(spec.key)

    def _inbox_of(self, target: str) -> Inbox:
        return self._around.inboxes[worker_of(target, len(self._around.inboxes))]

    def _on_trouble(self, spec: SourceTableSpec, error: TableError) -> None:
        """Take a table out of the stream because of what happened to it at the source; from any thread."""
        # Hold first: what comes from now on is not applied, and must come again.
        self._roster.hold(spec)
        if isinstance(error, CopyNeeded):
            self._roster.resync(spec, is_due=True)
            self._roster.set(spec, State.NEW)
            _log.info("a table is copied again", extra={
                "event": "copied_again", "source": self.source.name, "table": spec.identifier,
                "reason": error.message})  # fmt: skip
        else:
            self._roster.fail(spec, error)
        if not isinstance(error, SchemaHeld):
            self._requests.send(spec.key)

    def retry_later(self, key: str) -> None:
        """Try a table again by itself after a while, longer each time; called from any thread."""
        for spec in self._roster.known([key]):
            self._requests.send_later(spec)

    # In threads

    def _start(self) -> _Start:
        with (
            contextlib.closing(conninfo.connect(self._url)) as connection,
            failure.translated(f"source {self.source.name}", "look at the database"),
        ):
            facts = introspect.server(connection)
            if facts.wal_level != "logical":
                raise SourceRefused(
                    f"source {self.source.name}: wal_level is {facts.wal_level}, needed is logical",
                    hint="ALTER SYSTEM SET wal_level = logical; then restart the server",
                )
            if self.target_lsn is None:
                (row,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                self.target_lsn = lsn.parse(row[0])
            seen_at = wal_end(connection)
            self._take_members(connection)
            found = introspect.load_relations(connection, [spec.table for spec in self.source.tables])
            usable = [
                (spec, table) for spec in self.source.tables if (table := self._usable(spec, found)) is not None
            ]
            self._roster.tables = {spec.key: table for spec, table in usable}
            prepared = [(spec, table) for spec, table in usable if self._prepare(spec, table, seen_at)]
            self._watch.begin(prepared, seen_at)
            ready = {spec.key for spec, _ in prepared}
            held = [spec for spec, _ in usable if self._roster.state(spec) is State.PAUSED and spec.key not in ready]
            if not prepared and not held and self.source.tables:  # without any, members of a collapse may come
                if publication.load(connection, self._slot) is not None:
                    # A table without key must not stay published: the application's own UPDATE would fail.
                    self._publish_all(connection, usable, [])
                told = [str(state.error) for state in self._around.states.snapshot()
                        if state.database == self.source.name and state.error is not None]  # fmt: skip
                why = told[0] if told else "they are paused, and the lake does not take them"
                raise SourceRefused(f"source {self.source.name}: none of its tables can be replicated: {why}")
            system_id = str(facts.system_identifier)
            self._check_partitions(connection, prepared)
            has_slot = self._check_slot(connection, [*(spec for spec, _ in prepared), *held], facts)
            self._members.forget_gone(self.source)
            partial = self._publish_all(connection, usable, [spec for spec, _ in prepared])
            # After the publications: they must be there at the slot's first LSN.
            taken = None
            if not has_slot:
                can_fail_over = facts.version >= _FAILOVER_SINCE and not facts.is_in_recovery
                taken = self._new_slot(self._slot, temporary=False, failover=can_fail_over)
                self._standing.update(Standing(system_id=system_id, confirmed_lsn=taken.consistent_point))
            name = inserts.object_name(self._slot)
            is_named = bool(partial) and self._may_name(connection, name, taken)
            streamed = [(spec, table) for spec, table in prepared if is_named or not keyless.has_only_inserts(table)]
            return _Start(
                tables=tuple(streamed), snapshot=taken, system_id=system_id,
                publications=(self._slot, *([name] if is_named else [])), is_waiting=bool(partial) and not is_named,
            )  # fmt: skip

    def _publish_all(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        usable: Sequence[tuple[SourceTableSpec, SourceTable]],
        specs: Sequence[SourceTableSpec],
    ) -> Sequence[SourceTable]:
        """Make both publications fit; returns the tables of which only INSERTs are published."""
        # A column list made by hand may leave out what the map does.
        full = [_narrowed(spec, table) for spec, table in usable if not keyless.has_only_inserts(table)]
        partial = [_narrowed(spec, table) for spec, table in usable if keyless.has_only_inserts(table)]
        self._publish(connection, self._slot, full, specs)
        name = inserts.object_name(self._slot)
        if partial or publication.load(connection, name) is not None:
            self._publish(connection, name, partial, specs, inserts.OPERATIONS)
        return partial

    def _may_name(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        taken: slots.ExportedSnapshot | None,
    ) -> bool:
        """Whether the stream may name the publication of INSERTs alone from where it goes on."""
        if taken is not None:
            inserts.mark(connection, name, taken.consistent_point)
            return True
        from_lsn = inserts.since(connection, name)
        state = slots.describe(connection, self._slot)
        confirmed = None if state is None else state.confirmed_flush_lsn
        return from_lsn is not None and confirmed is not None and confirmed >= from_lsn

    def _look(self, spec: SourceTableSpec) -> bool:
        """Look at one table anew, beside the stream; returns whether it can be replicated.

        Raises:
            SourceError: The source does not answer.
            LakeError: The lake does not.
        """
        with (
            contextlib.closing(conninfo.connect(self._url)) as connection,
            failure.translated(f"source {self.source.name}", f"look at table {spec.table}"),
        ):
            seen_at = wal_end(connection)
            table = self._usable(spec, introspect.load_relations(connection, [spec.table]))
            if table is None:
                self._roster.tables.pop(spec.key, None)
            else:
                self._roster.tables[spec.key] = table
            is_ready = table is not None and self._prepare(spec, table, seen_at)
            if is_ready and table is not None:
                self._watch.begin([(spec, table)], seen_at)
                self._check_partitions(connection, [(spec, table)])
                is_ready = self._roster.state(spec) is not State.ERROR
            usable = [(one, self._roster.tables[one.key]) for one in self._roster.known(tuple(self._roster.tables))]
            self._publish_all(connection, usable, [spec] if is_ready else [])
            return is_ready

    def _publish(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        tables: Sequence[SourceTable],
        specs: Sequence[SourceTableSpec],
        operations: Sequence[str] = publication.ALL_OPERATIONS,
    ) -> None:
        """Make a publication fit; tables that were copied once and are not in it now missed changes."""
        planned = publication.plan(publication.load(connection, name), name, tables, operations)
        for spec in self.source.tables:
            if spec.table in planned.added and self._roster.position(spec) is not None:
                _log.warning("a table was not published for a while and is copied again", extra={
                    "event": "copied_again", "source": self.source.name, "table": spec.identifier})  # fmt: skip
                # Before it is published again: after a crash nothing else would tell of the gap.
                if spec in specs:
                    self._forgetting.forget(spec)
                else:  # it streams beside what is looked at
                    self._roster.resync(spec, is_due=True)
                    self._requests.send(spec.key)
        done = publication.carry_out(connection, name, planned)
        if done.statements or done.tidying:
            _log.info("publication changed", extra={"event": "publication", "source": self.source.name,
                      "statements": [*done.statements, *done.tidying]})  # fmt: skip

    def _usable(self, spec: SourceTableSpec, found: Mapping[TableName, SourceTable]) -> SourceTable | None:
        try:
            table = fitness.checked(self.source.name, spec, found.get(spec.table))
        except TableError as error:
            self._unfit.add(spec.key)
            known = self._roster.look(spec).error
            # Whoever saw it go knows more of it: that it was renamed, and to what.
            self._refuse(spec, known if spec.table not in found and isinstance(known, SchemaError) else error)
            return None
        self._unfit.discard(spec.key)
        return table

    def _prepare(self, spec: SourceTableSpec, table: SourceTable, at: int) -> bool:
        lake = self._around.lake
        try:
            if self._roster.look(spec).is_resync_due and not self._roster.is_paused(spec):
                self._forgetting.forget(spec)
            done = lake.prepare(self._consent.target_of(spec), feed_of(self.source, spec), table.relation)
            tell(self.source, spec, done, at)
            self._admit(spec)
        except TableError as error:
            if isinstance(error, ExpressionRefused) and not self._lifetime.has_started:
                raise MapMismatch(
                    error.message, hint=error.hint, database=self.source.database, table=str(spec.table),
                    option=error.option,
                ) from error  # fmt: skip
            self._unprepared.add(spec.key)
            self._refuse(spec, error)
            return False
        self._unprepared.discard(spec.key)
        self._consent.followed(spec)
        if spec.member:
            try:
                self._members.note(self.source, spec)
            except SchemaError as error:
                self._refuse(spec, error)
                return False
        if lake.failure(spec.identifier) is not None:
            # The lake ignores what is written behind a failure: it must know that the table begins again, but not
            # before the worker has taken notice, for all of its sources.
            self._settle(spec.identifier)
            lake.resume(spec.identifier)
        is_waiting = self._roster.is_paused(spec) and self._roster.position(spec) is None  # and may say why
        if self._roster.state(spec) in {State.ERROR, State.PAUSED} and not is_waiting:
            self._roster.set(spec, State.NEW)
        self._roster.mended(spec)
        return True

    def _admit(self, spec: SourceTableSpec) -> None:
        """Find what is parked of a table; have it copied again if that is gone and the map says so.

        Raises:
            ParkedLost: It is gone.
        """
        try:
            if not spec.member:
                self.parking.admit(spec)
        except ParkedLost as error:
            if self.source.on_slot_lost is not OnSlotLost.RESYNC or self._roster.is_paused(spec):
                raise
            _log.warning("parked changes were lost: the table is copied again", extra={
                "event": "copied_again", "source": self.source.name, "table": spec.identifier,
                "error": str(error)})  # fmt: skip
            self._forgetting.forget(spec)

    def _look_at_partitions(self) -> None:
        roots = [
            (spec, self._roster.tables[spec.key])
            for spec in self._roster.known(tuple(self._roster.tables))
            if self._roster.tables[spec.key].kind is TableKind.PARTITIONED
        ]
        if not roots and not self._members.has_any:
            return
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            if self._members.has_any:
                self._take_members(connection)
                self._members.forget_gone(self.source)
            self._check_partitions(connection, roots)

    def _take_members(self, connection: Any) -> None:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Take over which tables the collapses of the map take in now."""
        before, self._roster.source = self.source, self._members.look(connection)
        self._watch.know(self.source)
        try:
            self._members.take(before, self.source, is_streaming=self.reader is not None)
        except BaseException:
            self._roster.source = before  # else the next look would find nothing new, and nobody take them up
            raise
        present = {spec.key for spec in self.source.tables}
        for key in [key for key in self._roster.tables if key not in present]:
            self._roster.tables.pop(key, None)

    def _check_partitions(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        tables: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Stop tables that were given partitions with rows in them: those rows are in no stream."""
        states = {State.COPYING, State.ERROR, State.PAUSED}
        roots = {
            table.relation.oid: spec
            for spec, table in tables
            if table.kind is TableKind.PARTITIONED
            and self._roster.position(spec) is not None
            and self._roster.state(spec) not in states
        }
        for oid, found in partitions.load(connection, roots).items() if roots else ():
            spec = roots[oid]
            known = self._around.lake.parts(spec.identifier, self._roster.name(spec))
            now = frozenset(partition.links for partition in found)
            fresh = [partition for partition in found if known is not None and partition.links not in known]
            filled = {part: self._is_filled(connection, spec, part) for part in fresh}
            if any(filled.values()):
                self._stop_for(spec, [str(part.table) for part, is_filled in filled.items() if is_filled])
                continue
            now -= {part.links for part, is_filled in filled.items() if is_filled is None}
            if known is not None and known - now:
                _log.warning("a partition left its table; its rows stay in the lake", extra={
                    "event": "partition_left", "source": self.source.name, "table": str(spec.table),
                    "target": spec.identifier, "partitions": len(known - now)})  # fmt: skip
            if known != now:
                self._around.lake.remember_parts(spec.identifier, self._roster.name(spec), now)

    def _is_filled(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        spec: SourceTableSpec,
        partition: partitions.Partition,
    ) -> bool | None:
        """Say whether a new partition was attached with rows in it; None: it cannot be read, and is asked again."""
        try:
            return partitions.has_earlier_rows(connection, partition)
        except SourceRefused as error:
            if partition.links not in self._unread:
                self._unread.add(partition.links)
                _log.warning("a new partition cannot be read; nobody knows whether it was attached with rows", extra={
                    "event": "partition_unread", "source": self.source.name, "table": str(spec.table),
                    "partition": str(partition.table), "error": str(error)})  # fmt: skip
            return None

    def _stop_for(self, spec: SourceTableSpec, names: Sequence[str]) -> None:
        message = (
            f"source {self.source.name}, table {spec.table}: partition {', '.join(names)} was attached with rows in"
            " it, which the stream does not carry"
        )
        error = TableError(message, hint=f"copy the table again: kuvasz resync --table {spec.identifier}")
        # Hold first: what is dropped from now on must come again.
        self._roster.hold(spec)
        self._roster.set(spec, State.ERROR, error)
        _log.error("a table stops", extra={
            "event": "table_failed", "source": self.source.name, "table": spec.identifier,
            "error": str(error)})  # fmt: skip

    def _settle(self, target: str) -> None:
        self._lifetime.complete(self._around.settle(target))

    def _check_slot(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Sequence[SourceTableSpec],
        facts: introspect.ServerFacts,
    ) -> bool:
        """Return whether there is a slot that the lake's positions can go on from; False: nothing was copied yet.

        Raises:
            SlotLost: The source does not go on from where the lake stands.
            SourceError: It is in use.
        """
        system_id, name = str(facts.system_identifier), self.source.name
        known = [(spec, position) for spec in specs if (position := self._roster.position(spec)) is not None]
        for spec, position in (*known, *self._positions_of_members(specs)):
            if position.system_id and position.system_id != system_id:
                raise SlotLost(
                    f"source {name}: cluster {system_id} answers, but table {spec.identifier} holds rows"
                    f" of cluster {position.system_id}",
                    hint=f"check the url; if the cluster was replaced: {continuity.RESYNC_HINT}",
                )
        state = slots.describe(connection, self._slot)
        if state is not None and state.why_foreign:
            raise SlotLost(
                f"source {name}: slot {self._slot} cannot be used: {state.why_foreign}",
                hint=f"drop it (SELECT pg_drop_replication_slot('{self._slot}')) and start again",
            )
        if known:
            self._compare(connection, state, facts)
        elif state is not None and state.why_lost:
            slots.drop(connection, self._slot)
            return False
        if state is None:
            return False
        if state.active_pid is not None:
            user = slots.user(connection, state.active_pid)
            raise SourceError(
                f"source {name}: slot {self._slot} is in use by {user}",
                hint="stop that process, if it is another kuvasz with the same map; this one waits for the slot",
            )
        standing = self._standing.standing if known else Standing()
        confirmed_lsn = max(standing.confirmed_lsn, state.confirmed_flush_lsn or 0)
        self._standing.update(dataclasses.replace(standing, system_id=system_id, confirmed_lsn=confirmed_lsn))
        return True

    def _positions_of_members(self, specs: Sequence[SourceTableSpec]) -> list[tuple[SourceTableSpec, Position]]:
        """Return the positions of all members of collapses, those that are gone as well."""
        return [
            (spec, position)
            for spec in specs
            if spec.member
            for name, position in self._around.lake.positions(spec.identifier).items()
            if names.source_of(name) == self.source.name
        ]

    def _compare(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        slot: slots.SlotState | None,
        facts: introspect.ServerFacts,
    ) -> None:
        """Make sure that the source goes on from where the lake stands; the reader does so at each connection."""
        standing, applied_lsn = self._standing.standing, self._applied_lsn()
        server = continuity.Server(
            system_id=str(facts.system_identifier),
            timeline=facts.timeline,
            wal_lsn=introspect.wal_end(connection),
            slot_name=self._slot,
            slot=slot,
        )
        why = continuity.why_lost(standing, applied_lsn, server)
        if why is None and publication.load(connection, self._slot) is None:
            since = lsn.render(standing.confirmed_lsn or applied_lsn)
            why = f"publication {self._slot} was dropped: changes after {since} may be missing"
        if why is not None:
            raise SlotLost(f"source {self.source.name}: {why}", hint=continuity.hint(why, self._standing.path))

    def _applied_lsn(self) -> int:
        """Return how far the source is in the lake, or in what is parked."""
        positions = (self._roster.position(spec) for spec in self.source.tables)
        applied = (position.lsn for position in positions if position is not None)
        return max([0, *applied, *(self.parking.last_lsn(spec.identifier) for spec in self.source.tables)])

    def _start_over(self) -> None:
        """Have every table copied again under a new slot; each one's rows stay until its new ones replace them.

        Ends the same if it is cut off anywhere: only when the lake knows does the old slot go.
        """
        self._forgetting.forget_all()
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            slots.drop(connection, self._slot)
        failpoints.hit("slot_dropped", SourceError)

    def _temporary_snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        name = f"{self._slot[:50]}_copy_{random.getrandbits(24):06x}"
        _log.info("snapshot for a new table", extra={"event": "snapshot", "source": self.source.name,
                                                     "table": str(spec.table)})  # fmt: skip
        return self._new_slot(name, temporary=True)

    def _new_slot(self, name: str, *, temporary: bool, failover: bool = False) -> slots.ExportedSnapshot:
        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            _log.warning("the slot waits for transactions to end", extra={
                "event": "slot_waits", "source": self.source.name,
                "blockers": [blocker.describe() for blocker in blockers]})  # fmt: skip
            if self._lifetime.is_ending:
                raise SourceError("stopped while the slot was being created")

        failpoints.hit("before_slot", SourceError)
        taken = slots.create(
            conninfo.replication_conninfo(self._url), name, temporary=temporary, failover=failover,
            on_waiting=waiting,
        )  # fmt: skip
        failpoints.hit("slot_created", SourceError)
        return taken

    def _types(self, oids: list[int]) -> dict[int, PgType]:
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            return introspect.load_types(connection, oids)

    async def _copy(self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, system_id: str) -> None:
        if self._lifetime.is_ending:
            raise SourceError(f"source {self.source.name}: stopped while copying")
        self._roster.set(spec, State.COPYING)
        abandoned = threading.Event()
        copying = asyncio.get_running_loop().run_in_executor(None, self._copy_now, spec, taken, system_id, abandoned)
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: were it left alone, it might replace rows that are newer by then.
            abandoned.set()
            await asyncio.wait([copying])
            copying.exception()
            raise
        except (TableError, InternalError) as error:
            self._roster.fail(spec, error)
        except LakeError as error:
            raise SourceError(error.message, hint=error.hint) from error

    def _copy_now(
        self, spec: SourceTableSpec, taken: slots.ExportedSnapshot, system_id: str, abandoned: threading.Event
    ) -> None:
        table = self._roster.tables[spec.key]
        plain = taken.pinned(conninfo.conninfo(self._url))
        with snapshot.session(plain, taken.snapshot_name) as connection:
            failpoints.hit("snapshot_taken", SourceError)
            seen = introspect.load_relation(connection, spec.table)
            parts = self._partitions_of(connection, seen)
        now = fitness.checked(self.source.name, spec, seen)
        table = _narrowed(spec, self._changed_since(spec, table, now, taken.consistent_point))
        if table.kind is TableKind.PARTITIONED:
            # The partitions that the snapshot knows, not those of an earlier look.
            self._around.lake.remember_parts(spec.identifier, self._roster.name(spec), parts)
        ranges = copy_ranges(table, conninfo=plain, snapshot_name=taken.snapshot_name, target_bytes=_RANGE_BYTES)
        begin = time.monotonic()
        total = len(ranges)
        note = self._roster.note
        note(spec, copy_total=total, copy_done=0)

        def progress(done: int, rows: int) -> None:
            note(spec, copy_done=done, copied_rows=rows)
            self._around.on_copy(self.source.name, spec.identifier, done, total, rows)
            if self._lifetime.is_ending or abandoned.is_set():
                raise SourceError(f"source {self.source.name}: stopped while copying")

        feed = feed_of(self.source, spec)
        position = Position(lsn=taken.consistent_point, system_id=system_id, taken_us=taken.taken_us)
        if not self._needs_copy(spec, table):
            self._repair(spec, table, ranges, position, progress)
            return
        receipt = self._around.lake.copy(feed, table.relation, ranges, position, progress)
        note(spec, copies=1)
        _log.info("table copied", extra={
            "event": "copied", "source": self.source.name, "table": spec.identifier, "rows": receipt.rows,
            "seconds": round(time.monotonic() - begin, 3), "lsn": lsn.render(taken.consistent_point)})  # fmt: skip

    def _needs_copy(self, spec: SourceTableSpec, table: SourceTable) -> bool:
        """Whether a table has no rows yet, or none that could be compared.

        Raises:
            ChangesLost: A person has to say how it goes on.
        """
        target, name = spec.identifier, self._roster.name(spec)
        gap = self._around.lake.gap(target, name)
        if gap is None:
            return True
        is_accepted = self._consent.is_gap_accepted(spec)
        cure = lost.cure(self.source.name, spec, table.relation, gap, is_accepted=is_accepted)
        if cure is not lost.Cure.COPY:
            return False
        _log.warning("a table cannot be compared and is copied again", extra={
            "event": "copied_again", "source": self.source.name, "table": target,
            "reason": lost.why_not_compared(spec, table.relation)})  # fmt: skip
        if spec.config.type is TableType.CLONE:
            self._around.lake.forget(target, name)  # nothing is missing then
        return True

    def _repair(
        self,
        spec: SourceTableSpec,
        table: SourceTable,
        ranges: Sequence[snapshot.CopyRange],
        position: Position,
        progress: Callable[[int, int], None],
    ) -> None:
        feed = feed_of(self.source, spec)

        def tell(phase: str, done: int, total: int) -> None:
            del phase
            self._around.states.note(feed.target, feed.source, copy_total=total)
            progress(done, 0)

        receipt = self._around.lake.repair(feed, table.relation, ranges, position, tell, at_us=position.taken_us)
        self._consent.closed(spec)
        _log.info("a gap is closed", extra={
            "event": "repaired", "source": feed.source, "table": feed.target, "keys": receipt.rows,
            "snapshot": receipt.snapshot_id, "lsn": lsn.render(position.lsn)})  # fmt: skip

    def _partitions_of(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        table: SourceTable | None,
    ) -> frozenset[str]:
        if table is None or table.kind is not TableKind.PARTITIONED:
            return frozenset()
        oid = table.relation.oid
        return frozenset(partition.links for partition in partitions.load(connection, [oid])[oid])

    def _changed_since(self, spec: SourceTableSpec, before: SourceTable, now: SourceTable, at: int) -> SourceTable:
        """Return the table as the snapshot of its copy has it, after the lake followed what changed meanwhile."""
        if now.relation != before.relation:
            done = self._around.lake.prepare(self._consent.target_of(spec), feed_of(self.source, spec), now.relation)
            tell(self.source, spec, done, at)
        self._watch.begin([(spec, now)], at)
        return now

    def _refuse(self, spec: SourceTableSpec, error: KuvaszError) -> None:
        """Put a table into error that is not even taken up, and look again later: it may be mended without a word."""
        self._roster.fail(spec, error)
        if not isinstance(error, SchemaHeld) and not self._roster.is_paused(spec):
            self._requests.send_later(spec)


def _narrowed(spec: SourceTableSpec, table: SourceTable) -> SourceTable:
    """Return a table with the columns that the map takes."""
    return dataclasses.replace(table, relation=narrowed(spec, table.relation))


def _ours(caught: KuvaszError | BaseExceptionGroup[BaseException]) -> KuvaszError:
    """Return the one error of ours in a group; raises the group if it holds anything else."""
    error: BaseException = caught
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, KuvaszError):
        raise caught
    return error


__all__ = ["SourceSync"]
