"""What all sources share."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from kuvasz.config.model import CopyLimits, OnLakeRewound, PipelineConfig, WhenParkedFull
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Inbox, Lake
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.rest.rounds import Rounds
from kuvasz.staging.staged_log import StagedLog
from kuvasz.state.budget import Budget
from kuvasz.state.ports import StateStore
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.sync.beside import ErrandClock
from kuvasz.sync.context.source_threads import SourceThreads
from kuvasz.sync.pattern_tables import PatternTables
from kuvasz.sync.rules.targets import Targets

#: A JVM refuses connections a moment before it is known to have ended.
_DEATH_S = 1.0

_LOOK_S = 0.02

#: As many sessions at sources, and megabytes of rows.
_SMALL_COPIES = 32
_SLOW_COPIES = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all sources share.

    Large because it is made once, where kuvasz is put together, and each part of a source's life takes what it uses.
    """

    lake: Lake
    routes: Targets
    inboxes: Sequence[Inbox]
    progress: Progress
    budget: Budget
    states: TableStates
    reading: ReaderOptions
    rounds: Rounds | None = None  #: looks at sources that bring little, together; None: each by itself
    max_row_bytes: int  #: of one row message of the stream
    copies: asyncio.Semaphore  #: how many tables are copied at a time, of all sources
    #: the same of small ones (`kuvasz.ports.SMALL_COPY_BYTES`), which wait for servers and for each other's commits
    small_copies: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_SMALL_COPIES))
    #: the same of large ones whose rows come slowly: these take no core, and wait for each other alone
    slow_copies: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_SLOW_COPIES))
    threads: SourceThreads = dataclasses.field(default_factory=SourceThreads)
    errands: ErrandClock = dataclasses.field(default_factory=ErrandClock)
    state: StateStore
    #: returns when nothing that has begun for a target is under way
    settle: Callable[[str], Coroutine[Any, Any, None]]
    on_copy: Callable[[str, str, int, int, int], None]  #: source, table, ranges done, ranges in all, rows
    lot: ParkingLogs
    when_parked_full: WhenParkedFull = WhenParkedFull.HOLD
    on_lake_rewound: OnLakeRewound = OnLakeRewound.STOP
    is_snapshot_only: bool = False  #: tables are copied once, and nothing is streamed
    holds_lease: bool = False  #: of its cluster: no other process may read a slot of the map
    staged: StagedLog | None = None  #: what the sources' changes are staged in; None: nothing is
    patterns: PatternTables | None = None  #: what the patterns of the map are matched with
    #: "host:port", several with commas -> the limits of copies from there, as the map that runs has them
    copy_limits: Callable[[str], CopyLimits] = lambda _: CopyLimits()
    mask_secret: bytes = dataclasses.field(default=b"", repr=False)  #: key of the pseudonyms

    def among(self, sources: int, pipeline: PipelineConfig) -> Shared:
        """Return the same for one of so many sources, all of which gather no more than a share of the memory."""
        options = ReaderOptions(spill_bytes=pipeline.transaction_spill_bytes)
        return dataclasses.replace(self, reading=options.among(sources, pipeline.share_bytes(sources)))

    async def is_lake_dead(self) -> bool:
        """Whether nothing can be committed any more in this process."""
        end = time.monotonic() + _DEATH_S
        while time.monotonic() < end:
            if self.lake.why_dead() is not None:
                return True
            await asyncio.sleep(_LOOK_S)
        return False


__all__ = ["Shared"]
