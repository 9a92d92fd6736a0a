"""Who may read from a server now, so that all copies of this process together keep to a number of rows a second.

Rows are read by executors, in processes and on machines of their own, which know nothing of each other. So the driver
divides: a server gets as many sessions at a time as the rate needs, each with an equal part of it, whichever source,
table and range it is for. A range waits for its turn before it is sent to an executor.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final

#: What one session reads with ease (`benchmarks`, copy: 300 k and more with two cores for server and readers alike).
ROWS_PER_SESSION: Final = 100_000

_LOOK_S: Final = 0.2


class CopyTurns:
    """The turns of all copies.

    Args:
        rows_per_second: For each server; None: as fast as it goes.
        most_sessions: As many ranges of one table are read side by side.
        rows_per_session: The rate above which a server gets another session.
    """

    def __init__(
        self, rows_per_second: int | None, most_sessions: int, *, rows_per_session: int = ROWS_PER_SESSION
    ) -> None:
        self._rows_per_second = rows_per_second
        self._sessions = min(most_sessions, math.ceil((rows_per_second or 0) / rows_per_session))
        self._lock = threading.Lock()
        self._servers: dict[str, threading.Semaphore] = {}

    @contextlib.contextmanager
    def turn(self, server: str, is_over: Callable[[], bool]) -> Iterator[float]:
        """Wait for a turn; yields the rows a second that the range may read, 0 for no limit.

        Args:
            server: ``host:port``.
            is_over: Whether waiting has become pointless; then the turn is given at once, with no limit.
        """
        if self._rows_per_second is None:
            yield 0.0
            return
        with self._lock:
            turns = self._servers.setdefault(server, threading.Semaphore(self._sessions))
        while not turns.acquire(timeout=_LOOK_S):
            if is_over():
                yield 0.0
                return
        try:
            yield self._rows_per_second / self._sessions
        finally:
            turns.release()


__all__ = ["ROWS_PER_SESSION", "CopyTurns"]
