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
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from kuvasz import lsn
from kuvasz.config import names
from kuvasz.events import Event, EventLog
from kuvasz.model import NO_OPERATIONS, POSTGRES_EPOCH_US, Operations
from kuvasz.ports import Receipt

_log = EventLog(__name__)

#: Between two summaries.
EVERY_S: Final = 60.0

#: Sources with a line of their own.
MOST_LINES: Final = 200


@dataclasses.dataclass(slots=True)
class SourceChanges:
    """What came of one source since the last summary."""

    source: str
    rows: int = 0
    operations: Operations = NO_OPERATIONS
    commits: int = 0
    tables: set[str] = dataclasses.field(default_factory=set)
    lag_s: float = 0.0  #: how old a commit's newest change was at most when it was to be seen in the lake
    lsn: int = 0  #: before which one of the tables has everything, of the one that is farthest


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
        self._since = clock()

    def note(self, receipt: Receipt) -> None:
        """Count a commit; those of changes that cancelled each other out are none."""
        commits = int(receipt.snapshot_id is not None and receipt.is_first)
        now = self._wall()
        with self._lock:
            for name in receipt.positions.keys() | receipt.rows_of.keys():
                source = names.source_of(name)
                found = self._found.get(source)
                if found is None:
                    found = self._found[source] = SourceChanges(source)
                found.rows += receipt.rows_of.get(name, 0)
                found.operations = found.operations.plus(receipt.operations_of.get(name, NO_OPERATIONS))
                found.commits += commits
                found.tables.add(receipt.target)
                position = receipt.positions.get(name)
                if position is not None:
                    found.lsn = max(found.lsn, position.lsn)
                    if position.commit_us:
                        found.lag_s = max(found.lag_s, now - (position.commit_us + POSTGRES_EPOCH_US) / 1e6)

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
            slowest = max(others, key=lambda one: one.lag_s).source
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
            await asyncio.to_thread(self.tell)  # hundreds of lines take longer than a reader may wait


def _counts(changed: Iterable[SourceChanges]) -> dict[str, object]:
    """Return the sums of some sources, and their largest lag."""
    changed = list(changed)
    rows, commits = sum(one.rows for one in changed), sum(one.commits for one in changed)
    operations = NO_OPERATIONS
    for one in changed:
        operations = operations.plus(one.operations)
    tables = len(set().union(*(one.tables for one in changed)))
    lag_s = round(max(one.lag_s for one in changed), 3)
    return {"rows": rows, **operations._asdict(), "commits": commits, "tables": tables, "lag_s": lag_s}


__all__ = ["EVERY_S", "MOST_LINES", "ChangeReport", "SourceChanges"]
