"""One source of two tables between real neighbours, but for the lake, which is in memory, and PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.config.model import WhenParkedFull
from kuvasz.config.sources import SourceTableSpec
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import SourcePosition
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.logs import ParkingLogs
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.state.budget import Budget
from kuvasz.state.memory import MemoryNotes, MemoryState
from kuvasz.state.progress import Progress
from kuvasz.state.tables import TableStates
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.targets import Targets, feed_of, target_of
from tests.support.changes import ITEMS

MAP = """
lake: {{namespace: shop}}
databases:
- database: shop
  on_slot_lost: {on_slot_lost}
  urls: [{{url: postgresql:///shop}}]
  tables: {{items: , others: }}
"""


CATALOG = SourceTable(
    relation=ITEMS, kind=TableKind.TABLE, pages=1, page_bytes=8192, toast_bytes=0, row_estimate=None,
    primary_key=("id",), identity_index=(), generated=(), leaves=(),
)  # fmt: skip


class Scene:
    """What the parts of one source's life work with.

    Args:
        folder: For state and map.
        on_slot_lost: Of the map.
        when_parked_full: Of the map.
    """

    def __init__(
        self, folder: Path, *, on_slot_lost: str = "stop", when_parked_full: WhenParkedFull = WhenParkedFull.HOLD
    ) -> None:
        file = folder / "map.yaml"
        file.write_text(MAP.format(on_slot_lost=on_slot_lost))
        (self.source,) = config_sources.resolve(load(file, {}).config)
        self.lake, self.states, self.progress = MemoryLake(), TableStates(MemoryNotes()), Progress()
        self.lake.open()
        self.items, self.others = self.source.tables
        self.settled: list[str] = []
        self.shared = Shared(
            lake=self.lake, routes=Targets([self.source], 1), inboxes=(), progress=self.progress, budget=Budget(1),
            states=self.states, reading=ReaderOptions(), max_row_bytes=1000, copies=asyncio.Semaphore(1),
            state=MemoryState(), settle=self._settle, on_copy=lambda *_: None,
            lot=ParkingLogs(LogFolder(folder), 0, self.progress.hold, self.progress.release),
            when_parked_full=when_parked_full,
        )  # fmt: skip
        self.context = SourceContext.of(self.source, self.shared)
        self.lifetime, self.source_tables, self.requests = (
            self.context.lifetime,
            self.context.source_tables,
            self.context.requests,
        )

    def table(self, spec: SourceTableSpec, **facts: Any) -> SourceTable:
        """Return what the source's catalog says of a table."""
        relation = dataclasses.replace(ITEMS, table=spec.table, oid=ITEMS.oid + self.source.tables.index(spec))
        return dataclasses.replace(CATALOG, relation=relation, **facts)

    async def asked_anew(self) -> list[str]:
        """Return the tables that are to be looked at anew, as soon as one is."""
        event = asyncio.Event()
        self.requests.serve(event.set)
        async with asyncio.timeout(10):
            await event.wait()
        return self.requests.rest()

    async def _settle(self, target: str) -> None:
        self.settled.append(target)

    def copy(self, spec: SourceTableSpec, lsn: int = 1000, history: int = 0, started_us: int = 0) -> None:
        """Have the lake hold a table, without rows."""
        feed, relation = feed_of(self.source, spec), dataclasses.replace(ITEMS, table=spec.table)
        self.lake.prepare(target_of(spec), feed, relation)
        position = SourcePosition(lsn=lsn, history=history, started_us=started_us)
        self.lake.copy(feed, relation, [], position, lambda *_: None)
