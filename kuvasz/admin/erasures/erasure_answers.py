"""What the routes of erasures do: one is noted, and whoever replicates stops for it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin.api.asked import BODY, person
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.erasures.erasure_book import ErasureOrder
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kuvasz.admin.door import Handler
    from kuvasz.admin.erasures.erasure_book import ErasureBook
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.admin.looks.look_answers import Look
    from kuvasz.app import App
    from kuvasz.config.secrets import Redactor


class ErasureAnswers:
    """The erasures of one application. On the loop.

    Args:
        app: The application, which ends so that rows can be erased.
        live_map: Its map.
        looks: `erase` of them says what would go, or why nothing can.
        redact: Takes secrets out.
        book: Keeps them; None: whoever runs the application carries none out.
    """

    def __init__(
        self, app: App, live_map: LiveMap, looks: Mapping[str, Look], redact: Redactor, book: ErasureBook | None
    ) -> None:
        self._app = app
        self._live_map = live_map
        self._foretell = looks.get("erase")
        self._redact = redact
        self._book = book

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        return {"erasure_ask": self._ask, **erasures_told(self._book, self._redact.clean)}

    async def _ask(self, request: web.Request) -> web.Response:
        loaded = self._live_map.loaded
        if self._book is None or self._foretell is None or loaded is None or loaded.store is None:
            raise RequestRefused(
                409, "this kuvasz does not erase by HTTP: it is a job, one of a cluster, or has a map from no file",
                "stop it, and use `kuvasz source erase`",
            )  # fmt: skip
        body = request[BODY]
        asked = ErasureOrder.of(body)
        query = {name: value if isinstance(value, tuple) else (value,)
                 for name, value in dataclasses.asdict(asked).items() if value is not None}  # fmt: skip
        try:
            found: dict[str, Any] = await asyncio.to_thread(self._foretell, loaded, query)
        except ConfigError as error:
            raise RequestRefused(409, self._redact(error.message), error.hint) from error
        if not body.get("sure"):
            raise RequestRefused(409, self._redact(found["would"]), "send `sure: true` if that is meant")
        if found["leaving"] and not self._app.config.map.writable:
            raise RequestRefused(
                405, f"{', '.join(found['leaving'])} would leave the map, which is read-only",
                "`map.writable: true` in it lets the management API change it, after it was read again",
            )  # fmt: skip
        record = await asyncio.to_thread(self._book.note, asked, person(request))
        self._app.stop()
        where = {"Location": f"/api/erasure/{record['id']}"}
        return web.json_response(self._redact.clean(record), status=202, headers=where)


def erasures_told(book: ErasureBook | None, clean: Callable[[object], object]) -> dict[str, Handler]:
    """Return what the routes do that only tell, by their names."""

    async def listed(_: web.Request) -> web.Response:
        return web.json_response(clean([] if book is None else await asyncio.to_thread(book.all)))

    async def one(request: web.Request) -> web.Response:
        name = request.match_info["id"]
        found = None if book is None else await asyncio.to_thread(book.find, name)
        if found is None:
            raise RequestRefused(404, f"there is no erasure {name[:50]!r}", "GET /api/erasure lists them")
        return web.json_response(clean(found))

    return {"erasure_list": listed, "erasure_get": one}


__all__ = ["ErasureAnswers", "erasures_told"]
