"""The stretches of one source in memory, in their order, and how much they weigh.

There are many while the store is away, and each one that comes is weighed and looked up: sums go along, nothing is
counted again.
"""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterator, Sequence

from kuvasz.staging.stretch import Stretch


class StretchList:
    """The stretches: first those that are staged, and then those that wait to be."""

    def __init__(self) -> None:
        self._kept: collections.deque[Stretch] = collections.deque()
        self._waiting = 0  #: how many of them wait, which are the last ones
        self._waiting_bytes = 0
        self.bytes = 0  #: of all of them

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def first(self) -> Stretch:
        """The first one."""
        return self._kept[0]

    @property
    def last(self) -> Stretch:
        """The last one."""
        return self._kept[-1]

    @property
    def waiting_bytes(self) -> int | None:
        """How much waits to be staged; 0: the source only moved. None: nothing waits."""
        return self._waiting_bytes if self._waiting else None

    def add(self, stretches: Sequence[Stretch]) -> None:
        """Take what came.

        Of some that only say how far the server is, one after another, the last says it all: an idle source fills no
        memory, however long nothing can be staged.
        """
        for stretch in stretches:
            if self._waiting and self.last.only_moves and stretch.only_moves:
                self._pop()
            self._kept.append(stretch)
            self.bytes += stretch.weight
            self._waiting += 1
            self._waiting_bytes += stretch.weight if stretch.has_rows else 0

    def behind(self, number: int) -> Stretch | None:
        """Return the next one behind a number; None: there is none."""
        if not self._kept or self.last.number <= number:
            return None
        return self._kept[bisect.bisect_right(self._kept, number, key=_number)]

    def waiting(self) -> Iterator[Stretch]:
        """Yield those that wait."""
        return itertools.islice(self._kept, len(self._kept) - self._waiting, None)

    def staged(self, number: int) -> None:
        """Take note that those up to a number wait no more."""
        while self._waiting and (one := self._kept[-self._waiting]).number <= number:
            self._waiting -= 1
            self._waiting_bytes -= one.weight if one.has_rows else 0

    def drop_first(self) -> Stretch:
        """Remove the first one, which is staged, and return it."""
        first = self._kept.popleft()
        self.bytes -= first.weight
        return first

    def give_up_open(self) -> bool:
        """Remove the parts of a transaction that goes on; return whether there were any."""
        before = len(self._kept)
        while self._kept and self.last.open_lsn:
            self._pop()
        return len(self._kept) < before

    def hear_until(self, lsn: int) -> None:
        """Have none of them say that anything was heard behind an LSN: see `Stretch.until`."""
        self._kept = collections.deque(one.until(lsn) for one in self._kept)

    def clear(self) -> None:
        """Remove all."""
        self._kept.clear()
        self._waiting = self._waiting_bytes = self.bytes = 0

    def _pop(self) -> None:
        last = self._kept.pop()
        self.bytes -= last.weight
        if self._waiting:
            self._waiting -= 1
            self._waiting_bytes -= last.weight if last.has_rows else 0


def _number(stretch: Stretch) -> int:
    return stretch.number


__all__ = ["StretchList"]
