"""Which mini-transactions of a worker have begun, and which have ended, as far as they concern a target."""

from __future__ import annotations

import collections
import threading


class UnderWay:
    """One worker's mini-transactions, numbered from 1 in the order in which they begin and end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._ended = 0
        #: target -> numbers of the mini-transactions whose commits of it take long
        self._aside: collections.defaultdict[str, list[int]] = collections.defaultdict(list)

    @property
    def begun(self) -> int:
        """The number of mini-transactions that have begun."""
        with self._lock:
            return self._begun

    def begin(self) -> None:
        """Count one that begins."""
        with self._lock:
            self._begun += 1

    def end(self) -> None:
        """Count the next one as ended, but for what stepped aside."""
        with self._lock:
            self._ended += 1

    def step_aside(self, target: str) -> int:
        """Leave one target of the mini-transaction that ends next under way; return its number."""
        with self._lock:
            number = self._ended + 1
            self._aside[target].append(number)
            return number

    def came_through(self, target: str, number: int) -> None:
        """Count what stepped aside as ended."""
        with self._lock:
            self._aside[target].remove(number)

    def has_ended(self, begun: int, target: str) -> bool:
        """Whether so many mini-transactions are committed or have failed, as far as they concern a target."""
        with self._lock:
            return self._ended >= begun and all(number > begun for number in self._aside[target])


__all__ = ["UnderWay"]
