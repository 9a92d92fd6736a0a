"""Who may read from a server now, so that all copies of this process together keep to its limits.

Rows are read by executors, in processes and on machines of their own, which know nothing of each other. So the driver
divides: a server gets as many sessions at a time as the rate needs, each with an equal part of it, whichever source,
table and range it is for. A range waits for its turn before it is sent to an executor. The limits are asked for each
time: others count from the next range on.
"""

from __future__ import annotations

import collections
import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

#: What one session reads with ease (`benchmarks`, copy: 300 k and more with two cores for server and readers alike).
ROWS_PER_SESSION: Final = 100_000

_LOOK_S: Final = 0.2

#: Rows a second and sessions of one server; None: as many as come.
Limits: TypeAlias = tuple[int | None, int | None]


class CopyTurns:
    """The turns of all copies.

    Args:
        most_sessions: As many ranges of one table are read side by side.
        rows_per_session: The rate above which a server gets another session.
    """

    def __init__(self, most_sessions: int, *, rows_per_session: int = ROWS_PER_SESSION) -> None:
        self._most_sessions = most_sessions
        self._rows_per_session = rows_per_session
        self._changed = threading.Condition()
        self._under_way: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def turn(self, server: str, limits: Callable[[], Limits], is_over: Callable[[], bool]) -> Iterator[float]:
        """Wait for a turn; yields the rows a second that the range may read, 0 for no limit.

        Args:
            server: ``host:port``.
            limits: Returns those of the server as they are now.
            is_over: Whether waiting has become pointless; then the turn is given at once, with no limit.
        """
        with self._changed:
            while True:
                rows_per_second, sessions = limits()
                most = self._most(rows_per_second, sessions)
                if most is None or self._under_way[server] < most:
                    break
                if is_over():
                    rows_per_second = None
                    break
                self._changed.wait(_LOOK_S)
            self._under_way[server] += 1
        try:
            yield 0.0 if rows_per_second is None or most is None else rows_per_second / most
        finally:
            with self._changed:
                self._under_way[server] -= 1
                self._changed.notify_all()

    def _most(self, rows_per_second: int | None, sessions: int | None) -> int | None:
        """Return how many ranges of a server are read at a time; None: as many as come."""
        if rows_per_second is None:
            return sessions
        needed = math.ceil(rows_per_second / self._rows_per_session)
        return min(self._most_sessions, needed, needed if sessions is None else sessions)


__all__ = ["ROWS_PER_SESSION", "CopyTurns", "Limits"]
