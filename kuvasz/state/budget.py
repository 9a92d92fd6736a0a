"""The memory budget: bytes of raw changes between the readers and the lake, all sources together.

Readers add what they hand to a worker, workers remove it once it is durable or written out. Above the high-water
mark the budget is full and stays so until it falls to the low-water mark, so that readers do not stop and start
for every delivery. Safe from any thread; no input or output.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Budget:
    """A count of bytes with two water marks.

    Args:
        high_bytes: From here on the budget is full.
        low_bytes: At or below, it has room again; half of the high-water mark by default.
    """

    def __init__(self, high_bytes: int, low_bytes: int | None = None) -> None:
        self.high_bytes = high_bytes
        self.low_bytes = high_bytes // 2 if low_bytes is None else low_bytes
        if not 0 <= self.low_bytes < self.high_bytes:
            raise ValueError(f"water marks do not fit: low {self.low_bytes}, high {self.high_bytes} bytes")
        self._lock = threading.Lock()
        self._bytes = 0
        self._is_full = False
        self._peak_bytes = 0
        self._waiters: list[Callable[[], None]] = []

    @property
    def bytes(self) -> int:
        """Bytes in flight."""
        return self._bytes

    @property
    def peak_bytes(self) -> int:
        """The most there ever were."""
        return self._peak_bytes

    @property
    def is_full(self) -> bool:
        """Whether readers have to wait."""
        return self._is_full

    def add(self, count: int) -> None:
        """Count bytes in. Never refuses: who adds has the bytes already."""
        with self._lock:
            self._bytes += count
            self._peak_bytes = max(self._peak_bytes, self._bytes)
            self._is_full = self._is_full or self._bytes >= self.high_bytes

    def remove(self, count: int) -> None:
        """Count bytes out; wakes the waiters if that makes room."""
        with self._lock:
            self._bytes -= count
            woken = self._make_room()
        for wake in woken:
            wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Have `wake` called once, when there is room: at once if there is now.

        It is called in the thread that made room, without the lock, and must return quickly: a reader hands in
        ``partial(loop.call_soon_threadsafe, event.set)``.
        """
        with self._lock:
            if self._is_full:
                self._waiters.append(wake)
                return
        wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Take a callback back; without effect if it was called already."""
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter != wake]

    def _make_room(self) -> list[Callable[[], None]]:
        if not self._is_full or self._bytes > self.low_bytes:
            return []
        self._is_full = False
        woken, self._waiters = self._waiters, []
        return woken


__all__ = ["Budget"]
