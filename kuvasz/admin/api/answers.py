"""What each route of the HTTP API does.

It runs on the readers' loop; what it shows of thousands of tables is made elsewhere (`kuvasz.admin.observer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import upkeep, views
from kuvasz.admin.api import docs_page, openapi
from kuvasz.admin.api.asked import BODY, CALLER, person
from kuvasz.admin.api.audit import Audit, AuditEntry
from kuvasz.admin.api.callers import Caller, Callers
from kuvasz.admin.api.form import FORM
from kuvasz.admin.api.refusal import RequestRefused, refused_map
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.commands import VERBS, Selection, Verb, hint_for
from kuvasz.admin.door import Handler
from kuvasz.admin.metrics import CONTENT_TYPE, Metrics
from kuvasz.admin.page import Page
from kuvasz.admin.pages.asked_by_form import by_form
from kuvasz.admin.report.status_text import StatusText
from kuvasz.admin.views import ErrorView
from kuvasz.errors import ConfigError
from kuvasz.events import EventLog

if TYPE_CHECKING:
    from kuvasz.admin.api.route import Body, Route
    from kuvasz.admin.live_map import LiveMap
    from kuvasz.admin.observer import Observer
    from kuvasz.admin.report.report import RunningReport
    from kuvasz.app import App
    from kuvasz.config.secrets import Redactor
    from kuvasz.state.tables import TableState

_log = EventLog(__name__)

_READ_ONLY = "`map.writable: true` in it lets the management API change it, after it was read again"

#: Who registers a route; that of GET takes HEAD, too.
_METHODS: Mapping[str, Callable[[str, Handler], web.RouteDef]] = {
    "GET": web.get, "POST": web.post, "PUT": web.put, "DELETE": web.delete
}  # fmt: skip


class Answers:
    """What an application answers.

    Args:
        app: The application that is seen and steered.
        observer: Sees it.
        live_map: Its map.
        report: What it tells for a bug report.
        callers: Who may ask for what.
        redact: Takes secrets out.
        more: What the routes do that are answered elsewhere: of the map's entries, and of verbs that look.
    """

    def __init__(
        self, app: App, observer: Observer, live_map: LiveMap, report: RunningReport, callers: Callers,
        redact: Redactor, more: Mapping[str, Handler],
    ) -> None:  # fmt: skip
        self.metrics = Metrics(app.config.server.metrics)
        self._app = app
        self._observer = observer
        self._live_map = live_map
        self._report = report
        self._callers = callers
        self._audit = Audit()
        self._redact = redact
        self._more = more
        self._statuses = [self._status_page(is_trusted=False), self._status_page(is_trusted=True)]
        self._metrics_page = Page(lambda: observer.show(self.metrics.render))

    def routes(self) -> list[web.RouteDef]:
        """Return all routes of the table, each with what it does."""
        handlers = self.handlers()
        return [
            _METHODS[route.method](route.path, by_form(route, self._guarded(route, handlers[route.name])))
            for route in ROUTES
        ]  # fmt: skip

    def handlers(self) -> dict[str, Handler]:
        """Return what each route does, by its name."""
        return {
            "livez": self._livez,
            "readyz": self._readyz,
            "status": self._status,
            "metrics": self._metrics,
            "support": self._report.answer,
            **{verb.name: self._command(verb) for verb in VERBS},
            "maintain": self._maintain,
            "reload": self._reload,
            **self._more,
            "openapi": _openapi,
            "docs": _docs,
        }

    def _guarded(self, route: Route, handler: Handler) -> Handler:
        """Return a handler that is asked by who may, and for what it understands."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            caller = request[CALLER] = await self._callers.of(request)
            if not (route.changes or route.shows_secrets):
                _refuse_unless_may(caller, route)
                return await handler(request)
            entry = AuditEntry(what=route.title, client=request.remote or "?")
            with self._audit.over(entry):
                if caller is not None:
                    entry.by = caller.name
                entry.target = _target_of(request)
                _refuse_unless_may(caller, route)
                if route.writes_map and not self._app.config.map.writable:
                    raise RequestRefused(405, "the map is read-only", _READ_ONLY)
                if route.body is not None:
                    body = request[BODY] = route.body.read(await _given(request, route.body))
                    entry.target = entry.target or _target(body)
                    entry.person = person(request) if caller is not None and caller.is_local else ""
                response = await handler(request)
                entry.status = response.status
                return response

        return guarded

    async def _livez(self, _: web.Request) -> web.Response:
        return _verdict(await self._observer.show(views.livez))

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(await self._observer.show(views.readyz))

    async def _status(self, request: web.Request) -> web.Response:
        page = self._statuses[request[CALLER] is not None]
        return web.Response(body=await page.get(), content_type="application/json")

    def _status_page(self, *, is_trusted: bool) -> Page[bytes]:
        text = StatusText(ErrorView(redact=self._redact, is_trusted=is_trusted))
        return Page(lambda: self._observer.show(text.of))

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._metrics_page.get(), headers={"Content-Type": CONTENT_TYPE})

    def _command(self, verb: Verb) -> Handler:
        async def command(request: web.Request) -> web.Response:
            wanted = Selection.of(request[BODY])
            states = [state for state in self._app.states.snapshot() if self._is_meant(wanted, state)]
            if not states:
                known = ", ".join(sorted({state.target for state in self._app.states.snapshot()})[:20])
                raise RequestRefused(404, f"the map has no {wanted.describe()}", f"it has: {known}")
            fit = [state for state in states if verb.fits(state)]
            if not fit:
                raise RequestRefused(409, f"{wanted.describe()} is {verb.why_not}", hint_for(states))
            told = [state for state in fit if self._tell(verb, state, person(request))]
            if not told:
                raise RequestRefused(404, f"{wanted.describe()} is gone from its source", hint_for(states))
            tables = [{"source": state.database, "target": state.label} for state in told]
            return web.json_response({"verb": verb.name, "tables": tables}, status=202)

        return command

    def _tell(self, verb: Verb, state: TableState, by: str) -> bool:
        """Tell a source what is to become of a table of it; return whether it is there still.

        It takes as long as the source takes to answer: what comes of it is seen in the table's state.
        """
        sync = self._app.sync(state.source)
        try:
            getattr(sync.commands, verb.name)(state.key)
        except KeyError:  # a look has shown that a partition, or a tenant, is gone: its state is the last to go
            if any(spec.key == state.key for spec in sync.source.tables):
                raise
            return False
        _log.tell(verb.event, source=state.database, table=state.label, by=by)
        return True

    def _is_meant(self, wanted: Selection, state: TableState) -> bool:
        source = self._app.sync(state.source).source
        return wanted.has(state, source.sid, source.database)

    async def _maintain(self, request: web.Request) -> web.Response:
        """Look after tables now; the answer comes when it is done."""
        targets: list[str] = request[BODY]["targets"]
        known = {state.target for state in self._app.states.snapshot()}
        if unknown := [target for target in targets if target not in known]:
            hint = f"it has: {', '.join(sorted(known)[:20])}"
            raise RequestRefused(404, f"the map has no tables {unknown!r}", hint)
        is_full = request[BODY].get("full", False)
        found = [
            await asyncio.to_thread(upkeep.maintain, self._app.lake.maintenance, target, full=is_full)
            for target in targets
        ]
        return web.json_response(self._redact.clean({"tables": [each for each in found if each is not None]}))

    async def _reload(self, request: web.Request) -> web.Response:
        """Go by what the map's file has now, or only say what that would be."""
        is_trial = request[BODY].get("dry_run", False)
        try:
            live, may_drop = self._live_map, request[BODY].get("drop_removed")
            found = await (live.compare() if is_trial else live.reload(person(request), may_drop=may_drop))
        except ConfigError as error:
            raise refused_map(error, self._redact) from error
        return web.json_response(
            self._redact.clean({"verb": "reload", **found.as_json()}), status=200 if is_trial else 202
        )


async def _openapi(_: web.Request) -> web.Response:
    return web.json_response(openapi.document(ROUTES))


async def _docs(_: web.Request) -> web.Response:
    return web.Response(text=docs_page.page(ROUTES), content_type="text/html", headers=docs_page.HEADERS)


async def _given(request: web.Request, body: Body) -> object:
    """Return what a request brings; None if it is no JSON."""
    if FORM in request:
        return request[FORM].body(body)
    try:
        whole = request if body.most is None else request.clone(client_max_size=body.most)
        return await whole.json()
    except (ValueError, RecursionError):
        return None


def _refuse_unless_may(caller: Caller | None, route: Route) -> None:
    """Refuse who may not ask for a route.

    Raises:
        RequestRefused: Nobody knows the token, or its role is too low.
    """
    if route.role is None:
        return
    if caller is None:
        hint = "it is in server.json of the state folder, or one of `server.tokens` of the map"
        raise RequestRefused(401, "the token is missing or wrong", hint)
    if not caller.role.may(route.role):
        message = f"{route.title} needs the role {route.role}, and the token of {caller.name!r} has {caller.role}"
        raise RequestRefused(
            403, message, "ask with another token, or give it that role in `server.tokens` of the map"
        )


def _target_of(request: web.Request) -> str:
    """Return the entry of the map that a path names, as in "db 3"; nothing if it names none."""
    entry = request.match_info.get("id") or request.match_info.get("name")
    return "" if entry is None else f"{request.path.split('/')[2]} {entry}"


def _target(body: Mapping[str, Any]) -> str:
    """Return what a request is to change, in words."""
    if "targets" in body:
        return ", ".join(body["targets"])
    if names := [str(body[name]) for name in ("schema", "name") if name in body]:
        return ".".join(names)
    tables = Selection.of(body).describe()
    return tables or ("the map, as a trial" if body.get("dry_run") else "the map")


def _verdict(reasons: list[str]) -> web.Response:
    if reasons:
        return web.json_response({"ok": False, "reasons": reasons}, status=503)
    return web.json_response({"ok": True})


__all__ = ["Answers"]
