"""What is asked for with `GET /api/wait`: the answer comes when the lake shows a moment, or the time is up.

A wait holds no thread: it looks at what `/status` says, again and again, and is on the loop in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohttp import web

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.looks.look_answers import asked_of
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.admin.looks.look_answers import Look
    from kuvasz.config.secrets import Redactor

#: Told what `/status` says: returns how the waiting ended, ready for JSON; None while it goes on. Blocks.
LookOn: TypeAlias = "Callable[[Mapping[str, Any]], Any | None]"

#: That wait at a time: each holds one of the server's connections.
MOST_WAITS: Final = 16

#: Seconds between two looks.
_LOOK_S: Final = 0.5


class WaitingAnswers:
    """Requests that wait. On the loop.

    Args:
        live_map: The map that runs.
        begin: Makes what is told of; None: this kuvasz waits for nobody.
        status: Returns what `/status` says, for who may see all of it.
        redact: Takes secrets out.
    """

    def __init__(
        self, live_map: LiveMap, begin: Look | None, status: Callable[[], Awaitable[Mapping[str, Any]]],
        redact: Redactor,
    ) -> None:  # fmt: skip
        self._live_map = live_map
        self._begin = begin
        self._status = status
        self._redact = redact
        self._turn = asyncio.Lock()  #: the first look may ask all servers
        self._waits = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Wait for a moment."""
        query = asked_of(request, "wait")
        loaded = self._live_map.loaded
        if self._begin is None or loaded is None:
            raise RequestRefused(404, "this kuvasz does not answer GET /api/wait", "ask by the command")
        if self._waits >= MOST_WAITS:
            raise RequestRefused(409, f"{self._waits} requests wait already", "ask again when one of them has ended")
        self._waits += 1
        try:
            look = await asyncio.to_thread(self._begin, loaded, query)  # it goes through all sources
            async with self._turn:
                found = await asyncio.to_thread(look, await self._status())
            while found is None:
                await asyncio.sleep(_LOOK_S)
                if request.transport is None:  # nobody waits any more
                    break
                found = await asyncio.to_thread(look, await self._status())
        except ConfigError as error:
            raise RequestRefused(400, self._redact(error.message), error.hint) from error
        finally:
            self._waits -= 1
        return web.json_response(self._redact.clean(found))


__all__ = ["MOST_WAITS", "LookOn", "WaitingAnswers"]
