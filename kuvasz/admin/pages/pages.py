"""The pages as they are asked for. What they show quotes no row, for whoever opens them brings no token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiohttp import web

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.page import Page
from kuvasz.admin.pages.action_pages import question_page
from kuvasz.admin.pages.asked_by_form import ACTIONS
from kuvasz.admin.pages.column_rows import TableColumns
from kuvasz.admin.pages.fleet_page import fleet_page
from kuvasz.admin.pages.frame import HEADERS
from kuvasz.admin.pages.lag_history import LagHistory
from kuvasz.admin.pages.list_part import ListSelection
from kuvasz.admin.pages.source_page import source_page
from kuvasz.admin.pages.status_parts import SourcePart, StatusParts, TargetPart
from kuvasz.admin.pages.table_page import table_page
from kuvasz.admin.views import ErrorView
from kuvasz.config import names

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Route
    from kuvasz.admin.door import Handler
    from kuvasz.admin.observer import Observer
    from kuvasz.admin.pages.status_parts import Told
    from kuvasz.app import App
    from kuvasz.config.secrets import Redactor
    from kuvasz.state.tables import TableState

_TARGETS: Final = ("table", "tables")


class Pages:
    """The pages of one application.

    Args:
        app: The application.
        observer: Sees it.
        redact: Takes secrets out.
        events_of: Returns the last events of a source, the oldest first.
    """

    def __init__(
        self, app: App, observer: Observer, redact: Redactor, events_of: Callable[[str], Sequence[Told]]
    ) -> None:  # fmt: skip
        errors = ErrorView(redact=redact)
        self._app = app
        self._redact = redact
        self._parts = Page(lambda: observer.show(lambda now: StatusParts(now, errors)))
        self._events_of = events_of
        self.lags = LagHistory(observer)

    def handlers(self, routes: Sequence[Route]) -> Mapping[str, Handler]:
        """Return what answers, by the names of the routes.

        Args:
            routes: All of the API, some of which pages have done.
        """
        actions = {route.name: route for route in routes if route.name in ACTIONS}

        async def action(request: web.Request) -> web.Response:
            route = actions.get(request.match_info["verb"])
            if route is None:
                raise RequestRefused(404, "no page does that", f"there are {', '.join(sorted(actions))}")
            given = {name: request.query.getall(name) for name in request.query}
            return web.Response(text=question_page(route, given), content_type="text/html", headers=HEADERS)

        return {
            "fleet_page": self._fleet, "source_page": self._source, "table_page": self._table, "action_page": action,
        }  # fmt: skip

    async def _fleet(self, request: web.Request) -> web.Response:
        sources, targets = _wanted(request), _wanted(request, _TARGETS)
        return await _made(fleet_page, await self._parts.get(), sources, targets, self.lags.rates())

    async def _source(self, request: web.Request) -> web.Response:
        name, parts, wanted = request.match_info["name"], await self._parts.get(), _wanted(request)

        def make() -> str:
            part = parts.sources.get(name)
            if part is None:
                raise RequestRefused(404, f"the map has no source {name!r}", "the first page lists them")
            rate = self.lags.rates().get(name)
            return source_page(parts, part, wanted, self.lags.of(name), rate, self._events_of(name))

        return await _made(make)

    async def _table(self, request: web.Request) -> web.Response:
        name, parts, wanted = request.match_info["name"], await self._parts.get(), _wanted(request)
        of = request.query.get("source")

        def make() -> str:
            target = parts.targets.get(name)
            if target is None:
                raise RequestRefused(404, f"the map has no table {name!r}", "the first page lists them")
            part, state = _feed(target, of)
            events = [
                one for one in self._events_of(part.view.name) if one.get("table_name") in {None, state.table, name}
            ]
            shown = self._columns(part, state)
            return table_page(parts, target, wanted, shown, part.view.name, events, self._redact)

        return await _made(make)

    def _columns(self, part: SourcePart, state: TableState) -> TableColumns | None:
        """Return what is known of the columns of a table of a source; None: it has left the map just now."""
        sync = next((one for one in self._app.sources if one.source.name == part.view.name), None)
        if sync is None:
            return None
        member = names.member_of(state.source)
        specs = [one for one in sync.source.tables if one.identifier == state.target and one.member == member]
        notes = self._app.lake.notes
        if not specs:
            return None
        (spec, *_) = specs
        return TableColumns(
            spec=spec, table=sync.tables.tables.get(spec.key) or sync.tables.misfits.get(spec.key),
            lake=notes.lake_columns(state.target), known=notes.columns(state.target, state.source),
        )  # fmt: skip


def _feed(target: TargetPart, of: str | None) -> tuple[SourcePart, TableState]:
    """Return the source whose columns are shown: that which is asked for, else the first by its name."""
    asked = (pair for pair in target.feeds if pair[0].view.name == of)
    return next(asked, None) or min(target.feeds, key=lambda pair: (pair[0].view.name, pair[1].table))


async def _made(make: Callable[..., str], *arguments: object) -> web.Response:
    """Return a page that is made off the loop: with thousands of sources that takes a while."""
    text = await asyncio.to_thread(make, *arguments)
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


def _wanted(request: web.Request, called: tuple[str, str] = ("q", "page")) -> ListSelection:
    text, place = called
    number = request.query.get(place, "1")
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        raise RequestRefused(400, f"{place} has to be a whole number from 1 on", "leave it out for the first one")
    others = {name: value for name, value in request.query.items() if name not in called}
    return ListSelection(text=request.query.get(text, ""), number=int(number), names=called, others=others)


__all__ = ["Pages"]
