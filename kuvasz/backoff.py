"""How long to wait before something that failed is tried again. Pure."""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.5
LAST_S: Final = 30.0


class Backoff:
    """Waits that double, up to the last one.

    Args:
        first_s: Seconds of the first wait.
        last_s: Seconds that no wait exceeds.
    """

    def __init__(self, first_s: float = FIRST_S, last_s: float = LAST_S) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    def next_s(self, jitter: float = 0.5) -> float:
        """Return the seconds to wait now; each wait is twice the one before.

        Args:
            jitter: From 0 to 1: between half and one and a half times the wait, so that those who failed together do
                not come back together. In the middle: none.
        """
        wait = self._next_s
        self._next_s = min(2 * wait, self._last_s)
        return wait * (0.5 + jitter)

    def reset(self) -> None:
        """Begin with the first wait again: it went well for a while."""
        self._next_s = self._first_s


__all__ = ["FIRST_S", "LAST_S", "Backoff"]
