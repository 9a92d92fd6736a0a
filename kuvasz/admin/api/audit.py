"""The audit: an event for each request that is to change something, with who asked for what and what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.config.check import NOBODY
from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog

_log = EventLog(__name__)

#: Seconds between two events of requests by nobody: whoever reaches the server must not fill log and lake.
PAUSE_S: Final = 10.0

#: Characters of a text of others that an event shows.
_LONGEST: Final = 200


@dataclasses.dataclass(slots=True, kw_only=True)
class AuditEntry:
    """What is known of a request so far."""

    what: str  #: as in "POST /api/pause"
    client: str  #: the address it comes from
    by: str = NOBODY  #: the name of the token
    person: str = ""  #: on whose behalf one of kuvasz's own verbs asks, as that says
    target: str = ""  #: what is to be changed
    status: int | None = None  #: of the answer; None: there is none yet


class Audit:
    """Tells of requests. On the loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._untold = 0  #: requests by nobody since the last that was told

    @contextlib.contextmanager
    def over(self, entry: AuditEntry) -> Iterator[None]:
        """Tell of a request when the body ends, in which it is carried out, and fills the entry."""
        told = _facts(Event.AUDIT_FAILED, "failed")
        try:
            yield
            told = _facts(Event.AUDIT_DONE, "done")
        except RequestRefused as refused:
            entry.status = refused.status
            told = _facts(Event.AUDIT_REFUSED, "refused", reason=refused.message)
            raise
        except web.HTTPException as error:
            entry.status = error.status
            told = _facts(Event.AUDIT_REFUSED, "refused", reason=error.reason.lower())
            raise
        except KuvaszError as error:
            entry.status = 500
            told = _facts(Event.AUDIT_FAILED, "failed", error=str(error))
            raise
        finally:
            self._tell(entry, *told)

    def _tell(self, entry: AuditEntry, event: Event, facts: dict[str, object]) -> None:
        if entry.by == NOBODY:
            if self._clock() < self._quiet_until:
                self._untold += 1
                return
            facts |= {"untold": self._untold} if self._untold else {}
            self._quiet_until, self._untold = self._clock() + PAUSE_S, 0
        known = {"by": entry.by, "person": entry.person, "what": entry.what, "target": entry.target}
        shown = {name: text[:_LONGEST] for name, text in known.items() if text}
        _log.tell(event, **shown, status=entry.status, client=entry.client, **facts)


def _facts(event: Event, result: str, **more: object) -> tuple[Event, dict[str, object]]:
    return event, {"result": result, **more}


__all__ = ["PAUSE_S", "Audit", "AuditEntry"]
