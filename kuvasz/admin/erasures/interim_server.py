"""What is answered while rows are erased, and nothing replicates: that kuvasz lives, and how far it is."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz import __version__
from kuvasz.admin import door, metrics
from kuvasz.admin.api.callers import Callers
from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.door import Handler
from kuvasz.admin.erasures.erasure_answers import erasures_told
from kuvasz.admin.server import announced, url_of
from kuvasz.admin.tls import Tls
from kuvasz.config.secrets import Redactor
from kuvasz.errors import KuvaszError
from kuvasz.state.ports import ServerAddress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kuvasz.admin.erasures.erasure_book import ErasureBook
    from kuvasz.config.load import Loaded
    from kuvasz.state.ports import StateStore

_WHY = "rows are being erased: nothing is replicated meanwhile"


@contextlib.asynccontextmanager
async def serve(loaded: Loaded, stored: StateStore, book: ErasureBook) -> AsyncIterator[None]:
    """Answer while the body runs, unless `server.address` is null.

    Args:
        loaded: The map.
        stored: Where url and token are left for the verbs.
        book: Knows the erasures.

    Raises:
        ConfigError: The address cannot be listened on, or the certificate not be used.
    """
    config = loaded.config.server
    if config.address is None or config.host is None:
        yield
        return
    token = secrets.token_urlsafe(32)
    application = web.Application(middlewares=[door.only_for([*config.hosts, config.host]), _told])
    callers = Callers(token, lambda: config.tokens)
    application.add_routes(_routes(erasures_told(book, Redactor(loaded.secrets).clean), callers))
    tls = None if config.tls is None else Tls(config.tls)
    runner = web.AppRunner(application, access_log=None, **door.LIMITS)
    await runner.setup()
    listening = None
    try:
        listening = await door.listen(runner, config, tls)
        url = url_of(listening, "http" if tls is None else "https")
        with announced(stored.address, ServerAddress(url=url, token=token)):
            yield
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()


def _routes(erasures: Mapping[str, Handler], callers: Callers) -> list[web.RouteDef]:
    begun_at = _now()

    async def lives(_: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def is_not_ready(_: web.Request) -> web.Response:
        return web.json_response({"ok": False, "reasons": [_WHY]}, status=503)

    async def status(_: web.Request) -> web.Response:
        return web.json_response(_status(begun_at))

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=metrics.of_standby(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def not_now(_: web.Request) -> web.Response:
        raise RequestRefused(503, _WHY, "GET /api/erasure says how far that is; ask again afterwards")

    def known(handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if await callers.of(request) is None:
                raise RequestRefused(
                    401, "the token is missing or wrong",
                    "it is in server.json of the state folder, or one of `server.tokens` of the map",
                )  # fmt: skip
            return await handler(request)

        return answer

    return [
        web.get("/livez", lives),
        web.get("/readyz", is_not_ready),
        web.get("/status", status),
        web.get("/metrics", measured),
        web.get("/api/erasure", known(erasures["erasure_list"])),
        web.get("/api/erasure/{id}", known(erasures["erasure_get"])),
        web.route("*", "/{rest:.*}", not_now),
    ]


def _status(begun_at: str) -> dict[str, Any]:
    return {
        "version": __version__, "phase": "erasing", "started_at": begun_at, "at": _now(), "waiting_bytes": 0,
        "memory_bytes": 0, "commit_conflicts": 0, "live": True, "ready": False, "sources": [], "released": [],
        "log": None, "maintenance": [],
    }  # fmt: skip


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer refusals and our own errors as JSON."""
    try:
        return await handler(request)
    except RequestRefused as refused:
        return refused.answer()
    except KuvaszError as error:
        return RequestRefused(500, error.message, error.hint).answer()


__all__ = ["serve"]
