"""Threads for what asks sources: a few at a time of one server, so that starts are no storm, and of all of them.

A server that is silent, a lock that is held, an old transaction may keep a thread for as long as they like. After a
moment it counts no more, so that none of that keeps another source waiting.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from kuvasz.own_thread import in_thread

P = ParamSpec("P")
T = TypeVar("T")

#: At a time, of all servers and of one, not counting what waits. Python runs one of them: with more than it takes to
#: bridge a far server's answers they wait for each other until they count no more, and ever more of them begin.
_IN_ALL = 16
_OF_A_SERVER = 8

#: At a time of one server, whatever they wait for: sessions it has to have for us.
_MOST_OF_A_SERVER = 16

#: Seconds after which a thread is taken for one that waits.
PATIENCE_S = 2.0

#: Seconds between the beginnings of two looks, of whichever sources, that nobody waits for.
_APART_S = 0.2

#: Snapshots to copy with that are waited for at a time at one server: each takes a slot there and keeps its WAL.
_SNAPSHOTS = 2


class Turn:
    """One of so many permits, given back after a moment unless it is kept.

    Args:
        permits: The permits, of which it holds one.
        patience_s: How long it is held.
    """

    def __init__(self, permits: asyncio.Semaphore, patience_s: float = PATIENCE_S) -> None:
        self._first = permits
        self._permits = permits
        self._patience_s = patience_s
        self._is_held = False
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Turn:
        await self._permits.acquire()
        self._is_held = True
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self.give_back)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    async def keep(self) -> None:
        """Hold the permit to the end; if it was given back, wait for another one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_held:
            await self._permits.acquire()
            self._is_held = True

    async def change(self, permits: asyncio.Semaphore | None = None) -> None:
        """Hold another permit to the end, when all who wait for one have had theirs.

        Args:
            permits: The permits of which it is one; None: the ones that it began with.
        """
        self.give_back()
        self._permits = permits or self._first
        await self.keep()

    def give_back(self) -> None:
        """Give the permit back, unless that was done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_held:
            self._is_held = False
            self._permits.release()


@dataclasses.dataclass(frozen=True, slots=True)
class _Server:
    few: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_OF_A_SERVER))
    most: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_MOST_OF_A_SERVER))
    snapshots: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(_SNAPSHOTS))


class SourceThreads:
    """The threads of all sources. Methods are called on the loop.

    Args:
        patience_s: How long one counts that may be waiting.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._in_all = asyncio.Semaphore(_IN_ALL)
        self._looks_at = 0.0  # when the next look may begin, by the loop's clock
        self._servers: dict[str, _Server] = collections.defaultdict(_Server)

    def snapshots(self, server: str) -> asyncio.Semaphore:
        """Return the permits to wait for a snapshot at a server, or with one for the turn to copy."""
        return self._servers[server].snapshots

    def turn_to_look(self) -> float:
        """Return the seconds until the turn to look at a source that nobody waits for.

        It is nobody else's from now on: a thousand sources are no load by that.
        """
        now = asyncio.get_running_loop().time()
        begin = max(now, self._looks_at)
        self._looks_at = begin + _APART_S
        return begin - now

    async def run(self, server: str, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run a function that asks a server.

        Args:
            server: ``host:port``.
            function: What to run.
            arguments: The arguments of the function.
            options: The keyword arguments of the function.
        """
        of = self._servers[server]
        async with of.most, Turn(of.few, self._patience_s), Turn(self._in_all, self._patience_s):
            return await asyncio.wrap_future(in_thread(lambda: function(*arguments, **options)))


__all__ = ["PATIENCE_S", "SourceThreads", "Turn"]
