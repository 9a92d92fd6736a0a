"""What a process that stands by answers over HTTP: that it lives, is ready, and who replicates."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import door, metrics
from kuvasz.admin.tls import Tls
from kuvasz.events import EventLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kuvasz.config.model import ServerConfig
    from kuvasz.verbs.cluster.standby import Standby

_log = EventLog(__name__)


@contextlib.asynccontextmanager
async def serve(
    standby: Standby, config: ServerConfig, show: Callable[[], dict[str, Any]] | None = None
) -> AsyncIterator[None]:
    """Answer while the body runs, unless `server.address` is null.

    Args:
        standby: The process.
        config: Where.
        show: Returns what `/status` says instead, of one whose turn has come, and who only reads.

    Raises:
        ConfigError: The address cannot be listened on, or the certificate not be used.
    """
    if config.address is None or config.host is None:
        yield
        return
    application = web.Application(middlewares=[door.only_for([*config.hosts, config.host])])

    async def lives(_: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def status(_: web.Request) -> web.Response:
        return web.json_response(_status(standby) if show is None else {"node": standby.node, **show()})

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=metrics.of_standby(), headers={"Content-Type": metrics.CONTENT_TYPE})

    answers = {"/livez": lives, "/readyz": lives, "/status": status, "/metrics": measured}
    application.add_routes([web.get(path, answer) for path, answer in answers.items()])
    runner = web.AppRunner(application, access_log=None, **door.LIMITS)
    await runner.setup()
    listening = None
    try:
        listening = await door.listen(runner, config, None if config.tls is None else Tls(config.tls))
        yield
    finally:
        if listening is not None:
            listening.close()
        await runner.cleanup()


def _status(standby: Standby) -> dict[str, Any]:
    holder = standby.holder
    return {
        "phase": "standing by",
        "node": standby.node,
        "holder": None if holder is None else {"node": holder.node, "since": holder.since},
        "has_other_map": standby.differs,
    }


__all__ = ["serve"]
