"""The page ``/api/support``: all that `kuvasz support` asks a running kuvasz for, in one answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kuvasz.admin import views
from kuvasz.admin.about import EventRows
from kuvasz.admin.report.last_events import LastEvents
from kuvasz.admin.report.threads import tasks, threads
from kuvasz.admin.views import ErrorView
from kuvasz.events import heard_by

if TYPE_CHECKING:
    from kuvasz.admin.observer import Observer
    from kuvasz.config.secrets import Redactor

#: Seconds for the status: where it takes longer, the stacks say why.
_STATUS_S = 5.0


class RunningReport:
    """What one application tells of itself. It quotes no row, whoever asks: what comes of it goes to others.

    Args:
        observer: Sees the application.
        redact: Takes secrets out.
        namespace: The namespace of the tables about the lake, whose own events are nobody's concern.
    """

    def __init__(self, observer: Observer, redact: Redactor, namespace: str | None) -> None:
        self._observer = observer
        self._redact = redact
        self._events = LastEvents(EventRows(namespace or "", redact))

    def hearing(self) -> AbstractContextManager[None]:
        """Return what keeps the last events for as long as it is entered."""
        return heard_by(self._events.hear)

    def events_of(self, source: str) -> list[dict[str, Any]]:
        """Return the last events of a source, the oldest first."""
        return self._events.of(source)

    async def answer(self, _: web.Request) -> web.Response:
        """Answer with status, threads, tasks and the last events."""
        told = {"pid": os.getpid(), "threads": threads(), "tasks": tasks(), "events": self._events.all()}
        body = await asyncio.to_thread(_text, self._redact.clean, {**told, "status": await self._status()})
        return web.Response(body=body, content_type="application/json")

    async def _status(self) -> object:
        """Return what ``/status`` says; None if it takes too long."""
        errors = ErrorView(redact=self._redact)
        try:
            async with asyncio.timeout(_STATUS_S):
                return await self._observer.show(lambda now: views.status(now, errors))
        except TimeoutError:
            return None


def _text(clean: Callable[[object], object], value: object) -> bytes:
    return json.dumps(clean(value)).encode()


__all__ = ["RunningReport"]
