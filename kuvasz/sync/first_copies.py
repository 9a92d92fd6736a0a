"""Copies the tables of one source under the snapshot of a slot that was created just now."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, SourceLocked, place_of
from kuvasz.events import Event, EventLog
from kuvasz.source import slots
from kuvasz.state.tables import State
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.copies import Copies
from kuvasz.sync.tables.copy_snapshot import CopySnapshot

_log = EventLog(__name__)

#: Tenants whose tables are copied side by side at the first start: some are read, most wait to be committed together.
_TENANTS = 128

#: Before a table that somebody has locked is tried again under the same snapshot.
_LOCKED_S = 1.0


class FirstCopies:
    """The copies that one snapshot is good for. Use once.

    Args:
        context: The context of the source.
        copies: Copies a table.
        is_all: Whether all tables are copied under it; else those that have to wait are left for later.
    """

    def __init__(self, context: SourceContext, copies: Copies, *, is_all: bool = False) -> None:
        self._source_tables = context.source_tables
        self._lifetime = context.lifetime
        self._name = context.source.name
        self._copies = copies
        self._is_all = is_all
        self._later: list[SourceTableSpec] = []
        self._of_tenant: dict[str | None, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        self._turns = asyncio.Semaphore(_TENANTS)

    async def run(
        self, new: Sequence[SourceTableSpec], snapshot: slots.ExportedSnapshot, system_id: str
    ) -> list[SourceTableSpec]:
        """Copy tables, one after another, but several tenants side by side, as sources are.

        Tables of one target share commits.

        Returns:
            Those that somebody has locked, or that have snapshots of their own: they are copied beside the stream.

        Raises:
            SourceError: It has to be tried again.
        """
        with self._copies.under(snapshot, new) as taken:
            due = new
            while due:
                async with asyncio.TaskGroup() as tasks:
                    for spec in due:
                        await self._turns.acquire()
                        tasks.create_task(self._copy(spec, taken, system_id), name=f"copy {spec.table}")
                if not self._is_all:
                    break
                due, self._later = self._later, []
                if due:
                    await self._lifetime.sleep(_LOCKED_S)
                if due and self._lifetime.is_ending:
                    raise SourceError(f"{place_of(self._name)}: stopped while copying")
        return self._later

    async def _copy(self, spec: SourceTableSpec, taken: CopySnapshot, system_id: str) -> None:
        try:
            if not self._is_all and self._copies.hours.is_beside(spec):
                self._later.append(spec)  # the stream waits for no hours
                return
            async with self._of_tenant[spec.tenant]:
                await self._copies.first(spec, taken, system_id)
        except SourceLocked as error:
            name = self._source_tables.name(spec)
            _log.tell(Event.COPY_RETRY, source=name, table=str(spec.table), error=str(error))
            self._source_tables.set(spec, State.NEW)
            self._later.append(spec)
        finally:
            self._turns.release()


__all__ = ["FirstCopies"]
