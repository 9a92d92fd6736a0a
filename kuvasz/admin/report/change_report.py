"""What commits brought of each source, told once a minute: a log with a line for each commit is read by nobody.

It is counted from the receipts of the workers, in their threads, and only sources that had changes cost anything.
With thousands of sources a line for each of them would be no summary either: those with the most rows have lines of
their own, and all others one together.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from kuvasz import lsn
from kuvasz.config import names
from kuvasz.events import Event, EventLog
from kuvasz.model import NO_OPERATIONS, POSTGRES_EPOCH_US
from kuvasz.ports import Receipt

_log = EventLog(__name__)

#: Between two summaries.
EVERY_S: Final = 60.0

#: Sources with a line of their own.
MOST_LINES: Final = 200

_SUMMED = ("rows", "inserts", "updates", "deletes", "commits")


@dataclasses.dataclass(slots=True)
class SourceChanges:
    """What came of one source since the last summary."""

    source: str
    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    commits: int = 0
    tables: set[str] = dataclasses.field(default_factory=set)
    lag_us: int = 0  #: how old a commit's newest change was at most when it was to be seen in the lake
    lsn: int = 0  #: before which one of the tables has everything, of the one that is farthest
    seen_in: int = 0  #: the number of the last receipt that it is in


class ChangeReport:
    """Counts what the commits brought, and tells it. `note` is called in workers' threads.

    Args:
        wall: Unix seconds.
        clock: Monotonic seconds.
        most_lines: Sources with a line of their own.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        most_lines: int = MOST_LINES,
    ) -> None:
        self._wall = wall
        self._clock = clock
        self._most_lines = most_lines
        self._lock = threading.Lock()
        self._found: dict[str, SourceChanges] = {}
        self._receipts = 0
        self._since = clock()

    def note(self, receipt: Receipt) -> None:
        """Count a commit; those of changes that cancelled each other out are none."""
        commits, target = int(receipt.snapshot_id is not None and receipt.is_first), receipt.target
        now_us = int(self._wall() * 1e6) - POSTGRES_EPOCH_US
        rows_of, operations_of, positions = receipt.rows_of, receipt.operations_of, receipt.positions
        with self._lock:
            self._receipts += 1
            for name in positions.keys() | rows_of.keys():
                source = names.source_of(name)
                found = self._found.get(source)
                if found is None:
                    found = self._found[source] = SourceChanges(source)
                if (
                    found.seen_in != self._receipts
                ):  # tables of one source that are one target are in it several times
                    found.seen_in = self._receipts
                    found.commits += commits
                    found.tables.add(target)
                if name in rows_of:
                    found.rows += rows_of[name]
                    inserts, updates, deletes = operations_of.get(name, NO_OPERATIONS)
                    found.inserts += inserts
                    found.updates += updates
                    found.deletes += deletes
                if (position := positions.get(name)) is not None:
                    found.lsn = max(found.lsn, position.lsn)
                    if position.commit_us:
                        found.lag_us = max(found.lag_us, now_us - position.commit_us)

    def tell(self) -> None:
        """Tell what came since this was called last; nothing, if nothing did."""
        with self._lock:
            found, self._found = self._found, {}
            since, self._since = self._since, self._clock()
        seconds = round(self._since - since, 1)
        changed = sorted(found.values(), key=lambda one: (-one.rows, one.source))
        own, others = changed[: self._most_lines], changed[self._most_lines :]
        for one in own:
            _log.tell(
                Event.CHANGES, source=one.source, seconds=seconds, **_counts([one]), lsn=lsn.render(one.lsn)
            )  # fmt: skip
        if others:
            slowest = max(others, key=lambda one: one.lag_us).source
            _log.tell(
                Event.CHANGES_OF_OTHERS, sources=len(others), seconds=seconds, **_counts(others), slowest=slowest
            )  # fmt: skip

    @contextlib.asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell once a minute while the body runs, and at its end."""
        task = asyncio.create_task(self._run(), name="changes")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.tell()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await asyncio.to_thread(self.tell)  # hundreds of lines take longer than a reader may wait
            except Exception:  # noqa: BLE001 (the owner of the task: the next minute is told all the same)
                _log.tell(Event.BUG_IN_OBSERVER)


def _counts(changed: Sequence[SourceChanges]) -> dict[str, object]:
    """Return the sums of some sources, and their largest lag."""
    sums = {name: sum(getattr(one, name) for one in changed) for name in _SUMMED}
    tables = len(set().union(*(one.tables for one in changed)))
    return {**sums, "tables": tables, "lag_s": round(max(one.lag_us for one in changed) / 1e6, 3)}


__all__ = ["EVERY_S", "MOST_LINES", "ChangeReport", "SourceChanges"]
