"""Looks at the application twice a second and remembers what one look cannot tell: freshness, silence, standstill.

Enter: `App.view` and what the slots' owners say. Leaves: a `Snapshot`, from which `kuvasz.admin.views` and
`kuvasz.admin.metrics` make their pages. Only reads. With thousands of sources a look takes as long as readers have to
route a gulp: looks and pages are made in one thread of its own, off the readers' loop.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from kuvasz.admin.freshness import Freshness, moment_of
from kuvasz.admin.slotwatch import SlotFacts, SlotWatch
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.route.hashing import owner_of
from kuvasz.state.tables import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.app import App
    from kuvasz.state.tables import TableState
    from kuvasz.view import SourceView, View


T = TypeVar("T")

_worker_of = functools.lru_cache(1 << 16)(owner_of)

#: Between two looks; and how many times as long as one takes, so that of thousands of sources, too, they take no more
#: than a hundredth of a core. But no longer than so: lags would be shown that much too long while the driver is busy.
_LOOK_S = 0.5
_PAUSE_TO_LOOK = 100.0
_LONGEST_PAUSE_S = 5.0

#: A transaction takes the time of its commit before its record gets a place in the WAL (`RecordTransactionCommit` in
#: PostgreSQL's xact.c): who has all of the WAL that was there at a time may lack commits of just before it.
_COMMITTING_S = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What is known of a source beyond `SourceView`."""

    slot: SlotFacts | None = None  #: None where it is not known
    fresh_at: float | None = None  #: unix seconds up to which all its commits are in the lake; None: not known
    is_behind: bool = False  #: it is known to have something that is not in the lake
    #: (LSN, unix seconds by the source's clock): see `Freshness.known`
    known: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that is shown, at one moment."""

    view: View
    facts: Mapping[str, SourceFacts]  #: by source, those that left the map and have a slot included
    now: float  #: unix seconds
    clock: float  #: monotonic seconds of the same moment
    started_at: float  #: unix seconds
    heard_at: float  #: monotonic seconds of the last bytes from any source, or of the start
    moved_at: float  #: monotonic seconds since when something waits and nothing was committed; `clock` if none does
    memory_bytes: int

    def lag_seconds(self, source: SourceView) -> float | None:
        """Return how old the lake is as a copy of the source; 0 if nothing is missing, None if unknown."""
        facts = self.facts[source.name]
        if source.state == "streaming" and not source.is_pending and not facts.is_behind:
            return None if facts.fresh_at is None else 0.0
        return None if facts.fresh_at is None else max(0.0, self.now - facts.fresh_at)

    def lag_bytes(self, source: SourceView) -> int | None:
        """Return the WAL of the source, as last asked, that is not in the lake; None if unknown."""
        slot = self.facts[source.name].slot
        if slot is None or not source.confirmable_lsn:
            return None
        return max(0, max(slot.wal_end, source.received_lsn) - source.confirmable_lsn)

    def durable_lsn(self, source: SourceView, table: TableState) -> int | None:
        """Return the LSN before which a table has everything of its source.

        None while nobody can say so: it is copied, catches up, is paused or in error, or changes of it are parked; or
        its source lost its stream, and LSNs may be those of another past by now.
        """
        if table.state is not State.STREAMING or source.state == "error":
            return None
        if (table.target, table.source) in self.view.parked:
            return None
        durable = source.durable
        if durable.is_even:  # as most are at most moments, and a fleet has many tables
            return max(durable.confirmable, durable.received) or None
        routed_by = self.view.routed_by.get(table.target, table.target)
        worker = _worker_of(routed_by, self.view.workers, self.view.own_workers)
        return durable.through(table.key, worker) or None

    def valid_through(self, source: SourceView, lsn: int | None) -> float | None:
        """Return the time up to which a table has every commit of its source, in unix seconds by *its* clock.

        Never later than what is true, unless that clock is set back; None while nobody can say.

        Args:
            source: The source.
            lsn: The table's `durable_lsn`.
        """
        at = None if lsn is None else moment_of(self.facts[source.name].known, lsn)
        return None if at is None else at - _COMMITTING_S


@dataclasses.dataclass(slots=True)
class _SourceFreshness:
    """What is remembered of one source: up to when the lake has all of it."""

    freshness: Freshness = dataclasses.field(default_factory=Freshness)
    validity: Freshness = dataclasses.field(default_factory=Freshness)  #: by the source's clock alone
    epoch: int = -1
    before_us: int | None = None  #: the newest commit of earlier epochs
    standing: object = None  #: all that its marks were made of


class Observer:
    """Remembers, for one application. `run` and `show` are of the loop; the rest is for its thread, or for tests.

    Args:
        app: The application that is observed.
        watch: Asks the sources; by default one over all of the application's.
        clock: Monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        app: App,
        watch: SlotWatch | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._watch = watch or SlotWatch(lambda: [*(sync.source for sync in app.sources), *app.released])
        self._clock = clock
        self._wall = wall
        self._remembered: dict[str, _SourceFreshness] = collections.defaultdict(_SourceFreshness)
        self._started_at = wall()
        self._heard_at = clock()
        self._moved_at = clock()
        self._progress: object = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="observer")

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run(), name="slotwatch")
            while True:
                begin = self._clock()
                await loop.run_in_executor(self._thread, self.look)
                await asyncio.sleep(_pause_s(self._clock() - begin))

    async def show(self, make: Callable[[Snapshot], T]) -> T:
        """Return what is made of the moment, both in the observer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: make(self.snapshot()))

    def close(self) -> None:
        """Let go of the thread; what is under way there ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def look(self) -> View:
        """Note what is to be seen now."""
        view, now = self._app.view(), self._clock()
        # One by one: to look an enum's member up in a set takes longer, and there are thousands of tables.
        lacking = {one.database for one in view.tables if one.state is State.NEW or one.state is State.COPYING}
        for source in view.sources:
            self._mark(source, lacks=source.name in lacking)
            self._heard_at = max(self._heard_at, source.last_message_at or 0.0)
        if view.phase != "running" or not view.sources or any(source.is_paused for source in view.sources):
            self._heard_at = now  # nobody listens
        is_waiting = any(source.is_pending for source in view.sources)
        progress = _progress(view) if is_waiting else None
        if progress is None or progress != self._progress:
            self._moved_at = now
        self._progress = progress
        return view

    def _mark(self, source: SourceView, *, lacks: bool) -> None:
        """Take note of how far a source is, unless nothing has moved.

        Args:
            source: The source.
            lacks: Whether one of its tables lacks its rows: what is confirmed says nothing of these.
        """
        mine, slot = self._remembered[source.name], self._watch.facts.get(source.name)
        standing = (
            slot, source.state, source.epoch, source.commit_us, source.received_lsn, source.confirmable_lsn, lacks,
        )  # fmt: skip
        if standing == mine.standing:
            return
        mine.standing = standing
        commit_us = _new_commit_us(mine, source)
        if slot is not None and source.state == "streaming":  # else another past of it may be what answers
            mine.freshness.mark(slot.wal_end, slot.asked_at)
            if slot.clock is not None:
                mine.validity.mark(slot.clock.insert_lsn, slot.clock.at)
        if commit_us is not None:
            for one in (mine.freshness, mine.validity):
                one.mark(source.received_lsn, (commit_us + POSTGRES_EPOCH_US) / 1e6)
        if not lacks:
            mine.freshness.passed(source.confirmable_lsn)
        mine.validity.passed(source.confirmable_lsn)

    def snapshot(self) -> Snapshot:
        """Look, and return everything."""
        view = self.look()
        facts = {
            source.name: SourceFacts(
                slot=self._watch.facts.get(source.name),
                fresh_at=self._remembered[source.name].freshness.at,
                is_behind=self._remembered[source.name].freshness.is_behind,
                known=self._remembered[source.name].validity.known(),
            )
            for source in view.sources
        }
        left = [name for name in view.released if name not in facts]  # else it came back just now
        facts |= {name: SourceFacts(slot=self._watch.facts.get(name)) for name in left}
        return Snapshot(
            view=view, facts=facts, now=self._wall(), clock=self._clock(), started_at=self._started_at,
            heard_at=self._heard_at, moved_at=self._moved_at, memory_bytes=self._app.budget.high_bytes,
        )  # fmt: skip


def _pause_s(took_s: float) -> float:
    """Return the seconds from a look that took so many to the next one."""
    return max(_LOOK_S, min(_LONGEST_PAUSE_S, _PAUSE_TO_LOOK * took_s))


def _new_commit_us(mine: _SourceFreshness, source: SourceView) -> int | None:
    """Return the time of a source's newest commit if its LSN is of the same connection.

    A new connection hears the source from an earlier LSN on, where that commit, of before, has not come yet.
    """
    if mine.epoch != source.epoch:
        mine.epoch, mine.before_us = source.epoch, source.commit_us
    return None if source.commit_us == mine.before_us else source.commit_us


def _progress(view: View) -> object:
    """Return what changes whenever something gets into the lake; rows do so before a large transaction ends."""
    tables = tuple((table.commits, table.rows, table.copied_rows, table.copy_done) for table in view.tables)
    return tables, tuple(source.confirmable_lsn for source in view.sources)
