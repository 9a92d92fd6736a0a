"""Asks each server, at a slow pace, what WAL our slots keep there and where its WAL ends.

Must never disturb: it asks two servers at a time and with a short statement timeout, opens a session for one query
and closes it, asks for all slots of a server at once, leaves a source that does not answer alone for a while, and a
failure is nobody's error: the value is unknown then. Nobody waits for a server that is silent: neither the question
to another server, nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import operator
import time
from typing import TYPE_CHECKING

from kuvasz.errors import KuvaszError, SourceRefused
from kuvasz.events import Event, EventLog
from kuvasz.own_thread import in_thread
from kuvasz.source import conninfo, failure, slots
from kuvasz.sync.context.source_threads import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kuvasz.config.sources import Source
    from kuvasz.source.slots import Clock

_log = EventLog(__name__)

EVERY_S = 10.0
_AFTER_FAILURE_S = 60.0

#: Servers, not counting those that say nothing.
_AT_A_TIME = 2

#: Characters of an answer that nobody thought of, as they are told.
_MOST_TOLD = 200

#: Seconds since 1970 that a server's clock may say: up to the year 9999.
_CLOCKS = range(253_402_300_800)

#: Sources of one server that may stay without an answer before none of them is asked for a while.
_SILENCES = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """What a source said of our slot."""

    retained_bytes: int  #: WAL it keeps
    safe_bytes: int | None  #: what may still be written before the slot is in danger; None: without limit
    status: str  #: reserved, extended, unreserved, lost
    wal_end: int  #: LSN of the source's WAL end
    asked_at: float  #: unix seconds, before the question: all that committed by then ends before `wal_end`
    clock: Clock | None = None  #: the same by the source's own clock; None where that is not to be had
    wal_rate: float | None = None  #: bytes per second that the source writes, smoothed; None after the first question

    @property
    def seconds_left(self) -> float | None:
        """How long the slot lasts if nothing is confirmed; None without limit, or while nothing is written."""
        if self.safe_bytes is None or not self.wal_rate:
            return None
        return max(0, self.safe_bytes) / self.wal_rate

    def after(self, before: SlotFacts) -> SlotFacts:
        """Return these facts with the rate since earlier ones."""
        seconds, written = self.asked_at - before.asked_at, self.wal_end - before.wal_end
        if seconds <= 0 or written < 0:
            return self
        rate = written / seconds
        return dataclasses.replace(self, wal_rate=rate if before.wal_rate is None else (rate + before.wal_rate) / 2)


class SlotWatch:
    """The slots of all sources.

    Args:
        sources: Returns them; called in a thread.
        every_s: Between two rounds.
    """

    def __init__(self, sources: Callable[[], Iterable[Source]], *, every_s: float = EVERY_S) -> None:
        self.facts: dict[str, SlotFacts] = {}
        self._sources = sources
        self._every_s = every_s
        self._rest_until: dict[str, float] = {}
        self._known_until: dict[str, float] = {}  #: source without a slot -> until when it is not asked by itself

    async def run(self) -> None:
        """Ask until cancelled."""
        permits = asyncio.Semaphore(_AT_A_TIME)
        asked: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                servers = await asyncio.wrap_future(in_thread(self._servers))  # urls may be in files
                for server, sources in servers.items():
                    if server not in asked or asked[server].done():
                        asked[server] = tasks.create_task(self._take_turn(permits, sources))
                await asyncio.sleep(self._every_s)

    async def _take_turn(self, permits: asyncio.Semaphore, sources: Sequence[Source]) -> None:
        """Ask a server; others are asked meanwhile if it says nothing."""
        async with Turn(permits):
            await asyncio.wrap_future(in_thread(lambda: self._ask(sources)))

    def _servers(self) -> dict[str, list[Source]]:
        """Return the sources of each server."""
        servers: dict[str, list[Source]] = {}
        for source in self._sources():
            servers.setdefault(_server(source), []).append(source)
        return servers

    def _is_due(self, name: str) -> bool:
        return time.monotonic() >= self._rest_until.get(name, 0.0)

    def _ask(self, sources: Sequence[Source]) -> None:
        """Ask one of a server's sources for all; then those it did not know of, for a proxy may be in between."""
        found: dict[str, SlotFacts] = {}
        silences, is_answered = 0, False
        for source in sources:
            is_needless = is_answered and time.monotonic() < self._known_until.get(source.name, 0.0)
            if source.name in found or is_needless or not self._is_due(source.name):
                continue
            try:
                found |= ask(source, [one for one in sources if one.name not in found])
                is_answered = True
                if source.name not in found:  # while a fleet starts most have none, and others ask for it as well
                    self._known_until[source.name] = time.monotonic() + _AFTER_FAILURE_S
            except Exception as error:  # noqa: BLE001 (the owner of the thread: whatever one answers is its own alone)
                reason = str(error) if isinstance(error, KuvaszError) else repr(error)[:_MOST_TOLD]
                _log.tell(Event.SLOTWATCH_FAILED, source=source.name, reason=reason)
                silences += not isinstance(error, SourceRefused)
                # Each may take as long as a connection does: a server that says nothing to some says so to all.
                for one in sources if silences == _SILENCES else (source,):
                    self._rest_until[one.name] = time.monotonic() + _AFTER_FAILURE_S
        for source in sources:
            self._note(source.name, found.get(source.name))

    def _note(self, name: str, found: SlotFacts | None) -> None:
        if found is None:
            self.facts.pop(name, None)
        else:
            before = self.facts.get(name)
            self.facts[name] = found if before is None else found.after(before)


def _server(source: Source) -> str:
    """Return the server of a source; of one whose url cannot be had, itself, so that asking it says why."""
    try:
        return conninfo.route(source.url.get())[0]
    except KuvaszError:
        return source.name


def ask(source: Source, beside: Sequence[Source] = ()) -> dict[str, SlotFacts]:
    """Return what a server says of the slots of some sources, by the sources' names.

    Those without a slot, or with one that keeps no WAL, are left out.

    Args:
        source: Whose connection is used, and whose slot is asked for.
        beside: Others that are reached in the same way. Of theirs only what is a slot of their database counts:
            another server may stand behind a proxy, a list of hosts may lead to a standby.

    Raises:
        SourceError: The source does not answer.
        ConfigError: A file that holds a part of its url cannot be read.
    """
    wanted = {one.object_name: one for one in (*beside, source)}
    with contextlib.closing(conninfo.connect(source.url.get())) as connection:
        with failure.translated(conninfo.place(connection), "set statement_timeout"):
            connection.execute("SET statement_timeout = '5s'")
        asked_at = time.time()
        states = slots.describe_all(connection, list(wanted))
    found = {
        wanted[name].name: _facts(state, asked_at)
        for name, state in states.items()
        if wanted[name] is source or _is_of(wanted[name], state)
    }
    return {name: facts for name, facts in found.items() if facts is not None}


def _is_of(source: Source, state: slots.SlotState) -> bool:
    return not state.is_synced and state.database == conninfo.route(source.url.get())[1]


def _facts(state: slots.SlotState, asked_at: float) -> SlotFacts | None:
    """Return what is shown of a slot; None if it keeps no WAL.

    Raises:
        ValueError, TypeError: A server of PostgreSQL would not say so; whoever shows it relies on that.
    """
    if state.restart_lsn is None or state.retained_bytes is None:
        return None
    clock = state.clock
    if clock is not None and int(clock.at) not in _CLOCKS:
        raise ValueError(f"its clock says {clock.at!r}")
    retained, safe = operator.index(state.retained_bytes), state.safe_wal_bytes
    return SlotFacts(
        retained_bytes=retained, safe_bytes=None if safe is None else operator.index(safe),
        status=str(state.wal_status or "unknown"), wal_end=state.restart_lsn + retained, asked_at=asked_at,
        clock=clock,
    )  # fmt: skip
