"""How long a reader leaves its socket alone while data flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.source.reading.options import ReaderOptions

#: Shorter than this the loop's own overhead is the pause.
_SHORTEST_PAUSE_S = 0.0001


class Pause:
    """The pause between two looks at one connection's socket.

    Long enough that a look finds a good deal, and short enough that the server never waits for room in the socket's
    buffer: the pause follows from what the last look found.

    Args:
        options: What a look should find, and the longest pause.
        is_local: Whether the socket is a UNIX one.
    """

    def __init__(self, options: ReaderOptions, *, is_local: bool) -> None:
        self._longest_s = options.longest_pause_s
        self._aim_bytes = options.local_look_bytes if is_local else options.look_bytes
        self._pause_s = min(0.001, self._longest_s)

    def after(self, found_bytes: int) -> float:
        """Return the pause, in seconds, after a look that found so many bytes."""
        change = min(max(self._aim_bytes / found_bytes, 0.25), 2.0)
        self._pause_s = min(max(self._pause_s * change, _SHORTEST_PAUSE_S), self._longest_s)
        return self._pause_s if self._pause_s > _SHORTEST_PAUSE_S else 0.0


__all__ = ["Pause"]
