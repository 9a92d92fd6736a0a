"""Puts a new map in the place of the one that runs: sources that differ are ended and begun again, all others go on.

    ended as on a stop ─> routes, states and progress as at a start ─> nothing of it under way in the lake ─> the lake
    knows what left the map ─> it loads tables anew that are defined otherwise ─> begun: with all that a start makes
    sure of

So a source that differs is as right as after a restart, and whatever cuts this off is a restart. None begins before
all have ended that fed the same rows of a target: what one of those has in hand would come after the new one's copy.

A source that another process is to have leaves in the same order, and keeps all that is its: nothing is known of it
here from then on. Where several apply, so is it with a table that nobody feeds here: one that left the map may be
another's when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence

from kuvasz.backoff import Backoff
from kuvasz.config.sources import Source
from kuvasz.errors import KuvaszError, SourceError, StateError
from kuvasz.events import Event, EventLog
from kuvasz.own_thread import in_thread
from kuvasz.parking.logs import ParkingLogs
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.sync.rules.map_difference import MapDifference, ends_before
from kuvasz.sync.sources import Sources

_log = EventLog(__name__)

#: Sources that end within so many seconds of each other are begun again together.
_TOGETHER_S = 0.3

#: Attempts to drop what a source that left the map has of ours: its server may not know yet that nobody reads.
_DROPS = 5


async def take_over(
    sources: Sources,
    found: MapDifference,
    *,
    may_drop: bool | None = None,
    on_ended: Callable[[], None] = lambda: None,
) -> None:
    """Make the sources what a new map says; a task of theirs.

    Args:
        sources: The sources that run.
        found: What the map has otherwise.
        may_drop: Whether slots and publications of sources go that leave; None: a person has asked for the map, which
            says so.
        on_ended: Called in a thread when nothing goes by the map before any more, until it is done.
    """
    begin = time.monotonic()
    leaving = (*found.removed, *found.given, *(sources.of(one.source.name).mapped for one in found.changed))
    coming = (*found.added, *(one.source for one in found.changed))
    sources.mapped = found.mapped
    sources.shared = sources.shared.among(len(found.mapped), found.config.pipeline)
    sources.earlier.add(found.mapped)
    is_dropping = found.config.map.drop_removed if may_drop is None else may_drop
    first = await asyncio.to_thread(ends_before, leaving, coming)  # of thousands it takes a while
    async with asyncio.TaskGroup() as tasks:
        ends = {one.name: tasks.create_task(sources.end(one.name), name=f"end {one.name}") for one in leaving}
        removed, given, waiting = list(found.removed), list(found.given), list(coming)
        while removed or given or waiting:
            ended = {name for name, task in ends.items() if task.done()}
            gone = [source for source in removed if source.name in ended]
            handed = given if {source.name for source in given} <= ended else []  # they feed the same targets
            ready = [source for source in waiting if first[source.name] <= ended]
            removed = [source for source in removed if source.name not in ended]
            given = [] if handed else given
            waiting = [source for source in waiting if not first[source.name] <= ended]
            # Each step by itself: a server or a lake that one waits for is nothing to the others.
            if gone:
                tasks.create_task(_leave(sources, gone, is_dropping=is_dropping), name="leave")
            if handed:
                tasks.create_task(_hand_on(sources, handed), name="hand on")
            if ready:
                tasks.create_task(_begin(sources, ready), name="begin")
            if under_way := [task for task in ends.values() if not task.done()]:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait(under_way, timeout=_TOGETHER_S)
        tasks.create_task(_until_done(coming, on_ended), name="ended")
    if found.groups is not None:
        await asyncio.to_thread(_let_go_tables, sources)
    _log.tell(Event.MAP_IN_USE, sources=len(found.mapped), seconds=round(time.monotonic() - begin, 3))


async def _leave(sources: Sources, gone: Sequence[Source], *, is_dropping: bool) -> None:
    """Let go of sources that have left the map, and have ended."""
    sources.exchange(gone, (), {})
    await asyncio.to_thread(_leave_logs, sources.shared.lot, {source.name for source in gone})
    await asyncio.gather(*(_release(sources, source, is_dropping=is_dropping) for source in gone))


async def _hand_on(sources: Sources, gone: Sequence[Source]) -> None:
    """Let go of sources that another process is to have, and that have ended."""
    sources.exchange(gone, (), {}, are_released=False)
    await asyncio.to_thread(_let_go, sources, gone)


def _let_go(sources: Sources, gone: Sequence[Source]) -> None:
    """Forget sources here: what is known of them elsewhere counts when they come back."""
    shared, names = sources.shared, {source.name for source in gone}
    _leave_logs(shared.lot, names)
    if shared.staged is not None:
        shared.staged.let_go(names)


def _let_go_tables(sources: Sources) -> None:
    """Forget tables that nobody feeds here: what another process has done with them counts when they come back."""
    sources.shared.lake.let_go(*sorted(sources.earlier.leave(sources.mapped)))


async def _begin(sources: Sources, mapped: Sequence[Source]) -> None:
    """Begin sources as at a start.

    Args:
        sources: All.
        mapped: The sources to begin, as the map has them now; whatever has their rows in hand has ended.
    """
    servers: dict[str, str] = {}  # by urls that may be in files, which may be gone in a moment

    def look() -> None:
        servers.update((source.name, conninfo.servers(source.url.get())) for source in mapped)

    await _until_done(mapped, look)
    syncs = sources.exchange((), mapped, servers)
    await asyncio.to_thread(_leave_logs, sources.shared.lot, {source.name for source in mapped})
    await _until_done(mapped, lambda: sources.earlier.let_go(mapped))
    await asyncio.to_thread(sources.earlier.unload, mapped)
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
    name, staged = source.object_name, sources.shared.staged
    is_read = staged is not None and staged.follower is not None
    if staged is not None and is_read:
        with contextlib.suppress(StateError):  # then the next start does it
            await asyncio.to_thread(staged.withdraw, source.name)
    if staged is not None and staged.group is not None:  # slot and publication are the first group's
        sources.released = tuple(one for one in sources.released if one is not source)
        _log.tell(Event.SOURCE_UNHEARD, source=source.name, log_group=staged.group)
        return
    error = await _dropped(source, is_read=is_read) if is_dropping else None
    if is_dropping and error is None and staged is not None:
        with contextlib.suppress(StateError):  # then its objects stay until it comes back
            await asyncio.to_thread(staged.forget, source.name)
    if is_dropping and error is None:
        sources.released = tuple(one for one in sources.released if one is not source)
        _log.tell(Event.SOURCE_RELEASED_WHOLE, source=source.name, slot=name)
        return
    hint = f"SELECT pg_drop_replication_slot('{name}'); DROP PUBLICATION {name}; or put it into the map again"
    why = {} if error is None else {"error": str(error)}
    _log.tell(Event.SOURCE_RELEASED, source=source.name, slot=name, hint=hint, **why)


async def _dropped(source: Source, *, is_read: bool) -> KuvaszError | None:
    """Drop slot and publications of a source; return why they are there still, if they are."""
    backoff, error = Backoff(), None
    for _ in range(_DROPS):
        try:
            await asyncio.wrap_future(in_thread(lambda: _drop(source, is_read=is_read)))
        except KuvaszError as failed:
            error = failed
            if not isinstance(failed, SourceError):
                break
            await asyncio.sleep(backoff.next_s())
        else:
            return None
    return error


def _drop(source: Source, *, is_read: bool) -> None:
    name = source.object_name
    with contextlib.closing(conninfo.connect(source.url.get())) as connection:
        with slots.slot_session(source, connection) as session:
            if is_read:  # by a process that may not have seen yet that it is not to
                slots.end_reader(session, name)
            # The slot first: it keeps WAL, and a publication that goes before it would break its stream.
            slots.drop(session, name)
        for made in (name, inserts.object_name(name)):
            publication.drop(connection, made)


__all__ = ["take_over"]
