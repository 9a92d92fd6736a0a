"""Puts a new map in the place of the one that runs: sources that differ are ended and begun again, all others go on.

    ended as on a stop ─> routes, states and progress as at a start ─> nothing of it under way in the lake ─> the lake
    knows what left the map ─> begun: with all that a start makes sure of

So a source that differs is as right as after a restart, and whatever cuts this off is a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from kuvasz.backoff import Backoff
from kuvasz.config.sources import Source
from kuvasz.errors import KuvaszError, SourceError
from kuvasz.events import Event, EventLog
from kuvasz.parking.logs import ParkingLogs
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.sync.context.source_threads import in_thread
from kuvasz.sync.rules.map_difference import MapDifference, definitions
from kuvasz.sync.sources import Sources

_log = EventLog(__name__)

#: Sources that end within so many seconds of each other are begun again together.
_TOGETHER_S = 0.3

#: Attempts to drop what a source that left the map has of ours: its server may not know yet that nobody reads.
_DROPS = 5


async def take_over(sources: Sources, found: MapDifference) -> None:
    """Make the sources what a new map says; a task of theirs.

    Args:
        sources: They.
        found: What the map has otherwise.
    """
    begin = time.monotonic()
    sources.mapped = found.mapped
    sources.shared = sources.shared.among(len(found.mapped), found.config.pipeline)
    sources.defined |= definitions(found.mapped)
    mapped = {one.source.name: one.source for one in found.changed}
    names = [*(source.name for source in found.removed), *mapped]
    ends = {asyncio.create_task(sources.end(name), name=f"end {name}"): name for name in names}
    try:
        await _begin(sources, (), found.added)
        while ends:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(ends, timeout=_TOGETHER_S)
            ready = [ends.pop(task) for task in await _done(ends)]
            await _begin(sources, ready, [mapped[name] for name in ready if name in mapped])
    finally:
        for task in ends:
            task.cancel()
    # Last, for their servers may be away, which is nothing to the others.
    is_dropping = found.config.map.drop_removed
    await asyncio.gather(*(_release(sources, source, is_dropping=is_dropping) for source in found.removed))
    _log.tell(Event.MAP_IN_USE, sources=len(found.mapped), seconds=round(time.monotonic() - begin, 3))


async def _done(ends: Iterable[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    done = [task for task in ends if task.done()]
    for task in done:
        await task
    return done


async def _begin(sources: Sources, ended: Collection[str], mapped: Sequence[Source]) -> None:
    """Let go of sources that have ended, and begin others as at a start.

    Args:
        sources: All.
        ended: Names of those that have; some of them are begun again.
        mapped: Those to begin, as the map has them now.
    """
    again = {source.name for source in mapped}
    await _until_done(mapped, lambda: [source.url.get() for source in mapped])  # which may be in files
    syncs = sources.exchange([name for name in ended if name not in again], mapped)
    await asyncio.to_thread(_leave_logs, sources.shared.lot, {*ended})
    if mapped:
        await _until_done(mapped, lambda: sources.let_go_unmapped(mapped))
    sources.released = tuple(one for one in sources.released if one.name not in again)
    for sync in syncs:
        sources.start(sync)


def _leave_logs(lot: ParkingLogs, ended: Collection[str]) -> None:
    for target, source in lot.views():
        if source in ended:
            lot.leave(target, source)


async def _until_done(mapped: Sequence[Source], step: Callable[[], object]) -> None:
    """Take a step in a thread, however often that is tried: none of the sources may begin before."""
    backoff = Backoff()
    while True:
        try:
            await asyncio.to_thread(step)
        except KuvaszError as error:
            wait = backoff.next_s()
            _log.tell(Event.MAP_RETRY, sources=[source.name for source in mapped], error=str(error), wait_s=wait)
            await asyncio.sleep(wait)
        else:
            return


async def _release(sources: Sources, source: Source, *, is_dropping: bool) -> None:
    """Say what a source that left the map still has of ours, or drop it."""
    name, error = source.object_name, await _dropped(source) if is_dropping else None
    if is_dropping and error is None:
        _log.tell(Event.SOURCE_RELEASED_WHOLE, source=source.name, slot=name)
        return
    sources.released = (*sources.released, source)
    hint = f"SELECT pg_drop_replication_slot('{name}'); DROP PUBLICATION {name}; or put it into the map again"
    why = {} if error is None else {"error": str(error)}
    _log.tell(Event.SOURCE_RELEASED, source=source.name, slot=name, hint=hint, **why)


async def _dropped(source: Source) -> KuvaszError | None:
    """Drop slot and publications of a source; return why they are there still, if they are."""
    backoff, error = Backoff(), None
    for _ in range(_DROPS):
        try:
            await asyncio.wrap_future(in_thread(lambda: _drop(source)))
        except KuvaszError as failed:
            error = failed
            if not isinstance(failed, SourceError):
                break
            await asyncio.sleep(backoff.next_s())
        else:
            return None
    return error


def _drop(source: Source) -> None:
    name = source.object_name
    with contextlib.closing(conninfo.connect(source.url.get())) as connection:
        # The slot first: it keeps WAL, and a publication that goes before it would break its stream.
        slots.drop(connection, name)
        for made in (name, inserts.object_name(name)):
            publication.drop(connection, made)


__all__ = ["take_over"]
