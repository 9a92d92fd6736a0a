"""What the lake has by now goes: first what the index says of it, then the objects, and then what it says of those.

So nothing is left behind, whatever fails between: an object is known until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kuvasz.errors import KuvaszError
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.staged.ports import LogIndex

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

    def look(self, sources: Iterable[StagedSource]) -> None:
        """Tell the index how far the lake is with sources, and what is gone, and ask what may go."""
        begun = {source.name: source for source in sources if source.position is not None}
        applied = {name: min(source.applied, source.known.lsn) for name, source in begun.items()}
        moved = {name: lsn for name, lsn in applied.items() if lsn > begun[name].known.applied}
        if not moved and not self._unneeded:
            return
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


__all__ = ["StagedRemoval"]
