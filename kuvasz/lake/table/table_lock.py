"""The lock of one lake table. Nobody waits for ever behind a commit that catalog or store do not answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from kuvasz.errors import TableStuck, place_of

#: How long its holder may wait for catalog or store before nobody else waits for the lock any more.
_WAIT_S = 10.0

#: Between looks at whether its holder waits at all: a thousand copies may wait for one table.
_LOOK_S = 2.5

#: The same of one who has waited long enough.
_LEAST_S = 0.01


class TableLock:
    """A reentrant lock.

    Args:
        table: Name of the table.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = threading.RLock()
        self._doubtful_since: float | None = None  # monotonic seconds; changed with the lock held

    @property
    def doubtful_since(self) -> float | None:
        """Since when its holder waits for catalog or store, in monotonic seconds; None if it does not."""
        return self._doubtful_since

    def patience_s(self) -> float:
        """Return the seconds after which whoever waits for what the holder does had better `check` it again."""
        since = self._doubtful_since
        if since is None:
            return min(_LOOK_S, _WAIT_S)
        return max(_LEAST_S, since + _WAIT_S - time.monotonic())

    def check(self) -> None:
        """Make sure that waiting for the lock's holder may be worth it.

        Raises:
            TableStuck: It has waited for catalog or store for too long.
        """
        since = self._doubtful_since
        if since is not None and time.monotonic() - since > _WAIT_S:
            message = f"{place_of(table=self._table)}: catalog or store have not answered what was sent before"
            raise TableStuck(message, hint="see what they wait for; it is tried again, and other tables go on")

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock; returns whether it was to be had in time."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=self.patience_s()):
            self.check()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def doubtful(self) -> Iterator[None]:
        """Do what may hang, with the lock held."""
        before, self._doubtful_since = self._doubtful_since, self._doubtful_since or time.monotonic()
        try:
            yield
        finally:
            self._doubtful_since = before

    @contextlib.contextmanager
    def certain(self) -> Iterator[None]:
        """Do what ends by itself, however long it takes, within something doubtful, with the lock held."""
        before, self._doubtful_since = self._doubtful_since, None
        try:
            yield
        finally:
            self._doubtful_since = None if before is None else time.monotonic()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Hold the lock for nothing but to ask catalog or store."""
        with self, self.doubtful():
            yield


__all__ = ["TableLock"]
