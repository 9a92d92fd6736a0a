"""Memory for gulps, lent for as long as a connection has one: a source at rest has none.

A gulp needs a megabyte of address space and room for as many lengths. A fleet's sources are at rest most of the time,
or have a keepalive of eighteen bytes: each would touch pages of its own for that, and find them in no cache.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

import numpy as np

from kuvasz.source.drain.plain import MAX_MESSAGES

if TYPE_CHECKING:
    from kuvasz.model import UInt8s, UInt32s

#: Of a new arena.
ARENA_BYTES: Final = 1 << 20

#: One that one huge row made larger than this is not kept.
LARGEST_BYTES: Final = 16 << 20

#: What may be kept that nobody has: as much as some sources need whose streams flow, between two gulps of each.
SPARE_BYTES: Final = 64 << 20


class Arena:
    """Room for the payloads of one gulp, and for their lengths."""

    __slots__ = ("lengths", "payloads")

    def __init__(self) -> None:
        self.payloads: UInt8s = np.empty(ARENA_BYTES, np.uint8)
        self.lengths: UInt32s = np.empty(MAX_MESSAGES, np.uint32)

    def grow(self, needed: int, used: int) -> None:
        """Make room for so many bytes of payloads, and keep those that are there."""
        payloads = np.empty(max(needed, 2 * len(self.payloads)), np.uint8)
        payloads[:used] = self.payloads[:used]
        self.payloads = payloads

    @property
    def references(self) -> int:
        """How often its memory is referred to: any view of it, by whomever, is one more."""
        return sys.getrefcount(self.payloads) + sys.getrefcount(self.lengths)


class Arenas:
    """The arenas that nobody has. From any thread.

    Args:
        spare_bytes: How much of them is kept.
    """

    def __init__(self, spare_bytes: int = SPARE_BYTES) -> None:
        self._lock = threading.Lock()
        self._spare: list[Arena] = []
        self._spare_bytes = 0
        self._most_bytes = spare_bytes
        self._unseen = Arena().references

    def take(self) -> Arena:
        """Return an arena, the caller's until it is given back: the one that was used last, if there is one."""
        with self._lock:
            if self._spare:
                arena = self._spare.pop()
                self._spare_bytes -= len(arena.payloads)
                return arena
        return Arena()

    def give(self, arena: Arena) -> None:
        """Take an arena back; one of which somebody still sees a part is left to them, and no other gets it."""
        size = len(arena.payloads)
        if size > LARGEST_BYTES or arena.references != self._unseen:
            return
        with self._lock:
            if self._spare_bytes + size <= self._most_bytes:
                self._spare.append(arena)
                self._spare_bytes += size


#: Of all connections of this process.
SHARED: Final = Arenas()

__all__ = ["ARENA_BYTES", "LARGEST_BYTES", "SHARED", "SPARE_BYTES", "Arena", "Arenas"]
