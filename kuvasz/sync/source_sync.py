"""One source, from nothing to streaming, and back there after every failure.

    connect ─> look at tables ─> publication ─> slot ─┬─ new: copy all tables from its snapshot ──> reader
                                                      └─ known: reader ── copy new tables beside it

Each part of that is an object of its own: what is known of the tables (`roster`), looking at them and admitting them
(`inspection`, `admission`), publications, slot, copies, the stream and who follows it, and the way back for tables
that do not (`readmission`). Here they are put together, begun and ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections.abc import Sequence

from kuvasz.backoff import FIRST_S, LAST_S, Backoff
from kuvasz.config.model import OnSlotLost
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ColumnsUnclear,
    ConfigError,
    CopyNeeded,
    KuvaszError,
    LostTrack,
    RowsUnlogged,
    SchemaHeld,
    SlotLost,
    SourceReplaced,
    TableError,
    TableStuck,
)
from kuvasz.model import TableName
from kuvasz.route.hashing import worker_of
from kuvasz.source import slots
from kuvasz.source.reader import Reader
from kuvasz.state.source_record import SourceRecordFile
from kuvasz.state.tables import State
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.publications import Publications
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rejoin import Rejoin
from kuvasz.sync.rules import eligibility
from kuvasz.sync.source_setup import SourceSetup, Start
from kuvasz.sync.stream import Stream
from kuvasz.sync.tables.copies import Copies
from kuvasz.sync.tables.parked_tables import Neighbours, ParkedTables
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.partition_watch import PartitionWatch
from kuvasz.sync.watch.schema_watch import SchemaWatch

_log = logging.getLogger(__name__)


#: Seconds between two looks whether tables that wait may be streamed.
_LOOK_S = 1.0

#: Seconds between two looks at the partitions of partitioned tables.
_PARTITIONS_S = 5.0
#: Between two looks at what the stream does not tell: a table that was dropped, or that lost or got its key.
PATROL_S = 30.0

#: Between looks at what a person wants while a source waits for that.
_WAIT_S = 0.2


class SourceSync:
    """Keeps one source replicated until `stop`.

    Args:
        source: From the map.
        shared: What all sources share.
    """

    def __init__(self, source: Source, shared: Shared) -> None:
        self.error: KuvaszError | None = None  #: why it does not stream now
        self.retry_at: float | None = None  #: monotonic seconds of the next attempt, while it waits for that
        self.is_lost = False  #: its stream cannot be continued, and it waits for a person
        self._is_starting_over = False
        self._shared = shared
        self._context = context = SourceContext.of(source, shared)
        self._lifetime, self._source_tables, self._requests = (
            context.lifetime,
            context.source_tables,
            context.requests,
        )
        self._approvals = approvals = Approvals(shared.mask_secret)
        self._standing = standing = SourceRecordFile(shared.state_folder, source.name)
        self._watch = watch = SchemaWatch(
            source,
            shared.lake,
            shared.states,
            target_of=approvals.target_of,
            checked=functools.partial(eligibility.checked, source.name),
            on_trouble=self._on_trouble,
            on_followed=approvals.followed,
            on_renamed=self._on_renamed,
            is_believed=approvals.is_believed,
            is_ending=lambda: self._lifetime.is_ending,
        )
        members = MemberWatch(
            source, shared.lake, shared.states, shared.progress, settle=context.settle, readmit=self._requests.send
        )
        self._parking = parking = self._make_parking()
        self._resets = PositionReset(context, drop_parked=parking.drop)
        self._slot = slot = Slot(context, standing, parked_lsn=parking.last_lsn)
        self._publications = publications = Publications(
            context, forget=self._resets.forget, on_interrupted=self._on_interrupted
        )
        notes = PartitionNotes(context)
        self._partitions = PartitionWatch(
            context, members, watch, notes, approvals,
            forget=self._resets.forget, is_streaming=lambda: self.reader is not None,
            heard_lsn=lambda: 0 if self.reader is None else self.reader.received_lsn,
        )  # fmt: skip
        self._preparation = preparation = Preparation(context, approvals, members, parking, self._resets)
        self._setup = setup = SourceSetup(
            context, preparation, watch, members, self._partitions, self._publications, slot, self._resets
        )
        self._copies = Copies(context, slot, watch, approvals, notes, look=setup.look, published=publications.seen)
        self._stream = stream = Stream(
            context, parking, slot, standing,
            follow=self._partitions.follow, on_truncate=self._partitions.truncated, is_unknown=preparation.is_unknown,
        )  # fmt: skip
        self._rejoining = Rejoin(context, preparation, setup, self._copies, parking, stream)

    def _make_parking(self) -> ParkedTables:
        shared = self._shared
        beside = Neighbours(
            lot=shared.lot, lake=shared.lake, progress=shared.progress, budget=shared.budget, states=shared.states,
            inbox_of=lambda target: shared.inboxes[worker_of(target, len(shared.inboxes))],
            number=self._watch.follow, fail=self._source_tables.fail,
            copy_again=lambda spec: self._resets.make_room(spec),  # noqa: PLW0108 (it is made later)
            confirmed_lsn=lambda: self._standing.standing.confirmed_lsn,
        )  # fmt: skip
        return ParkedTables(self._context.source, beside)

    @property
    def source(self) -> Source:
        """Of the map, with the tables that its collapses take in, as last seen."""
        return self._source_tables.source

    @property
    def reader(self) -> Reader | None:
        """What reads the stream; None while there is none."""
        return self._stream.reader

    @property
    def target_lsn(self) -> int | None:
        """Where the source's WAL ended when it was first reached."""
        return self._setup.target_lsn

    @property
    def has_started(self) -> bool:
        """Whether it passed its checks at least once."""
        return self._lifetime.has_started

    @property
    def is_streaming(self) -> bool:
        """Whether the reader runs and every table is past its copy or in error."""
        settled = {State.STREAMING, State.CATCHING_UP, State.ERROR, State.PAUSED}
        mine = [state for state in self._shared.states.snapshot() if state.database == self.source.name]
        is_settled = self.reader is not None and all(state.state in settled for state in mine)
        return is_settled and not self._parking.is_replaying

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
        backoff = Backoff()
        while not self._lifetime.is_ending:
            begin = time.monotonic()
            try:
                await self._once()
            except (KuvaszError, BaseExceptionGroup) as caught:
                error = _ours(caught)
                self.error = error
                self._stream.reader = None
                if isinstance(error, ConfigError):
                    raise error from caught
                if isinstance(error, SlotLost):
                    await self._lost(error)
                    continue
                _log.warning("a source is not replicated now", extra={
                    "event": "source_failed", "source": self.source.name, "error": str(error)})  # fmt: skip
            if time.monotonic() - begin > LAST_S:
                backoff.reset()
            if not self._lifetime.is_ending:
                pause = backoff.next_s(random.random())  # noqa: S311 (jitter)
                self.retry_at = time.monotonic() + pause
                await self._lifetime.sleep(pause)
                self.retry_at = None

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
        if isinstance(error, SourceReplaced):
            self._resets.is_replaced = True
            self._setup.target_lsn = None  # that of another past is never reached
        self._is_starting_over = True
        await self._lifetime.sleep(FIRST_S)

    def _is_resync_wanted(self) -> bool:
        """Whether every table is to be copied again, so that nothing of the old stream is needed."""
        looks = [self._source_tables.look(spec) for spec in self.source.tables]
        due = [look.is_resync_due and not look.is_repair for look in looks]
        has_rows = [self._source_tables.position(spec) is not None for spec in self.source.tables]
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
        await self._stream.leave()
        if self._is_starting_over:
            await asyncio.to_thread(self._start_over)
            self._is_starting_over = False
        start = await asyncio.to_thread(self._setup.start)
        self.error = None
        self._lifetime.has_started = True
        source_tables = self._source_tables
        new = [
            spec
            for spec, _ in start.tables
            if source_tables.position(spec) is None and not source_tables.is_paused(spec)
        ]
        if start.snapshot is not None:
            await self._copy_first(new, start.snapshot, start.system_id)
            new = []
        streamed = {spec.key for spec, _ in start.tables}
        for spec in source_tables.source.tables:
            self._stream.begin(spec, is_streamed=spec.key in streamed)
        await self._follow(start, [spec for spec in new if source_tables.state(spec) is not State.ERROR])

    def _start_over(self) -> None:
        """Have every table copied again under a new slot; each one's rows stay until its new ones replace them.

        Ends the same if it is cut off anywhere: only when the lake knows does the old slot go.
        """
        self._resets.forget_all()
        self._slot.drop()

    async def _copy_first(
        self, new: Sequence[SourceTableSpec], snapshot: slots.ExportedSnapshot, system_id: str
    ) -> None:
        """Copy tables with the snapshot of the slot that was created just now."""
        with snapshot:
            for spec in new:
                await self._copies.first(spec, snapshot, system_id)

    async def _follow(self, start: Start, new: Sequence[SourceTableSpec]) -> None:
        """Stream, and do beside it what tables need, until the stream ends."""
        reader = self._stream.open(start.publications, start.system_id)
        if self._lifetime.is_ending:
            return
        self._rejoining.begin(new)
        slot = self._slot.name
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._rejoining.copy(reader, start.system_id), name=f"copy {slot}"),
                tasks.create_task(self._rejoining.run(reader), name=f"readmit {slot}"),
                tasks.create_task(self._await_inserts(reader, start), name=f"inserts {slot}"),
                tasks.create_task(self._watch_partitions(), name=f"partitions {slot}"),
                tasks.create_task(self._patrol(), name=f"patrol {slot}"),
                tasks.create_task(self._parking.watch(reader), name=f"park {slot}"),
            ]
            self._stream.replay = lambda spec: beside.append(
                tasks.create_task(self._stream.catch_up(spec, reader), name=f"replay {spec.identifier}")
            )
            try:
                await reader.run()
            finally:
                self._stream.close(reader)
                for task in beside:
                    task.cancel()

    async def _patrol(self) -> None:
        """Look now and then at what the stream does not tell."""
        while not self._lifetime.is_ending:
            await self._lifetime.sleep(PATROL_S)
            try:
                due = await asyncio.to_thread(self._watch.patrol, lambda spec: spec.key in self._preparation.unfit)
                for key in due:  # at once: what was seen is not told twice, and the next look may fail
                    self._requests.add(key)
                await asyncio.to_thread(self._publications.patrol)
            except KuvaszError as error:  # the stream itself will tell, if it lasts
                _log.debug("the catalog cannot be looked at", extra={
                    "event": "patrol_failed", "source": self.source.name, "error": str(error)})  # fmt: skip

    def _on_interrupted(self, spec: SourceTableSpec) -> None:
        """Have a table looked at anew that was not published all the time, or is gone; from any thread."""
        self._source_tables.hold(spec)
        self._source_tables.set(spec, State.NEW)
        self._requests.send(spec.key)

    async def _await_inserts(self, reader: Reader, start: Start) -> None:
        """Begin again when the stream may name the publication of INSERTs alone, and tables wait for that."""
        while start.is_waiting:
            await self._lifetime.sleep(_LOOK_S)
            from_lsn = await asyncio.to_thread(self._publications.inserts_since)
            if from_lsn is not None and reader.confirmed_lsn >= from_lsn and not self._source_tables.is_copying:
                reader.stop()
                return

    async def _watch_partitions(self) -> None:
        """Look now and then which partitions, and members of collapses, came and went: the stream does not tell."""
        while True:
            await asyncio.sleep(_PARTITIONS_S)
            try:
                await asyncio.to_thread(self._partitions.look)
            except KuvaszError as error:
                _log.debug("the partitions could not be looked at", extra={
                    "event": "partitions_unseen", "source": self.source.name, "error": str(error)})  # fmt: skip

    # Commands: called on the loop

    # A table is named by its target, and one of several that are one target by `SourceTableSpec.key`.

    def pause(self, key: str) -> None:
        """Have a table stay where it is, and its changes at the source; the others go on."""
        spec = self._source_tables.spec(key)
        if self._source_tables.position(spec) is not None:
            # First: once it is paused, its changes are no longer applied.
            self._source_tables.hold(spec)
        self._shared.states.pause(spec.identifier, self._source_tables.name(spec))

    def resume(self, key: str) -> None:
        """Let a paused table follow again, from where it is."""
        spec = self._source_tables.spec(key)
        self._shared.states.unpause(spec.identifier, self._source_tables.name(spec))
        self._requests.add(key)

    def retry(self, key: str) -> None:
        """Try a table again that is in error, or waits for a person before it follows a change of its columns."""
        spec = self._source_tables.spec(key)
        self._requests.mended(key)
        self._approvals.give(key, self._source_tables.look(spec).error)
        self._requests.add(key)

    def resync(self, key: str) -> None:
        """Copy a table again beside the stream; its rows in the lake stay until the new ones replace them at once.

        Survives a restart. Now if the source streams, else with its next start; a paused table waits until it is
        resumed. Safe in any state, also when the table was dropped from the lake.
        """
        spec = self._source_tables.spec(key)
        self._source_tables.resync(spec, is_due=True)
        self._requests.add(key)

    # From any thread

    def _on_trouble(self, spec: SourceTableSpec, error: TableError | TableStuck) -> None:
        """Take a table out of the stream because of what happened to it at the source; from any thread."""
        # Hold first: what comes from now on is not applied, and must come again.
        self._source_tables.hold(spec)
        if isinstance(error, CopyNeeded):
            self._source_tables.resync(spec, is_due=True)
            self._source_tables.set(spec, State.NEW)
            _log.info("a table is copied again", extra={
                "event": "copied_again", "source": self.source.name, "table": spec.identifier,
                "reason": error.message})  # fmt: skip
        else:
            if isinstance(error, RowsUnlogged):
                self._source_tables.miss_rows(spec)
            self._source_tables.fail(spec, error)
        if not isinstance(error, (SchemaHeld, ColumnsUnclear, LostTrack)):
            self._requests.send(spec.key)

    def _on_renamed(self, spec: SourceTableSpec, name: TableName) -> SourceTableSpec:
        """Take over the name that a table has now; return the table by that."""
        renamed = self._source_tables.rename(spec, name)
        self._watch.know(self._source_tables.source)
        return renamed

    def retry_later(self, key: str) -> None:
        """Try a table again by itself after a while, longer each time; called from any thread."""
        for spec in self._source_tables.known([key]):
            self._requests.send_later(spec)


def _ours(caught: KuvaszError | BaseExceptionGroup[BaseException]) -> KuvaszError:
    """Return the one error of ours in a group; raises the group if it holds anything else."""
    error: BaseException = caught
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, KuvaszError):
        raise caught
    return error


__all__ = ["SourceSync"]
