"""What waits to be staged, of all sources together: who has any, and whether there is room for more."""

from __future__ import annotations

import threading


class StagedRoom:
    """The room. From any thread; what it costs to ask does not grow with the sources that are quiet.

    Args:
        most_bytes: How much may wait.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._waiting: dict[str, int] = {}
        self.bytes = 0  #: that wait

    def note(self, source: str, size: int | None) -> None:
        """Note how much of a source waits.

        Args:
            source: Its name.
            size: Bytes of rows; 0 if it only moved. None: nothing waits.
        """
        with self._lock:
            self.bytes += (size or 0) - self._waiting.get(source, 0)
            if size is None:
                self._waiting.pop(source, None)
            else:
                self._waiting[source] = size

    @property
    def is_there(self) -> bool:
        """Whether more may wait."""
        return self.bytes < self._most_bytes

    def sources(self) -> list[str]:
        """Return the names of the sources of which anything waits."""
        with self._lock:
            return list(self._waiting)


__all__ = ["StagedRoom"]
