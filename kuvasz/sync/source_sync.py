"""One source, from nothing to streaming, and back there after every failure.

    connect ─> look at tables ─> publication ─> slot ─┬─ new: copy all tables from its snapshot ──> reader
                                                      └─ known: reader ── copy new tables beside it

Each part of that is an object of its own, and `kuvasz.sync.parts` puts them together: looking at tables and preparing
them, publications, slot, copies, the stream and who follows it, and the way back for tables that do not. Here they
are begun and ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence

from kuvasz import lsn
from kuvasz.backoff import FIRST_S, LAST_S, Backoff
from kuvasz.config.model import OnSlotLost
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ConfigError,
    KuvaszError,
    SlotLost,
    SourceError,
    SourceReplaced,
    mistake_at,
    ours_in,
)
from kuvasz.events import Event, EventLog
from kuvasz.source.reading.reader import Reader
from kuvasz.state.tables import State
from kuvasz.sync.beside import Beside
from kuvasz.sync.commands import Commands
from kuvasz.sync.context.lifetime import finished
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.first_copies import FirstCopies
from kuvasz.sync.parts import Parts
from kuvasz.sync.source_setup import Start

_log = EventLog(__name__)

#: The longest that a source is left alone whose stream is lost as soon as its tables are copied.
_LONGEST_S = 3600.0

#: Between looks at what a person wants while a source waits for that.
_WAIT_S = 0.2

#: Between looks at another cluster meanwhile: sessions of others may have kept it from being gone on with.
_LOOK_AGAIN_S = 30.0


class SourceSync:
    """Keeps one source replicated until `stop`.

    Large because whatever ends one attempt is told from the others here, and followed by what begins the next.

    Args:
        source: From the map.
        shared: What all sources share.
        servers: Where it is, if somebody has looked already.
        is_late: Others run already: an option of the map that does not fit stops its table, not all of kuvasz.
    """

    def __init__(self, source: Source, shared: Shared, servers: str | None = None, *, is_late: bool = False) -> None:
        self.is_late = is_late
        self.error: KuvaszError | None = None  #: why it does not stream now
        self.retry_at: float | None = None  #: monotonic seconds of the next attempt, while it waits for that
        self.is_done = False  #: its tables are copied once, and that was all
        self.is_lost = False  #: its stream cannot be continued, and it waits for a person
        self._is_starting_over = False
        self._streams_since: float | None = None  #: monotonic seconds; None: it has not begun to this time
        self._context = SourceContext.of(source, shared, servers)
        self._lifetime = self._context.lifetime
        self._lifetime.has_started = is_late
        self.tables = self._context.source_tables  #: which there are, and how each stands
        self._parts = Parts.of(self._context)

    @property
    def commands(self) -> Commands:
        """What a person may want of its tables."""
        return self._parts.commands

    @property
    def source(self) -> Source:
        """The source of the map, with the tables that its collapses take in, as last seen."""
        return self.tables.source

    @property
    def mapped(self) -> Source:
        """As the map has it."""
        return self._context.source

    @property
    def reader(self) -> Reader | None:
        """What reads the stream; None while there is none."""
        return self._context.current.reader

    @property
    def target_lsn(self) -> int | None:
        """Where the source's WAL ended when it was first reached."""
        return self._parts.setup.target_lsn

    @property
    def has_started(self) -> bool:
        """Whether it passed its checks at least once."""
        return self._lifetime.has_started

    @property
    def is_streaming(self) -> bool:
        """Whether the reader runs and every table is past its copy or in error."""
        settled = {State.STREAMING, State.CATCHING_UP, State.ERROR, State.PAUSED}
        mine = self._context.shared.states.snapshot(self.source.name)
        is_settled = self.reader is not None and all(one.state in settled for one in mine)
        return is_settled and not self._parts.logs.is_replaying

    async def run(self) -> None:
        """Replicate until stopped. When the stream is lost, it waits for a person, or begins again by itself.

        Raises:
            ConfigError: The map does not fit the source.
        """
        self._lifetime.begin()
        try:
            await self._replicate()
        finally:
            await finished(self._parts.record.close)

    async def _replicate(self) -> None:
        backoff, losses = Backoff(), _SlotBackoff()
        while not self._lifetime.is_ending:
            begin, is_anew = time.monotonic(), self._is_starting_over
            self._streams_since = None
            try:
                await self._once()
            except (Exception, BaseExceptionGroup) as caught:
                error = ours_in(caught, ConfigError, SlotLost) or await self._unforeseen(caught)
                self._context.current.reader = None
                if isinstance(error, SlotLost):
                    found = await self._settled(error, losses.wait_s(begin, self._streams_since, is_anew=is_anew))
                    if found is None:
                        continue
                    error = found
                self.error = error
                if isinstance(error, ConfigError):
                    raise error from caught
                if not self._lifetime.is_ending:  # a copy that is given up for a stop has not failed
                    _log.tell(Event.SOURCE_FAILED, source=self.source.name, error=str(error))
            if time.monotonic() - begin > LAST_S:
                backoff.reset()
            if not self._lifetime.is_ending:
                pause = backoff.next_s(random.random())  # noqa: S311 (jitter)
                self.retry_at = time.monotonic() + pause
                await self._lifetime.sleep(pause)
                self.retry_at = None

    async def _unforeseen(self, caught: BaseException) -> SourceError:
        """Return what a mistake of ours, or an answer that nobody thought of, is told as: it is this source's alone.

        Raises:
            BaseException: What was caught, if the whole process ends.
        """
        if not isinstance(caught, Exception) or await self._context.shared.is_lake_dead():
            raise caught
        _log.tell(Event.SOURCE_UNFORESEEN, source=self.source.name, error=str(caught))
        error: BaseException = caught
        while isinstance(error, BaseExceptionGroup):
            _, others = error.split(KuvaszError)  # ours are known, and came beside it
            error = (others or error).exceptions[0]
        return mistake_at(self.source.name, error)

    async def _settled(self, error: SlotLost, wait_s: float) -> KuvaszError | None:
        """Come over a stream that is lost; returns why it is not known yet how.

        Until then it has not failed: who sees an error of all sources that stays ends kuvasz.

        Args:
            error: Why it is lost.
            wait_s: See `_lost`.
        """
        if isinstance(error, SourceReplaced) and not self._lifetime.is_ending:
            try:
                if await self._context.ask(self._parts.upgrade.take_over):
                    self.error = None
                    return None
            except KuvaszError as caught:
                return caught
        self.error = error
        await self._lost(error, wait_s)
        return None

    async def _is_taken_over(self) -> bool:
        """Whether another cluster is gone on with by now."""
        with contextlib.suppress(KuvaszError):  # it is looked at again
            if await self._context.ask(self._parts.upgrade.take_over):
                self.error = None
                return True
        return False

    async def _lost(self, error: SlotLost, wait_s: float) -> None:
        """Have everything copied again, if the map or a person says so; without a word, wait.

        Args:
            error: Why its stream is lost.
            wait_s: How long its server is spared first, because it was lost all through its copies.
        """
        if self.source.on_slot_lost is not OnSlotLost.STOP and wait_s:
            error = _lost_again(error)
            self.error = error if self._lifetime.has_started else None  # one before the first start has no hope
            _log.tell(Event.SLOT_LOST_AGAIN, source=self.source.name, error=str(error), wait_s=round(wait_s, 1))
            self.retry_at = time.monotonic() + wait_s
            await self._lifetime.sleep(wait_s)
            self.retry_at = None
        elif self.source.on_slot_lost is not OnSlotLost.STOP or self._is_resync_wanted():
            is_repair = self.source.on_slot_lost is OnSlotLost.REPAIR
            event = Event.SLOT_LOST_REPAIRED if is_repair else Event.SLOT_LOST
            _log.tell(event, source=self.source.name, error=str(error))
        else:
            _log.tell(Event.SOURCE_STOPPED, source=self.source.name, error=str(error))
            self.is_lost = True
            looked_at = time.monotonic()
            while not self._lifetime.is_ending and not self._is_resync_wanted():
                await self._lifetime.sleep(_WAIT_S)
                if isinstance(error, SourceReplaced) and time.monotonic() - looked_at > _LOOK_AGAIN_S:
                    if await self._is_taken_over():
                        self.is_lost = False
                        return
                    looked_at = time.monotonic()
            self.is_lost = self._lifetime.is_ending
        if self._lifetime.is_ending:
            return
        self.error = None  # it is cured by what comes now; an error that stays would be taken for hopeless
        if isinstance(error, SourceReplaced):
            self._parts.resets.is_replaced = True
            self._parts.setup.target_lsn = None  # that of another past is never reached
        self._is_starting_over = True
        await self._lifetime.sleep(FIRST_S)

    def _is_resync_wanted(self) -> bool:
        """Whether every table is to be copied again, so that nothing of the old stream is needed."""
        looks = [self.tables.look(spec) for spec in self.source.tables]
        due = [look.is_resync_due and not look.is_repair for look in looks]
        has_rows = [self.tables.position(spec) is not None for spec in self.source.tables]
        return any(due) and all(is_due or not has for is_due, has in zip(due, has_rows, strict=True))

    def quiesce(self) -> None:
        """Stop reading, go on confirming."""
        self._end()
        self._context.current.quiesce()

    def stop(self) -> None:
        """Confirm what is durable and end."""
        self._end()
        self._context.current.stop()

    def _end(self) -> None:
        if not self._lifetime.is_ending:
            self._lifetime.end()
            self._parts.watches.end()

    async def seen_off(self) -> None:
        """Return when nothing of it is left that may still touch its source, after it has ended."""
        await self._lifetime.seen_off()
        await finished(self._parts.record.close)  # which one of its threads may have opened again

    async def _once(self) -> None:
        await self._parts.stream.leave()
        if self._context.shared.is_snapshot_only:
            await self._copy_all()
            return
        if self._is_starting_over:
            await self._context.ask(self._start_over)
            self._is_starting_over = False
        await self._follow(*await self._made_ready())  # of what was seen nobody keeps anything here while it streams

    async def _made_ready(self) -> tuple[Start, Sequence[SourceTableSpec]]:
        """Return what the stream begins with, and the tables that are to be copied beside it."""
        start = await self._context.ask(self._parts.setup.start)
        self.error = None
        self._lifetime.has_started = True
        source_tables = self.tables
        new = [
            spec
            for spec, _ in start.tables
            if source_tables.position(spec) is None and not source_tables.is_paused(spec)
        ]
        if start.snapshot is not None:
            taken = await self._context.ask(self._parts.copies.server.snapshot, start.snapshot, new)
            new = await FirstCopies(self._context, self._parts.copies).run(new, taken, start.system_id)
        self._begin_streams({spec.key for spec, _ in start.tables})
        return start, [spec for spec in new if source_tables.state(spec) is not State.ERROR]

    def _begin_streams(self, streamed: set[str]) -> None:
        for spec in self.tables.source.tables:
            self._parts.stream.begin(spec, is_streamed=spec.key in streamed)

    def _start_over(self) -> None:
        """Have every table copied again under a new slot; each one's rows stay until its new ones replace them.

        Ends the same if it is cut off anywhere: only when the lake knows does the old slot go.
        """
        self._parts.resets.forget_all()
        self._parts.slot.drop()

    async def _copy_all(self) -> None:
        """Copy all tables as of one LSN of the source, which has nothing of ours after it; then end."""
        limits, lifetime = self._parts.copies.hours, self._lifetime
        while not limits.limits.is_open(time.time()) and not lifetime.is_ending:
            await lifetime.sleep(_WAIT_S)
        if lifetime.is_ending:  # the lake keeps the copies before
            return
        start = await self._context.ask(self._parts.setup.start_once)
        self.error = None
        lifetime.has_started = True
        assert start.snapshot is not None
        tables = [spec for spec, _ in start.tables if not self.tables.is_paused(spec)]
        taken = await self._context.ask(self._parts.copies.server.snapshot, start.snapshot, tables)
        copies = FirstCopies(self._context, self._parts.copies, is_all=True)
        await copies.run(tables, taken, start.system_id)
        self.is_done = True
        copied = [spec for spec in tables if self.tables.state(spec) is not State.ERROR]
        _log.tell(
            Event.SNAPSHOT_DONE, source=self.source.name, tables=len(copied),
            lsn=lsn.render(taken.consistent_point),
        )  # fmt: skip
        lifetime.end()

    async def _follow(self, start: Start, new: Sequence[SourceTableSpec]) -> None:
        """Stream, and do beside it what tables need, until the stream ends."""
        parts, slot = self._parts, self._parts.slot.name
        reader = parts.stream.open(start.publications, start.system_id)
        if self._lifetime.is_ending:
            return
        await reader.arrange()
        self._streams_since = time.monotonic()
        parts.rejoin.begin(new)
        async with asyncio.TaskGroup() as tasks:
            beside = Beside(tasks, self._context.shared.errands, slot)
            try:
                parts.rejoin.attend(reader, start.system_id, beside)
                parts.watches.begin(reader, start, beside)
                parts.parking.watch(reader, beside)
                del start, new
                await reader.run()
            finally:
                parts.stream.close(reader)
                beside.end()


class _SlotBackoff:
    """Streams that were lost before they had begun: each copy of all tables was for nothing, and costs the server."""

    def __init__(self) -> None:
        self._backoff = Backoff(last_s=_LONGEST_S)

    def wait_s(self, begin: float, streams_since: float | None, *, is_anew: bool) -> float:
        """Return how long to leave the server alone after a loss: at least as long as it was read for nothing.

        Args:
            begin: When the source was begun that has lost its stream now, in monotonic seconds.
            streams_since: When its stream began then.
            is_anew: Whether it was begun because it had lost the stream before.
        """
        now = time.monotonic()
        if not is_anew or (streams_since is not None and now - streams_since > LAST_S):
            self._backoff.reset()
            return 0.0
        return max(self._backoff.next_s(), min(now - begin, _LONGEST_S))


def _lost_again(error: SlotLost) -> SlotLost:
    if isinstance(error, SourceReplaced):
        return error
    return SlotLost(
        f"{error.message}; that was so as soon as its tables were copied, too",
        hint="the server keeps less WAL than comes while tables are copied: give max_slot_wal_keep_size (or"
        " idle_replication_slot_timeout) more, or have less copied at a time; it is tried again",
    )


__all__ = ["SourceSync"]
