"""Rows that wait to be written into the tables about the lake: bounded; what finds no room is counted. Pure."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

Row: TypeAlias = Mapping[str, object]

#: Of one table: some 50 MB of Python, and more than is ever told while a store is down for minutes.
MOST_ROWS = 50_000


class WaitingRows:
    """Rows by table. Safe to call from any thread; nobody waits.

    Args:
        most: Rows of one table that wait; where there is no room the newest go.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._rows: dict[str, collections.deque[Row]] = collections.defaultdict(collections.deque)
        self._lost: collections.Counter[str] = collections.Counter()

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Take rows for a table."""
        with self._lock:
            waiting = self._rows[table]
            for row in rows:
                if len(waiting) < self._most:
                    waiting.append(row)
                else:
                    self._lost[table] += 1

    def is_any(self, table: str, of_kind: Callable[[Row], bool]) -> bool:
        """Whether a row of a kind waits for a table."""
        with self._lock:
            return any(map(of_kind, self._rows[table]))

    def take(self, table: str) -> list[Row]:
        """Return all rows of a table, which wait no more."""
        with self._lock:
            taken = list(self._rows[table])
            self._rows[table].clear()
            return taken

    def put_back(self, table: str, rows: Sequence[Row]) -> None:
        """Have rows wait again that were taken, in front of those that came since; what was taken has room."""
        with self._lock:
            self._rows[table].extendleft(reversed(rows))

    def lost(self, table: str) -> int:
        """Return how many rows of a table found no room since this was asked last."""
        with self._lock:
            return self._lost.pop(table, 0)


__all__ = ["MOST_ROWS", "Row", "WaitingRows"]
