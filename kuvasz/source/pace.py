"""How fast one session may read: a bucket that fills with rows at a steady rate and holds a second's worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Seconds of reading that may be caught up on; what a slow server or a busy executor leaves beyond that is lost.
_CATCH_UP_S: Final = 1.0

#: Parts of a second's rows to be read at once.
_PORTIONS: Final = 20
_LEAST_GULP_BYTES: Final = 4 << 10
_MOST_GULP_BYTES: Final = 1 << 20

#: Taken for a row's size until some have come.
_ROW_BYTES: Final = 100


class Pace:
    """The pace of one session.

    Args:
        rows_per_second: More than 0.
        clock: Seconds; never goes back.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        rows_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rows_per_second = rows_per_second
        self._clock = clock
        self._sleep = sleep
        self._due = clock()  # when all that was read may have been
        self._rows = 0
        self._bytes = 0

    @property
    def gulp_bytes(self) -> int:
        """How much to read at once, so that rows come evenly."""
        row_bytes = self._bytes / self._rows if self._rows else _ROW_BYTES
        wanted = int(self._rows_per_second / _PORTIONS * row_bytes)
        return min(max(wanted, _LEAST_GULP_BYTES), _MOST_GULP_BYTES)

    def took(self, rows: int, size_bytes: int) -> None:
        """Wait until the rows that were just read were due."""
        self._rows += rows
        self._bytes += size_bytes
        now = self._clock()
        self._due = max(self._due, now - _CATCH_UP_S) + rows / self._rows_per_second
        if self._due > now:
            self._sleep(self._due - now)


__all__ = ["Pace"]
