"""All sources of the map side by side: each lives a life of its own, and one that ends lets the others go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from kuvasz.config import names
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError, KuvaszError, Retry, first_of
from kuvasz.events import Event, EventLog
from kuvasz.state.progress import Progress
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.earlier_maps import EarlierMaps, Elsewhere
from kuvasz.sync.source_sync import SourceSync

_log = EventLog(__name__)

#: Seconds that the workers get for what they have of a source that ends, and then that it gets to end.
_DRAIN_S = 10.0
_END_S = 10.0

_LOOK_S = 0.02


class Sources:
    """The sources. Methods are called on the loop.

    Large because their lives, and the changes of the map that end and begin them, go by the same table of tasks.

    Args:
        mapped: As the map has them.
        shared: What all of them share.
        elsewhere: See `EarlierMaps`.
    """

    def __init__(self, mapped: Sequence[Source], shared: Shared, elsewhere: Elsewhere = lambda _: ()) -> None:
        self.mapped = mapped
        self.shared = shared
        self.all = tuple(SourceSync(source, shared) for source in mapped)
        self.released: tuple[Source, ...] = ()  #: those that left the map since the start, and whose slots stay
        self.earlier = EarlierMaps(mapped, shared, elsewhere)
        self._by_name = {sync.source.name: sync for sync in self.all}
        self._ended: dict[str, KuvaszError] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._change: asyncio.Task[None] | None = None

    def of(self, name: str) -> SourceSync:
        """Return what keeps a source replicated, also by the name that a member of it goes by."""
        return self._by_name[names.source_of(name)]

    def find(self, name: str) -> SourceSync | None:
        """Return the same from any thread, to which it may be news that the source left the map; None then."""
        return self._by_name.get(names.source_of(name))

    # Their lives

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Have each source replicated by a task."""
        self._tasks = tasks
        for sync in self.all:
            self.start(sync)

    def start(self, sync: SourceSync) -> None:
        """Have one source replicated by a task."""
        assert self._tasks is not None
        name = sync.source.name
        self._running[name] = self._tasks.create_task(self._run(sync), name=name)

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
            if not await self.shared.is_lake_dead():
                raise  # else it ended by whatever it was asking the JVM, which whoever watches the lake says

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The tasks of all that have begun."""
        return list(self._running.values())

    async def end(self, name: str) -> None:
        """End one source as a stop of kuvasz does: what is in hand becomes durable and is confirmed, within limits.

        Returns when nothing of it is left that may touch source or lake.
        """
        sync, task, shared = self._by_name[name], self._running.get(name), self.shared
        sync.quiesce()
        await _drained(shared.progress, name)
        sync.stop()
        if task is not None:
            _, late = await asyncio.wait([task], timeout=_END_S)
            for one in late:  # it waits for a server, a turn to copy, a commit
                one.cancel()
                await asyncio.wait([one])
        self._running.pop(name, None)
        await sync.seen_off()
        shared.progress.forget(name)  # first: what is left out from now on must not count as durable
        shared.states.begin_anew(name, _tables(sync.mapped))
        # Also those of collapses that take in nothing at the moment.
        for target in sorted({spec.identifier for spec in (*sync.source.tables, *sync.mapped.tables)}):
            await shared.settle(target)

    def exchange(
        self,
        gone: Iterable[Source],
        mapped: Sequence[Source],
        servers: Mapping[str, str],
        *,
        are_released: bool = True,
    ) -> list[SourceSync]:
        """Let go of sources that have ended, and return what will keep others replicated, each as at a start.

        Nothing is waited for in between: whoever looks sees the old ones or the new ones.

        Args:
            gone: The sources that left the map: what they have of ours is there still.
            mapped: The sources that are new, or replace those of their names.
            servers: Where each of these is, ``host:port``.
            are_released: Whether the sources that are gone are nobody's from now on.
        """
        shared, made = self.shared, {source.name: source for source in mapped}
        left = {source.name: source for source in gone}
        for name in (*left, *made):
            shared.routes.replace(name, made.get(name))
            shared.progress.forget(name)
            shared.states.begin_anew(name, _tables(made[name]) if name in made else {})
            self._ended.pop(name, None)
            self._by_name.pop(name, None)
        before = (one for one in self.released if one.name not in made)
        self.released = (*before, *(left.values() if are_released else ()))
        syncs = {name: SourceSync(source, shared, servers[name], is_late=True) for name, source in made.items()}
        self._by_name |= syncs
        places = {source.name: place for place, source in enumerate(self.mapped)}
        self.all = tuple(
            sorted(self._by_name.values(), key=lambda sync: places.get(sync.source.name, len(places)))
        )  # fmt: skip
        return list(syncs.values())

    # Changes of the map

    def change(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the map changed by a task, one at a time."""
        assert self._tasks is not None
        assert not self.is_changing
        self._change = self._tasks.create_task(work, name="map change")

    @property
    def is_changing(self) -> bool:
        """Whether sources are being ended, or begun, because the map changed."""
        return self._change is not None and not self._change.done()

    @property
    def has_changed(self) -> bool:
        """Whether the last change of the map was made to its end."""
        task = self._change
        return task is not None and task.done() and not task.cancelled() and task.exception() is None

    @property
    def ended(self) -> frozenset[str]:
        """The sources that have ended by themselves."""
        return frozenset(self._ended)

    def quiesce(self) -> None:
        """Have all of them stop reading, and go on confirming."""
        if self._change is not None:
            self._change.cancel()
        for sync in self.all:
            sync.quiesce()

    def stop(self) -> None:
        """Have all of them confirm what is durable, and end."""
        for sync in self.all:
            sync.stop()

    @property
    def why_misfit(self) -> ConfigError | None:
        """Why the map fits no table of a source: an expression of it, for example."""
        first = (error for name, error in self._ended.items() if not self._by_name[name].is_late)
        return next((error for error in first if isinstance(error, ConfigError)), None)

    def is_ended(self, sync: SourceSync) -> bool:
        """Whether a source lost its stream and waits for a person, or has ended."""
        return sync.is_lost or sync.source.name in self._ended

    def is_hopeless(self, sync: SourceSync) -> bool:
        """Whether a source lost its stream, or did not even pass its checks, and waits for a person."""
        is_refused = sync.error is not None and sync.error.retry is Retry.HUMAN and not sync.has_started
        return self.is_ended(sync) or is_refused

    @property
    def are_hopeless(self) -> bool:
        """Whether all of them wait for a person."""
        return bool(self.all) and all(self.is_hopeless(sync) for sync in self.all)

    @property
    def are_done(self) -> bool:
        """Whether all tables are copied that were to be copied once, but for those that wait for a person."""
        return bool(self.all) and all(sync.is_done or self.is_hopeless(sync) for sync in self.all)

    def faults(self, *, is_job: bool) -> list[KuvaszError]:
        """Return what it ends with: nothing as long as any source is well; for a job, if everything is there.

        Args:
            is_job: It was to end by itself, once everything is there.
        """
        if not is_job and not self.are_hopeless:
            return []
        errors = [sync.error for sync in self.all if not sync.is_done]
        if is_job:
            errors += [table.error for table in self.shared.states.snapshot()]
        return [error for error in errors if error is not None]


async def _drained(progress: Progress, source: str) -> None:
    """Wait for what the workers have of a source; what takes longer comes again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while progress.pending(source):  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(_LOOK_S)


def _tables(source: Source) -> dict[str, str]:
    return {spec.identifier: str(spec.table) for spec in source.tables if not spec.is_collapse}


__all__ = ["Sources"]
