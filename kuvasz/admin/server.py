"""The HTTP server: health, status, metrics, and what a person may tell a running kuvasz.

It runs on the readers' loop; what it shows of thousands of tables is made elsewhere (`kuvasz.admin.observer`).

What only looks needs no password; what changes something, or may quote rows, needs the token that lies, readable by
its owner alone, in the state folder, where the verbs find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets as random_secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import door, upkeep, views
from kuvasz.admin.about import telling
from kuvasz.admin.commands import VERBS, Selection, Verb, hint_for
from kuvasz.admin.door import ConnectionLimit, Handler
from kuvasz.admin.live_map import LiveMap
from kuvasz.admin.metrics import CONTENT_TYPE, Metrics
from kuvasz.admin.observer import Observer
from kuvasz.admin.page import Page
from kuvasz.admin.views import ErrorView
from kuvasz.config.secrets import Redactor
from kuvasz.errors import ConfigError, KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import ServerAddress

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import ServerConfig
    from kuvasz.state.ports import StoredAddress

_log = EventLog(__name__)

#: Seconds that answers under way get when kuvasz stops.
_STOP_S = 2.0

#: Characters of a name that the log shows.
_LONGEST_PERSON = 100

_COMMANDS = ", ".join(f"POST /api/{verb.name}" for verb in VERBS)
_PATHS = f"/livez, /readyz, /status, /metrics, {_COMMANDS}, POST /api/maintain and POST /api/map/reload"


@contextlib.asynccontextmanager
async def serve(
    app: App, stored: StoredAddress, secrets: Iterable[str] = (), loaded: Loaded | None = None
) -> AsyncIterator[AdminServer]:
    """Observe an application while the body runs, and serve what is seen unless `server.address` is null.

    Args:
        app: Looked at and steered.
        stored: Where url and token are left for the verbs.
        secrets: To be kept out of answers.
        loaded: What it was started with, and what its map is read again by.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    server = AdminServer(app, secrets, loaded)
    if app.config.server.address is None or app.config.server.host is None:
        async with _observing(server), _living(server.live_map):
            yield server
        return
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=_STOP_S, **door.LIMITS)
    await runner.setup()
    listening: asyncio.Server | None = None
    try:
        listening = await _listen(runner, app.config.server)
        server.url = _url(listening)
        with _announced(stored, ServerAddress(url=server.url, token=server.token)):
            async with _observing(server), _living(server.live_map):
                _log.tell(Event.SERVING, url=server.url)
                yield server
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _observing(server: AdminServer) -> AsyncIterator[None]:
    watching = asyncio.create_task(_watch(server.observer), name="observer")
    try:
        async with server.telling():
            yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        server.observer.close()


@contextlib.asynccontextmanager
async def _living(live_map: LiveMap) -> AsyncIterator[None]:
    """Have the map's file read again while the body runs."""
    watching = asyncio.create_task(live_map.run(), name="map")
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _watch(observer: Observer) -> None:
    try:
        await observer.run()
    except Exception:  # noqa: BLE001 (the owner of the task: who only looks must stop nothing)
        _log.tell(Event.BUG_IN_OBSERVER)


class AdminServer:
    """The pages of one application.

    Args:
        app: The application that is seen and steered.
        secrets: What must not be shown wherever it stands.
        loaded: What it was started with.
    """

    def __init__(self, app: App, secrets: Iterable[str] = (), loaded: Loaded | None = None) -> None:
        self.url: str | None = None  #: where it is reached from this machine; None: not by HTTP
        self.token = random_secrets.token_urlsafe(32)
        self.observer = Observer(app)
        self.metrics = Metrics(app.config.server.metrics)
        self._app = app
        self.redact = Redactor(secrets)  #: takes what must not be shown out of texts
        self.live_map = LiveMap(app, loaded)
        self.live_map.on_secrets.append(self.redact.learn)
        self._statuses = [self._status_page(is_trusted=False), self._status_page(is_trusted=True)]
        self._metrics_page = Page(lambda: self.observer.show(self.metrics.render))
        app.receipts.observe(self.metrics.note)

    def telling(self) -> AbstractAsyncContextManager[None]:
        """Return what tells the lake of the application for as long as it is entered."""
        return telling(self._app, self.observer, self.redact)

    def application(self) -> web.Application:
        """Return the routes."""
        server = self._app.config.server
        named = door.only_for([*server.hosts, *([] if server.host is None else [server.host])])
        application = web.Application(middlewares=[named, _told], client_max_size=door.MOST_BODY)
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                *(web.post(f"/api/{verb.name}", self._guarded(self._command(verb))) for verb in VERBS),
                web.post("/api/maintain", self._guarded(self._maintain)),
                web.post("/api/map/reload", self._guarded(self._reload)),
            ]
        )
        return application

    async def _livez(self, _: web.Request) -> web.Response:
        return _verdict(await self.observer.show(views.livez))

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(await self.observer.show(views.readyz))

    async def _status(self, request: web.Request) -> web.Response:
        page = self._statuses[door.has_token(request, self.token)]
        return web.Response(body=await page.get(), content_type="application/json")

    def _status_page(self, *, is_trusted: bool) -> Page:
        errors = ErrorView(redact=self.redact, is_trusted=is_trusted)
        return Page(lambda: self.observer.show(lambda now: json.dumps(views.status(now, errors)).encode()))

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._metrics_page.get(), headers={"Content-Type": CONTENT_TYPE})

    def _command(self, verb: Verb) -> Handler:
        async def command(request: web.Request) -> web.Response:
            body = await _body(request)
            wanted = Selection.of(body)
            states = [state for state in self._app.states.snapshot() if wanted.has(state, self._sid_of(state.source))]
            if not states:
                known = ", ".join(sorted({state.target for state in self._app.states.snapshot()})[:20])
                return _refusal(404, f"the map has no {wanted.describe()}", f"it has: {known}")
            fit = [state for state in states if verb.fits(state)]
            if not fit:
                return _refusal(409, f"{wanted.describe()} is {verb.why_not}", hint_for(states))
            for state in fit:
                _log.tell(verb.event, source=state.database, table=state.label, by=_person(request, body))
                # It takes as long as the source takes to answer: what comes of it is seen in the table's state.
                getattr(self._app.sync(state.source).commands, verb.name)(state.key)
            tables = [{"source": state.database, "target": state.label} for state in fit]
            return web.json_response({"verb": verb.name, "tables": tables}, status=202)

        return command

    def _sid_of(self, source: str) -> str | None:
        return self._app.sync(source).source.sid

    async def _maintain(self, request: web.Request) -> web.Response:
        """Look after tables now; the answer comes when it is done."""
        body = await _body(request)
        targets = body.get("targets")
        known = {state.target for state in self._app.states.snapshot()}
        if not isinstance(targets, list) or not known.issuperset(map(str, targets)):
            return _refusal(404, f"the map has no tables {targets!r}", f"it has: {', '.join(sorted(known)[:20])}")
        found = [
            await asyncio.to_thread(
                upkeep.maintain, self._app.lake.maintenance, target, full=body.get("full") is True
            )
            for target in targets
        ]
        return web.json_response(self._clean({"tables": [each for each in found if each is not None]}))

    async def _reload(self, request: web.Request) -> web.Response:
        """Go by what the map's file has now, or only say what that would be."""
        body = await _body(request)
        is_trial = body.get("dry_run", False)
        if body.keys() - {"by", "dry_run"} or not isinstance(is_trial, bool):
            raise web.HTTPBadRequest(reason="The body has by, a text, and dry_run, true or false, and nothing else")
        try:
            found = await (self.live_map.compare() if is_trial else self.live_map.reload(_person(request, body)))
        except ConfigError as error:
            return _refusal(409, self.redact(error.message), error.hint and self.redact(error.hint))
        return web.json_response(self._clean({"verb": "reload", **found.as_json()}), status=200 if is_trial else 202)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if not door.has_token(request, self.token):
                return _refusal(401, "the token is missing or wrong", "it is in server.json of the state folder")
            return await handler(request)

        return guarded

    def _clean(self, value: Any) -> Any:  # noqa: ANN401 (JSON)
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {key: self._clean(entry) for key, entry in value.items()}
        return [self._clean(entry) for entry in value] if isinstance(value, list) else value


async def _listen(runner: web.AppRunner, config: ServerConfig) -> asyncio.Server:
    assert runner.server is not None
    try:
        limited = ConnectionLimit(runner.server)
        return await asyncio.get_running_loop().create_server(limited, config.host, config.port or 0)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error).lower()
        raise ConfigError(
            f"server.address: cannot listen on {config.address}: {reason}",
            hint="another kuvasz may run already; choose another address, or `null` for none",
        ) from error


def _url(listening: asyncio.Server) -> str:
    """Return where the server is reached from this machine."""
    bound = listening.sockets[0].getsockname()
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound[0], bound[0])  # noqa: S104 (where to connect to)
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{bound[1]}"


@contextlib.contextmanager
def _announced(stored: StoredAddress, address: ServerAddress) -> Iterator[None]:
    """Leave url and token where the verbs of the same user find them."""
    stored.leave(address)
    try:
        yield
    finally:
        stored.remove(address)


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer our own errors, and those of unknown paths, as JSON."""
    try:
        return await handler(request)
    except KuvaszError as error:
        return _refusal(500, error.message, error.hint)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        hint = (
            "there are /livez, /readyz, /status, /metrics, POST /api/map/reload"
            " and POST /api/{pause,resume,retry,resync,maintain}"
            if error.status == 404
            else None
        )
        return _refusal(error.status, f"{request.method} {request.path}: {error.reason.lower()}", hint)


def _person(request: web.Request, body: Mapping[str, Any]) -> str:
    """Return who asks: as the verbs say of themselves, else from where. Whoever asks has the token."""
    return str(body.get("by") or request.remote or "?")[:_LONGEST_PERSON]


def _verdict(reasons: list[str]) -> web.Response:
    if reasons:
        return web.json_response({"ok": False, "reasons": reasons}, status=503)
    return web.json_response({"ok": True})


def _refusal(status: int, message: str, hint: str | None = None) -> web.Response:
    return web.json_response({"error": message, "hint": hint}, status=status)


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        body = await request.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="The body is no JSON object")
    return body
