"""Cuts on a schedule (`cuts.every`): all tables are tagged again and again, each time under a name of its own.

They come at whole multiples of the interval since midnight 1970 UTC, so that a restart makes no more of them. One
that is refused, because a table does not stream, is tried again until the next is due. The options are looked at each
time: another map counts at once.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from typing import TYPE_CHECKING

from kuvasz.admin.api.cut_request import tell_cut
from kuvasz.config import names
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.app import App

_log = EventLog(__name__)

#: Between looks at whether a cut is due.
_LOOK_S = 0.5

#: Between attempts at a cut that was refused.
_AGAIN_S = 10.0


class CutSchedule:
    """The schedule of one application. On the loop.

    Args:
        app: The application whose tables are cut.
        wall: Unix seconds.
    """

    def __init__(self, app: App, wall: Callable[[], float] = time.time) -> None:
        self._app = app
        self._wall = wall
        self._last = 0.0  #: the multiple that was due last, whatever became of it
        self._every: float | None = None  #: the interval by which it was
        self._again_at: float | None = None  #: when one that was refused is tried again

    async def run(self) -> None:
        """Make cuts until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Make a cut if one is due."""
        every, now = self._app.config.cuts.every, self._wall()
        if every is None or every != self._every:
            self._every, self._again_at = every, None
            self._last = 0.0 if every is None else now - now % every
            return
        due = now - now % every
        is_first = due > self._last
        if is_first or (self._again_at is not None and now >= self._again_at):
            self._last = due
            await self._make(now, is_first=is_first)

    async def _make(self, now: float, *, is_first: bool) -> None:
        name = f"{datetime.datetime.fromtimestamp(now, datetime.UTC):%Y%m%dT%H%M%SZ}"
        sources = [sync.source.name for sync in self._app.sources]
        self._again_at = None
        if not sources:
            return
        try:
            made = await self._app.cuts.make(names.CUT_PREFIX + name, sources, self._app.config.cuts.keep)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one: the next are made all the same)
            self._again_at = self._wall() + _AGAIN_S
            if is_first:
                _log.tell(Event.CUT_MISSED, error=str(error) or repr(error))
            return
        tell_cut(name, "schedule", made)


__all__ = ["CutSchedule"]
