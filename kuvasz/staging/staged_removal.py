"""What the lake has by now goes: first what the index says of it, then the objects, and then what it says of those.

So nothing is left behind, whatever fails between: an object is known until it is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.staged.ports import LogGroup, LogIndex

_log = EventLog(__name__)

#: Seconds between two looks at what others need no more: a group that is ahead, or was retired.
_ASK_S: Final = 10.0

#: Seconds that a group of the log may be behind before that is told.
_LATE_S: Final = 300.0

#: Objects that are removed at a time: nothing is staged meanwhile.
_MOST: Final = 64


class StagedRemoval:
    """The removal.

    Args:
        index: Where it is known what is staged.
        store: Where objects are.
    """

    def __init__(self, index: LogIndex, store: ObjectStore) -> None:
        self._index = index
        self._store = store
        self._unneeded: list[str] = []  #: objects that may go, as the index said last
        self._removed: list[str] = []  #: those of them that are gone
        self.objects = 0  #: how many there are, as far as is known
        self.groups: Sequence[LogGroup] = ()  #: others that hear what is staged, as they were seen last
        self._told: frozenset[str] = frozenset()  #: those of them that are behind
        self._asked_at = self._seen_at = time.monotonic()

    def look(self, sources: Iterable[StagedSource]) -> None:
        """Tell the index how far the lake is with sources, and what is gone, and ask what may go."""
        begun = {source.name: source for source in sources if source.position is not None}
        applied = {name: min(source.applied, source.known.lsn) for name, source in begun.items()}
        moved = {name: lsn for name, lsn in applied.items() if lsn > begun[name].known.applied}
        if not moved and not self._unneeded and time.monotonic() < self._asked_at + _ASK_S:
            return
        self._asked_at = time.monotonic()
        try:
            self._unneeded = self._index.applied(moved, self._removed, _MOST)
        except KuvaszError:
            return  # it is tried again with whatever is applied then
        self.objects -= len(self._removed)
        self._removed = []
        for name, lsn in moved.items():
            begun[name].noted(lsn)

    def remove(self) -> None:
        """Remove what may go, as far as that can be done now: the rest is tried again."""
        if self._unneeded and not self._removed:
            self._removed = self._store.remove(self._unneeded)
        if time.monotonic() >= self._seen_at + _ASK_S:
            self._seen_at = time.monotonic()
            self._see_groups()

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
