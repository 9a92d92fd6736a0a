"""All sources of the map side by side: each lives a life of its own, and one that ends lets the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kuvasz.config import names
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError, KuvaszError, Retry, first_of
from kuvasz.events import Event, EventLog
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.rules.feeders import feeders
from kuvasz.sync.source_sync import SourceSync

_log = EventLog(__name__)


class Sources:
    """The sources. Methods are called on the loop.

    Args:
        mapped: As the map has them.
        shared: What all of them share.
    """

    def __init__(self, mapped: Sequence[Source], shared: Shared) -> None:
        self.mapped = mapped
        self.all = tuple(SourceSync(source, shared) for source in mapped)
        self._by_name = {sync.source.name: sync for sync in self.all}
        self._shared = shared
        self._ended: dict[str, KuvaszError] = {}

    def of(self, name: str) -> SourceSync:
        """Return what keeps a source replicated, also by the name that a member of it goes by."""
        return self._by_name[names.source_of(name)]

    def let_go_unmapped(self) -> None:
        """Have the lake know which tables left the map: from now on their changes are confirmed and in no table.

        Whoever comes back has a gap, which is closed or told as any other. Nothing is confirmed before that is noted;
        blocks, before any source begins.

        Raises:
            LakeError: The lake cannot be told.
        """
        shared, feeds = self._shared, self._shared.state.feeds
        fed = feeders(self.mapped, feeds.known())
        for target, source in shared.lake.unmapped(fed.lasting, fed.changed):
            # Members of a group have files of their own, which nobody compares: they are copied again.
            shared.lake.forget(target, source, to_repair=not names.member_of(source))
            shared.lot.drop(target, names.source_of(source))
            event = Event.TABLE_BACK if fed.feeds(target, source) else Event.TABLE_UNMAPPED
            _log.tell(event, source=source, table=target)
        feeds.keep(fed.now)

    def begin(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Have each source replicated by a task."""
        return [tasks.create_task(self._run(sync), name=sync.source.name) for sync in self.all]

    async def _run(self, sync: SourceSync) -> None:
        try:
            await sync.run()
        except* KuvaszError as group:
            error = first_of(group)
            assert error is not None
            sync.error = error
            self._ended[sync.source.name] = error
            _log.tell(Event.SOURCE_STOPPED, source=sync.source.name, error=str(error))
        except* Exception:
            if not await self._shared.is_lake_dead():
                raise  # else it ended by whatever it was asking the JVM, which whoever watches the lake says

    def quiesce(self) -> None:
        """Have all of them stop reading, and go on confirming."""
        for sync in self.all:
            sync.quiesce()

    def stop(self) -> None:
        """Have all of them confirm what is durable, and end."""
        for sync in self.all:
            sync.stop()

    @property
    def why_misfit(self) -> ConfigError | None:
        """Why the map fits no table of a source: an expression of it, for example."""
        return next((error for error in self._ended.values() if isinstance(error, ConfigError)), None)

    def is_ended(self, sync: SourceSync) -> bool:
        """Whether a source lost its stream and waits for a person, or has ended."""
        return sync.is_lost or sync.source.name in self._ended

    def _is_hopeless(self, sync: SourceSync) -> bool:
        """Whether a source lost its stream, or did not even pass its checks, and waits for a person."""
        is_refused = sync.error is not None and sync.error.retry is Retry.HUMAN and not sync.has_started
        return self.is_ended(sync) or is_refused

    @property
    def are_hopeless(self) -> bool:
        """Whether all of them wait for a person."""
        return all(self._is_hopeless(sync) for sync in self.all)

    @property
    def exit_code(self) -> int:
        """What the process ends with: 0 as long as any source is well."""
        if self.are_hopeless:
            return max(sync.error.exit_code for sync in self.all if sync.error is not None)
        return 0


__all__ = ["Sources"]
