"""The HTTP server: health, status, metrics, and what a person may tell a running kuvasz.

What only looks needs no password; what changes something, or may quote rows, needs a token: one of the map, or the
one that lies, readable by its owner alone, in the state folder, where the verbs find it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets as random_secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import door, views
from kuvasz.admin.about import telling
from kuvasz.admin.api.answers import Answers
from kuvasz.admin.api.callers import Callers
from kuvasz.admin.api.cut_request import CutRequests
from kuvasz.admin.api.map_request import MapRequests
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.api.routes import ROUTES
from kuvasz.admin.api.verify_request import VerificationRequests
from kuvasz.admin.branches.publish_request import PublishRequests
from kuvasz.admin.door import Handler
from kuvasz.admin.entries.entry_changes import entry_handlers
from kuvasz.admin.erasures.erasure_answers import ErasureAnswers
from kuvasz.admin.live_map import LiveMap
from kuvasz.admin.looks.look_answers import LookAnswers
from kuvasz.admin.looks.wait_answers import WaitingAnswers
from kuvasz.admin.notices.webhooks import Webhooks
from kuvasz.admin.observer import Observer
from kuvasz.admin.page import Page
from kuvasz.admin.pages.pages import Pages
from kuvasz.admin.report.change_report import ChangeReport
from kuvasz.admin.report.report import RunningReport
from kuvasz.admin.schedules.cut_schedule import CutSchedule
from kuvasz.admin.schedules.verify_schedule import VerificationSchedule
from kuvasz.admin.sources.source_answers import SourceAnswers
from kuvasz.admin.tls import Tls
from kuvasz.admin.views import ErrorView
from kuvasz.config.secrets import Redactor
from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import ServerAddress

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kuvasz.admin.erasures.erasure_book import ErasureBook
    from kuvasz.admin.looks.look_answers import Look
    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.state.ports import StateStore, StoredAddress, StoredNotices, StoredNumbers

_log = EventLog(__name__)

#: Seconds until someone looks again who came to grief.
AGAIN_S = 10.0

#: Seconds that answers under way get when kuvasz stops.
_STOP_S = 2.0


@contextlib.asynccontextmanager
async def serve(
    app: App,
    stored: StateStore,
    secrets: Iterable[str] = (),
    loaded: Loaded | None = None,
    looks: Mapping[str, Look] | None = None,
    erasures: ErasureBook | None = None,
) -> AsyncIterator[AdminServer]:
    """Observe an application while the body runs, and serve what is seen unless `server.address` is null.

    Args:
        app: Looked at and steered.
        stored: Where url and token are left for the verbs, and the numbers of the map's entries are kept.
        secrets: To be kept out of answers.
        loaded: What it was started with, and what its map is read again by.
        looks: Verb -> what answers it, of those that only look.
        erasures: Notes erasures that are asked for; None: whoever calls carries none out.

    Raises:
        ConfigError: The address cannot be listened on, or the certificate not be used.
    """
    server = AdminServer(app, stored.numbers, secrets, loaded, looks, erasures)
    webhooks = server.webhooks(stored.notices)
    if app.config.server.address is None or app.config.server.host is None:
        async with _observing(server, webhooks), _living(server.live_map):
            yield server
        return
    tls = None if app.config.server.tls is None else Tls(app.config.server.tls)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=_STOP_S, **door.LIMITS)
    await runner.setup()
    listening: asyncio.Server | None = None
    try:
        listening = await door.listen(runner, app.config.server, tls)
        server.url = url_of(listening, "http" if tls is None else "https")
        with announced(stored.address, ServerAddress(url=server.url, token=server.token)):
            async with _observing(server, webhooks), _living(server.live_map), _renewing(tls):
                _log.tell(Event.SERVING, url=server.url)
                yield server
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _observing(server: AdminServer, webhooks: Webhooks) -> AsyncIterator[None]:
    try:
        async with _beside(server.observer.run, "observer"):
            with server.report.hearing(), webhooks.telling():
                async with (
                    server.changes.telling(), server.telling(), _beside(server.cut_schedule.run, "cuts"),
                    _beside(server.verify_schedule.run, "verify"), _beside(server.pages.lags.run, "lags"),
                    _beside(webhooks.run, "notify"),
                ):  # fmt: skip
                    yield
    finally:
        server.verify_schedule.close()
        server.observer.close()


@contextlib.asynccontextmanager
async def _beside(look: Callable[[], Coroutine[Any, Any, None]], name: str) -> AsyncIterator[None]:
    """Have someone look now and then while the body runs."""
    task = asyncio.create_task(_watch(look), name=name)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _living(live_map: LiveMap) -> AbstractAsyncContextManager[None]:
    """Have the map's file read again while the body runs."""
    return _beside(live_map.run, "map")


def _renewing(tls: Tls | None) -> AbstractAsyncContextManager[None]:
    """Have the certificate read again while the body runs, if there is one."""
    return contextlib.nullcontext() if tls is None else _beside(tls.run, "tls")


async def _watch(look: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Look until cancelled: what is seen of a moment, as that there is no thread to be had, must not be the last."""
    while True:
        try:
            await look()
        except Exception:  # noqa: BLE001 (the owner of the task: who only looks must stop nothing)
            _log.tell(Event.BUG_IN_OBSERVER)
        await asyncio.sleep(AGAIN_S)


class AdminServer:
    """What an application shows, and where.

    Args:
        app: The application that is seen and steered.
        numbers: What the entries of its map are called by.
        secrets: What must not be shown wherever it stands.
        loaded: What it was started with.
        looks: Verb -> what answers it, of those that only look.
        erasures: See `serve`.
    """

    def __init__(
        self,
        app: App,
        numbers: StoredNumbers,
        secrets: Iterable[str] = (),
        loaded: Loaded | None = None,
        looks: Mapping[str, Look] | None = None,
        erasures: ErasureBook | None = None,
    ) -> None:
        self.url: str | None = None  #: where it is reached from this machine; None: not by HTTP
        self.token = random_secrets.token_urlsafe(32)
        self.observer = Observer(app)
        self._app = app
        self.redact = Redactor(secrets)  #: takes what must not be shown out of texts
        self.report = RunningReport(self.observer, self.redact, app.lake.about.namespace)
        self.changes = ChangeReport()
        self.live_map = LiveMap(app, loaded)
        self.live_map.on_secrets.append(self.redact.learn)
        self.cut_schedule = CutSchedule(app)
        self.verify_schedule = VerificationSchedule(app)
        callers = Callers(self.token, lambda: app.config.server.tokens, self.live_map.on_secrets)
        entries = entry_handlers(app, self.observer, self.live_map, numbers, self.redact)
        self.pages = Pages(app, self.observer, self.redact, self.report.events_of)
        more = {
            **entries,
            **self.pages.handlers(ROUTES),
            **SourceAnswers(app, self.observer, self.live_map, self.redact, looks or {}).handlers(),
            **LookAnswers(self.live_map, looks or {}, self.redact).handlers(),
            **MapRequests(self.live_map, self.redact).handlers(),
            "wait": WaitingAnswers(
                self.live_map, (looks or {}).get("wait"), self._told_status().get, self.redact
            ).answer,
            **ErasureAnswers(app, self.live_map, looks or {}, self.redact, erasures).handlers(),
            "cut": CutRequests(app).answer,
            "publish": PublishRequests(app, self.redact).answer,
            "verify": VerificationRequests(self.live_map, self.redact).answer,
        }
        self._answers = Answers(app, self.observer, self.live_map, self.report, callers, self.redact, more)
        app.receipts.observe(self._answers.metrics.note)
        app.receipts.observe(self.changes.note)

    def _told_status(self) -> Page[dict[str, Any]]:
        """Return what `/status` says to who may see all of it."""
        errors = ErrorView(redact=self.redact, is_trusted=True)
        return Page(lambda: self.observer.show(lambda now: views.status(now, errors) | self._elsewhere()))

    def _elsewhere(self) -> dict[str, Any]:
        """Return what is added where other processes apply groups of the map, of which nothing is known here."""
        mine, mapped = self._app.groups, [group.database for group in self._app.config.databases]
        others = [] if mine is None else [name for name in mapped if name not in mine]
        told = [
            f"group {name} is applied by another process: ask that one, or all by `kuvasz wait`" for name in others
        ]
        return {"silent": told} if told else {}

    def webhooks(self, stored: StoredNotices) -> Webhooks:
        """Return the webhooks, which are counted from now on; how far they have been told is stored."""
        app = self._app
        made = Webhooks(
            lambda: app.config.notify, app.lake.about, stored, self.redact, lambda: app.phase == "running"
        )
        self._answers.metrics.more.append(made.metrics)
        return made

    def telling(self) -> AbstractAsyncContextManager[None]:
        """Return what tells the lake of the application for as long as it is entered."""
        return telling(self._app, self.observer, self.redact)

    def application(self) -> web.Application:
        """Return the routes."""
        server = self._app.config.server
        named = door.only_for([*server.hosts, *([] if server.host is None else [server.host])])
        application = web.Application(middlewares=[named, _told], client_max_size=door.MOST_BODY)
        application.add_routes(self._answers.routes())
        return application


def url_of(listening: asyncio.Server, scheme: str) -> str:
    """Return where the server is reached from this machine."""
    bound = listening.sockets[0].getsockname()
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound[0], bound[0])  # noqa: S104 (where to connect to)
    return f"{scheme}://{f'[{reachable}]' if ':' in reachable else reachable}:{bound[1]}"


@contextlib.contextmanager
def announced(stored: StoredAddress, address: ServerAddress) -> Iterator[None]:
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
    except RequestRefused as refused:
        return refused.answer()
    except KuvaszError as error:
        return RequestRefused(500, error.message, error.hint).answer()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        hint = f"there are {', '.join(route.title for route in ROUTES)}" if error.status == 404 else None
        return RequestRefused(error.status, f"{request.method} {request.path}: {error.reason.lower()}", hint).answer()
