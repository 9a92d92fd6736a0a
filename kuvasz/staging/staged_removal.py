"""What the lake has by now goes: first what the index says of it, then the objects, and then what it says of those.

So nothing is left behind, whatever fails between: an object is known until it is gone. Of a log that is long some
goes at a time, for as long as nothing else has to wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kuvasz.errors import KuvaszError, StateTaken
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.staged.ports import LogGroup, LogIndex, RemovalRound

_log = EventLog(__name__)

#: Seconds between two looks at what others need no more: a group that is ahead, or was retired.
_ASK_S: Final = 10.0

#: Seconds that a group of the log may be behind before that is told.
_LATE_S: Final = 300.0

#: Objects that are removed at a time, and seconds after which no further ones are: nothing is staged meanwhile.
_MOST: Final = 128
_SPENT_S: Final = 0.2

#: Seconds for which nothing could go, before that is told: what is away for a moment is told of elsewhere.
_STUCK_S: Final = 60.0


class _Stuck:
    """One of the two that are asked, and for how long it has refused."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._limit = EventLimit()

    def fails(self, why: str) -> None:
        """Tell that it refuses, if that lasts."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now >= self._since + _STUCK_S and self._limit.is_news():
            _log.tell(Event.LOG_STUCK, error=why)

    def goes_on(self) -> None:
        """Take note that it did what was asked."""
        self._since = None
        self._limit.over()


class StagedRemoval:
    """The removal.

    Args:
        index: Where it is known what is staged.
        store: Where objects are.
    """

    def __init__(self, index: LogIndex, store: ObjectStore) -> None:
        self._index = index
        self._store = store
        self._round = RemovalRound([], is_full=False, is_all=True)  #: what the index said last
        self._removed: list[str] = []  #: those of its objects that are gone
        self.objects = 0  #: how many there are, as far as is known
        self.groups: Sequence[LogGroup] = ()  #: others that hear what is staged, as they were seen last
        self._told: frozenset[str] = frozenset()  #: those of them that are behind
        self._asked_at = self._seen_at = time.monotonic()
        self._index_stuck, self._store_stuck = _Stuck(), _Stuck()

    def look(self, sources: Iterable[StagedSource]) -> None:
        """Tell the index how far the lake is with sources, and what is gone, and ask what may go."""
        begun = {source.name: source for source in sources if source.position is not None}
        applied = {name: min(source.applied, source.known.lsn) for name, source in begun.items()}
        moved = {name: lsn for name, lsn in applied.items() if lsn > begun[name].known.applied}
        is_quiet = not moved and not self._round.names and self._round.is_all
        if (not is_quiet or time.monotonic() >= self._asked_at + _ASK_S) and self._ask(moved):
            for name, lsn in moved.items():
                begun[name].noted(lsn)

    def _ask(self, moved: Mapping[str, int]) -> bool:
        """Have the index take a round; return whether it did: else it is tried again, with what is applied then."""
        self._asked_at = time.monotonic()
        try:
            self._round = self._index.applied(moved, self._removed, _MOST)
        except StateTaken:
            return False  # the process ends
        except KuvaszError as error:
            self._index_stuck.fails(str(error))
            return False
        self._index_stuck.goes_on()
        self.objects -= len(self._removed)
        self._removed = []
        return True

    def remove(self) -> None:
        """Remove what may go, as far as that can be done now: the rest is tried again."""
        end = time.monotonic() + _SPENT_S
        self._remove()
        while self._round.is_full and time.monotonic() < end and self._ask({}):
            self._remove()
        if time.monotonic() >= self._seen_at + _ASK_S:
            self._seen_at = time.monotonic()
            self._see_groups()

    def _remove(self) -> None:
        names = self._round.names
        if not names or self._removed:
            return  # the index is to know first of what is gone
        self._removed = self._store.remove(names)
        if left := len(names) - len(self._removed):
            place = self._store.place
            self._store_stuck.fails(f"{left} objects cannot be removed: see that kuvasz may delete in {place}")
        else:
            self._store_stuck.goes_on()

    def _see_groups(self) -> None:
        """Look how far other groups are, and tell of those that keep the log from getting shorter for long."""
        try:
            self.groups = self._index.groups()
        except KuvaszError:
            return  # whatever else is asked tells
        if self._index.group is not None:
            return
        late = {one.name: one for one in self.groups if one.behind_s is not None and one.behind_s > _LATE_S}
        for name in sorted(late.keys() - self._told):
            _log.tell(Event.LOG_GROUP_LATE, log_group=name, objects=late[name].objects, is_applied=late[name].lives)
        self._told = frozenset(late)


__all__ = ["StagedRemoval"]
