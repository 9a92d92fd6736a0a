"""All webhooks of a map, for as long as an application runs: those of the map that runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin import exposition
from kuvasz.admin.about import EventRows
from kuvasz.admin.notices import notice, webhook
from kuvasz.admin.notices.webhook import Webhook
from kuvasz.events import Event, heard_by

if TYPE_CHECKING:
    from kuvasz.config.model import WebhookConfig
    from kuvasz.ports import About
    from kuvasz.state.ports import StoredNotices

#: Seconds that a request under way gets when kuvasz stops.
_STOP_S: Final = 2.0

#: The same when a webhook leaves the map: nobody waits for that but one that comes in its place.
_LEAVE_S: Final = 30.0

#: Metric -> kind and help.
METRICS: Final = {
    "kuvasz_notified_total": ("counter", "Entries that a webhook of `notify` has taken since the start."),
    "kuvasz_notices_dropped_total": ("counter", "Entries for a webhook that found no room, and are lost."),
    "kuvasz_notify_failing": ("gauge", "1 while a webhook of `notify` does not take what it is told."),
}


class Webhooks:
    """The webhooks. On the loop.

    Args:
        notify: Returns what the map that runs says of them.
        about: Tells of commits.
        stored: Where is kept how far they have been told.
        redact: Takes secrets out.
        is_on: Whether there is a lake to look at; what happens meanwhile waits.
    """

    def __init__(
        self,
        notify: Callable[[], Sequence[WebhookConfig]],
        about: About,
        stored: StoredNotices,
        redact: Callable[[str], str],
        is_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._notify = notify
        self._about = about
        self._stored = stored
        self._is_on = is_on
        self._seen = tuple(notify())
        self.all: tuple[Webhook, ...] = tuple(self._made(one) for one in self._seen)
        self._told: dict[Webhook, tuple[threading.Event, list[threading.Thread]]] = {}
        self._events = EventRows(about.namespace or "", redact)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tell while the body runs."""
        for one in self.all:
            self._begin(one)
        try:
            with heard_by(self._hear):
                yield
        finally:
            self._end(self.all, _STOP_S)

    async def run(self) -> None:
        """Go by what the map says, until cancelled; those that the map has as before are left alone."""
        while True:
            await asyncio.sleep(webhook.STEP_S)
            wanted = tuple(self._notify())
            if wanted == self._seen:
                continue
            leaving = [one for one in self.all if one.config not in wanted]
            staying = [one for one in self.all if one.config in wanted]
            made = [self._made(config) for config in wanted if not any(one.config == config for one in staying)]
            self.all, self._seen = (*staying, *made), wanted  # what happens from here on they hear
            await asyncio.to_thread(self._end, leaving, _LEAVE_S)  # before one of the same name goes on where it was
            for one in self.all:
                self._begin(one)

    def _made(self, config: WebhookConfig) -> Webhook:
        return Webhook(config, self._about, self._stored)

    def _begin(self, one: Webhook) -> None:
        """Have a webhook told, and what it waits for kept, until told to stop; once."""
        if one in self._told:
            return
        stop = threading.Event()
        threads = [
            threading.Thread(target=one.run, args=(stop, self._is_on), name=f"notify {one.label}", daemon=True),
            threading.Thread(target=_keep, args=(one, stop), name=f"notify {one.label}, kept", daemon=True),
        ]
        self._told[one] = stop, threads
        for thread in threads:
            thread.start()

    def _end(self, leaving: Iterable[Webhook], timeout_s: float) -> None:
        """Have webhooks told no more; what waits is kept. Blocks."""
        ended = [(one, *self._told.pop(one, (threading.Event(), []))) for one in leaving]
        for _, stop, _ in ended:
            stop.set()
        for one, _, threads in ended:
            for thread in threads:
                thread.join(timeout_s)
            one.keep()

    def metrics(self) -> Iterator[str]:
        """Yield what is counted of them."""
        values = [(one.label, one.counts) for one in self.all]
        for name, found in (
            ("kuvasz_notified_total", [((label,), counts.told) for label, counts in values]),
            ("kuvasz_notices_dropped_total", [((label,), counts.dropped) for label, counts in values]),
            ("kuvasz_notify_failing", [((label,), float(one.failing_since is not None)) for label, one in values]),
        ):
            kind, text = METRICS[name]
            yield exposition.family(name, text, kind, ("webhook",), found)

    def _hear(self, event: Event, facts: Mapping[str, object]) -> None:
        kind = notice.kind_of(event)
        if kind is None:
            return
        for row in self._events.of(event, facts):
            for one in self.all:
                one.hear(kind, notice.of_event(kind, row))


def _keep(one: Webhook, stop: threading.Event) -> None:
    """Keep what happened, until told to stop: whoever tells it may be waiting for an answer."""
    while not stop.wait(webhook.STEP_S):
        one.keep()


__all__ = ["METRICS", "Webhooks"]
