"""All webhooks of a map, for as long as an application runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kuvasz.admin import exposition
from kuvasz.admin.about import EventRows
from kuvasz.admin.notices import notice, webhook
from kuvasz.admin.notices.webhook import Webhook
from kuvasz.events import Event, heard_by

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.ports import About
    from kuvasz.state.ports import StoredNotices

#: Seconds that a request under way gets when kuvasz stops.
_STOP_S: Final = 2.0

#: Metric -> kind and help.
METRICS: Final = {
    "kuvasz_notified_total": ("counter", "Entries that a webhook of `notify` has taken since the start."),
    "kuvasz_notices_dropped_total": ("counter", "Entries for a webhook that found no room, and are lost."),
    "kuvasz_notify_failing": ("gauge", "1 while a webhook of `notify` does not take what it is told."),
}


class Webhooks:
    """The webhooks.

    Args:
        config: The map.
        about: Tells of commits.
        stored: Where is kept how far they have been told.
        redact: Takes secrets out.
        is_on: Whether there is a lake to look at; what happens meanwhile waits.
    """

    def __init__(
        self,
        config: Config,
        about: About,
        stored: StoredNotices,
        redact: Callable[[str], str],
        is_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_on = is_on
        self.all: Sequence[Webhook] = [Webhook(one, about, stored) for one in config.notify]
        self._events = EventRows(about.namespace or "", redact)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tell while the body runs."""
        if not self.all:
            yield
            return
        stop = threading.Event()
        threads = [
            threading.Thread(target=one.run, args=(stop, self._is_on), name=f"notify {one.label}", daemon=True)
            for one in self.all
        ]  # fmt: skip
        threads.append(threading.Thread(target=self._keep, args=(stop,), name="notify keeps", daemon=True))
        for thread in threads:
            thread.start()
        try:
            with heard_by(self._hear):
                yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(_STOP_S)
            self._keep(stop)

    def _keep(self, stop: threading.Event) -> None:
        """Keep what happened, until told to stop: whoever tells it may be waiting for an answer."""
        while not stop.wait(webhook.STEP_S):
            for one in self.all:
                one.keep()
        for one in self.all:
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


__all__ = ["METRICS", "Webhooks"]
