"""One webhook: what it has not been told yet, and the thread that tells it.

Commits are read off the snapshots of the lake's tables, from the one on of which it was told last, so they need no
room here, and a kill loses none. Whatever else happens waits in bounded memory, and a second later in the state
store. What was told is noted when the webhook has said yes, so it may be told twice, and never out of order.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kuvasz import __version__
from kuvasz.admin.notices import notice
from kuvasz.admin.notices.alarms import Alarms
from kuvasz.admin.notices.post import NotTaken, post
from kuvasz.backoff import Backoff
from kuvasz.config.model import NoticeKind
from kuvasz.errors import KuvaszError, StateError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from kuvasz.admin.notices.notice import Entry
    from kuvasz.config.model import WebhookConfig
    from kuvasz.ports import About
    from kuvasz.state.ports import StoredNotices

_log = EventLog(__name__)

#: Between looks at whether there is something to keep, or to tell.
STEP_S: Final = 1.0

#: Entries of one request, and those that wait and are no commits.
_MOST: Final = 500
_MOST_WAITING: Final = 10_000

#: Files were merged: no row is another one.
_NO_NEWS: Final = "maintenance"

_LONGEST_WAIT_S: Final = 300.0

Post = Callable[[str, bytes, Mapping[str, str]], None]


@dataclasses.dataclass(slots=True)
class NoticeCounts:
    """What is counted of a webhook since the start."""

    told: int = 0
    dropped: int = 0
    failing_since: float | None = None  #: unix seconds


@dataclasses.dataclass(slots=True)
class NoticeProgress:
    """How far a webhook has been told; what is kept over restarts."""

    since_ms: int
    number: int = 1
    seen: dict[str, str] = dataclasses.field(default_factory=dict)  #: target -> up to which snapshot
    waiting: collections.deque[Entry] = dataclasses.field(default_factory=collections.deque)
    #: targets of which what there was before it has been passed: all that follows is told, whatever the clocks say
    begun: set[str] = dataclasses.field(default_factory=set)
    alarms: Alarms = dataclasses.field(default_factory=Alarms)  #: what goes on failing
    is_whole: bool = True  #: what was kept before is part of it
    sending: int = 0  #: of what waits, those at the front that a request has

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> NoticeProgress:
        """Return it from its JSON.

        Raises:
            KeyError: The JSON is another one's; so for ValueError, TypeError and AttributeError.
        """
        return cls(
            int(found["since_ms"]), int(found["number"]),
            {str(target): str(seen) for target, seen in found["seen"].items()},
            collections.deque(dict(entry) for entry in found["waiting"]),
            {str(target) for target in found.get("begun", found["seen"])},
            Alarms(found.get("alarms")),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            "since_ms": self.since_ms, "number": self.number, "seen": dict(self.seen), "waiting": list(self.waiting),
            "begun": sorted(self.begun), "alarms": self.alarms.as_json(),
        }  # fmt: skip


class Webhook:
    """One webhook. `hear` is called in any thread; the rest in its own, or by a test.

    Args:
        config: What the map says of it.
        about: Tells of commits.
        stored: Where is kept how far it has been told.
        send: Sends a request.
    """

    def __init__(self, config: WebhookConfig, about: About, stored: StoredNotices, send: Post = post) -> None:
        self.config = config
        self._about = about
        self._stored = stored
        self._send = send
        self._lock = threading.Lock()  #: of what waits
        self._told = NoticeProgress(since_ms=int(time.time() * 1000), is_whole=False)
        self._is_new = True  #: something waits that is not kept
        self._standing: dict[str, object] = {}  #: target -> what it was like when all of it had been told
        self._backoff = Backoff(last_s=_LONGEST_WAIT_S)
        self._due = 0.0
        self._why = ""
        self.counts = NoticeCounts()

    @property
    def label(self) -> str:
        """What it is called."""
        return self.config.label

    def hear(self, kind: NoticeKind, entry: Entry) -> None:
        """Have something told, if the map wants it to be, and it is news."""
        if kind not in self.config.on:
            return
        with self._lock:
            if not self._told.alarms.is_news(entry, time.time()):
                return
            is_full = self._add(entry)
        if is_full and self.counts.dropped % _MOST_WAITING == 1:
            _log.tell(Event.NOTICES_DROPPED, webhook=self.label, entries=self.counts.dropped)

    def _add(self, entry: Entry) -> bool:
        """Have something wait to be told; return whether something else had to go for it."""
        self._told.waiting.append(entry)
        self._is_new = True
        if is_full := len(self._told.waiting) > _MOST_WAITING:
            self._drop()
            self.counts.dropped += 1
        return is_full

    def _drop(self) -> None:
        """Have the oldest go of the source of which most waits: what one of them floods with costs no other's."""
        waiting = self._told.waiting
        ((fullest, _),) = collections.Counter(one.get("source") for one in waiting).most_common(1)
        at = next(place for place, one in enumerate(waiting) if one.get("source") == fullest)
        del waiting[at]
        self._told.sending -= at < self._told.sending

    def run(self, stop: threading.Event, is_on: Callable[[], bool]) -> None:
        """Tell what there is to tell, until told to stop."""
        while not stop.wait(STEP_S):
            if is_on():
                self.step(time.monotonic(), stop.is_set)

    def step(self, now: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Tell what waits, if it is time. Nothing that fails here may stop anything else."""
        if now < self._due:
            return
        self._due = now + self.config.batch
        try:
            self._know()
            while self._tell_some() and not is_over():
                pass
        except NotTaken as error:
            self._due = now + self._backoff.next_s(random.random())  # noqa: S311 (those that failed together)
            self._fail(str(error))
        except (KuvaszError, OSError) as error:
            self._fail(error.message if isinstance(error, KuvaszError) else str(error))
        except Exception as error:  # noqa: BLE001 (as it says)
            self._fail(repr(error))

    def _know(self) -> None:
        """Take over how far it has been told, once; it is new if nothing is kept.

        Raises:
            StateError: The store does not answer: until it does nothing is told, or kept in place of what it has.
        """
        if self._told.is_whole:
            return
        kept = self._stored.all().get(self.label)
        with self._lock:
            if kept is not None and not self._told.is_whole:
                with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
                    before = NoticeProgress.of_json(kept)
                    now = time.time()
                    before.waiting.extend(one for one in self._told.waiting if before.alarms.is_news(one, now))
                    before.alarms.follow(self._told.alarms)
                    self._told = before
            self._told.is_whole = True

    def _tell_some(self) -> bool:
        """Tell what one request takes; whether there may be more."""
        with self._lock:
            for entry in self._told.alarms.over(time.time()):
                self._add(entry)
            entries = list(itertools.islice(self._told.waiting, _MOST))
            self._told.sending = len(entries)
        waited, seen, standing, begun = len(entries), dict(self._told.seen), dict(self._standing), {*self._told.begun}
        if NoticeKind.COMMIT in self.config.on:
            entries += self._commits(_MOST - waited, seen, standing, begun)
        if entries:
            body = notice.body_of(self.label, self._told.number, entries)
            at_s = int(time.time())
            headers = {
                "Content-Type": "application/json", "User-Agent": f"kuvasz/{__version__}",
                notice.SIGNATURE: notice.signature(self.config.secret.get(), at_s, body),
            }  # fmt: skip
            self._send(self.config.webhook.get(), body, headers)
            self._succeed(len(entries))
        with self._lock:
            has_moved = bool(entries) or seen != self._told.seen or begun != self._told.begun
            self._is_new = self._is_new or has_moved
            for _ in range(self._told.sending):  # some may have been dropped meanwhile
                self._told.waiting.popleft()
            self._told.sending = 0
            self._told.number += bool(entries)
            self._told.seen, self._told.begun = seen, begun
        self._standing = standing
        self.keep()
        return has_moved

    def _commits(self, most: int, seen: dict[str, str], standing: dict[str, object], begun: set[str]) -> list[Entry]:
        """Return commits that nobody was told of, and note that in `seen`, `standing` and `begun`."""
        found: list[Entry] = []
        for target, now in self._about.standing().items():
            if standing.get(target) == now or len(found) >= most:
                continue
            rows, seen_now, missed = self._about.commits_after(target, seen.get(target), most - len(found))
            is_all = len(rows) < most - len(found)
            told = [
                row
                for row in rows
                if row["kind"] != _NO_NEWS
                and (target in begun or row["committed_at"].timestamp() * 1000 >= self._told.since_ms)
            ]
            if told or is_all:
                begun.add(target)
            if is_all:
                standing[target] = now
            if missed and is_all and not told:
                continue  # the next one that is told says how many are missing, or nobody does
            seen[target] = seen_now
            found += [notice.of_commit(row, 0 if number else missed) for number, row in enumerate(told)]
        return found

    def _succeed(self, entries: int) -> None:
        self.counts.told += entries
        self._backoff.reset()
        if self.counts.failing_since is not None:
            _log.tell(Event.NOTICES_GO_ON, webhook=self.label)
        self.counts.failing_since, self._why = None, ""

    def _fail(self, why: str) -> None:
        self.counts.failing_since = self.counts.failing_since or time.time()
        if why != self._why:
            self._why = why
            _log.tell(Event.NOTICES_FAILED, webhook=self.label, error=why)

    def keep(self) -> None:
        """Have kept what is not: also while a request waits for its answer."""
        try:
            self._know()
        except StateError:  # who tells says so
            return
        with self._lock:
            if not self._is_new:
                return
            self._is_new, told = False, self._told.as_json()
        self._stored.put(self.label, told)


__all__ = ["STEP_S", "NoticeCounts", "Webhook"]
