"""Sets that are empty nearly always, of which each source has sixteen."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class FewKeys(dict[T, None]):
    """A set in 64 bytes while it is empty, where Python's takes 216. From any thread, as Python's is."""

    __slots__ = ()

    def add(self, key: T) -> None:
        """Have a key in it."""
        self[key] = None

    def discard(self, key: T) -> None:
        """Have a key not be in it."""
        self.pop(key, None)


__all__ = ["FewKeys"]
