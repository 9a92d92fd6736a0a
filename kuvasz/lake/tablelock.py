"""The lock of one lake table. Nobody waits for ever behind a commit that catalog or store do not answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kuvasz.errors import TableStuck

#: How long is waited for a lock whose holder may hang; otherwise for as long as it takes.
_WAIT_S = 2.0


class TableLock:
    """A reentrant lock.

    Args:
        table: Name of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = threading.RLock()
        self.is_stuck = False  #: its holder waits for catalog or store, and nobody knows how long

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock; returns whether it was to be had in time."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=_WAIT_S):
            if self.is_stuck:
                message = f"table {self._table}: catalog or store have not answered what was sent before"
                raise TableStuck(message, hint="see what they wait for; it is tried again, and other tables go on")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def doubtful(self) -> Iterator[None]:
        """Do what may hang, with the lock held."""
        self.is_stuck = True
        try:
            yield
        finally:
            self.is_stuck = False


__all__ = ["TableLock"]
