"""The pages as they are asked for. What they show quotes no row, for whoever opens them brings no token."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from kuvasz.admin import views
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.page import Page
from kuvasz.admin.pages.fleet_page import fleet_page
from kuvasz.admin.pages.lag_history import LagHistory
from kuvasz.admin.pages.list_part import ListSelection
from kuvasz.admin.pages.markup import HEADERS
from kuvasz.admin.pages.source_page import source_page
from kuvasz.admin.pages.table_page import table_page
from kuvasz.admin.views import ErrorView

if TYPE_CHECKING:
    from kuvasz.admin.door import Handler
    from kuvasz.admin.observer import Observer
    from kuvasz.admin.pages.standing import Told
    from kuvasz.config.secrets import Redactor


class Pages:
    """The pages of one application.

    Args:
        observer: Sees it.
        redact: Takes secrets out.
        events_of: Returns the last events of a source, the oldest first.
    """

    def __init__(self, observer: Observer, redact: Redactor, events_of: Callable[[str], Sequence[Told]]) -> None:
        errors = ErrorView(redact=redact)
        self._status = Page(lambda: observer.show(lambda now: views.status(now, errors)))
        self._events_of = events_of
        self.lags = LagHistory(observer)

    def handlers(self) -> Mapping[str, Handler]:
        """Return what answers, by the names of the routes."""
        return {"fleet_page": self._fleet, "source_page": self._source, "table_page": self._table}

    async def _fleet(self, request: web.Request) -> web.Response:
        return await _made(fleet_page, await self._status.get(), _wanted(request))

    async def _source(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = next((one for one in (await self._status.get())["sources"] if one["source"] == name), None)
        if found is None:
            raise RequestRefused(404, f"the map has no source {name!r}", "the first page lists them")
        path = f"/source/{urllib.parse.quote(name, safe='')}"
        return await _made(source_page, found, path, _wanted(request), self.lags.of(name), self._events_of(name))

    async def _table(self, request: web.Request) -> web.Response:
        name, status = request.match_info["name"], await self._status.get()
        feeds = [(source, one) for source in status["sources"] for one in source["tables"] if one["target"] == name]
        if not feeds:
            raise RequestRefused(404, f"the map has no table {name!r}", "the first page lists them")
        upkeep = next((one for one in status["maintenance"] if one["target"] == name), None)
        path = f"/table/{urllib.parse.quote(name, safe='')}"
        return await _made(table_page, name, feeds, upkeep, path, _wanted(request))


async def _made(make: Callable[..., str], *arguments: object) -> web.Response:
    """Return a page that is made off the loop: with thousands of sources that takes a while."""
    text = await asyncio.to_thread(make, *arguments)
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


def _wanted(request: web.Request) -> ListSelection:
    number = request.query.get("page", "1")
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        raise RequestRefused(400, "page has to be a whole number from 1 on", "leave it out for the first one")
    return ListSelection(text=request.query.get("q", ""), number=int(number))


__all__ = ["Pages"]
