"""A page that is asked for more often than it has news: it is made at most once a second, for all who ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

#: Seconds for which a page is as good as new.
FRESH_S = 1.0


T = TypeVar("T")


class Page(Generic[T]):
    """One page, or what several are made of. On the loop.

    Args:
        make: Makes it, elsewhere.
        clock: Monotonic seconds.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._turn = asyncio.Lock()  #: whoever comes while it is made waits for that one
        self._body: T | None = None
        self._stale_at = float("-inf")

    async def get(self) -> T:
        """Return the page as it was within the last second, or is now."""
        async with self._turn:
            if self._body is None or self._clock() >= self._stale_at:
                self._body = await self._make()
                self._stale_at = self._clock() + FRESH_S
            return self._body


__all__ = ["FRESH_S", "Page"]
