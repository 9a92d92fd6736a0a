"""The memory budget: bytes of raw changes between the readers and the lake, all sources together.

Readers add what they hand to a worker, workers remove it once it is durable or written out. Above the high-water
mark the budget is full and stays so until it falls to the low-water mark, so that readers do not stop and start
for every delivery. A source whose own bytes are within its share has room even then: the flood of another one, which
may fill the budget alone, does not keep it waiting. Safe from any thread; no input or output.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Of the high-water mark, which shares may add to it: all of them together.
_RESERVE = 4


class Budget:
    """A count of bytes of each source with two water marks.

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
        self._of: dict[str, int] = {}  # source -> its bytes; none that has no bytes
        self._is_full = False
        self._peak_bytes = 0
        self._waiters: list[tuple[str, Callable[[], None]]] = []

    @property
    def bytes(self) -> int:
        """Bytes in flight."""
        return self._bytes

    @property
    def peak_bytes(self) -> int:
        """The most there ever were."""
        return self._peak_bytes

    @property
    def share_bytes(self) -> int:
        """What each source may have in flight when the budget is full: as much as any other that has something."""
        return self.high_bytes // _RESERVE // max(1, len(self._of))

    def is_full_for(self, source: str) -> bool:
        """Whether the reader of a source has to wait."""
        return self._is_full and self._of.get(source, 0) > self.share_bytes

    def add(self, source: str, count: int) -> None:
        """Count bytes in. Never refuses: who adds has the bytes already."""
        with self._lock:
            self._bytes += count
            self._of[source] = self._of.get(source, 0) + count
            self._peak_bytes = max(self._peak_bytes, self._bytes)
            self._is_full = self._is_full or self._bytes >= self.high_bytes

    def remove(self, counts: Mapping[str, int]) -> None:
        """Count bytes of sources out; wakes the waiters for whom that makes room."""
        with self._lock:
            for source, count in counts.items():
                self._bytes -= count
                left = self._of.pop(source, 0) - count
                if left:
                    self._of[source] = left
            woken = self._make_room()
        for wake in woken:
            wake()

    def when_room(self, source: str, wake: Callable[[], None]) -> None:
        """Have `wake` called once, when there is room for a source: at once if there is now.

        It is called in the thread that made room, without the lock, and must return quickly: a reader hands in
        ``partial(loop.call_soon_threadsafe, event.set)``.
        """
        with self._lock:
            if self.is_full_for(source):
                self._waiters.append((source, wake))
                return
        wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Take a callback back; without effect if it was called already."""
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter[1] != wake]

    def _make_room(self) -> list[Callable[[], None]]:
        self._is_full = self._is_full and self._bytes > self.low_bytes
        woken = [wake for source, wake in self._waiters if not self.is_full_for(source)]
        self._waiters = [(source, wake) for source, wake in self._waiters if self.is_full_for(source)]
        return woken


__all__ = ["Budget"]
