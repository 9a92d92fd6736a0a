"""How long a reader leaves its socket alone between two looks."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.source.reading.options import ReaderOptions

#: Shorter than this the loop's own overhead is the pause.
_SHORTEST_PAUSE_S = 0.0001

#: Looks that find nothing, a rest apart, before the socket is asked to tell: that is dearer than a look. And rests
#: within which a source has to bring something twice for that: what comes alone, as the keepalive of a source at rest
#: does, is followed by nothing that a look could find.
_EMPTY_LOOKS = 4

#: Seconds behind a look that found much: a flood is read on without a rest, however its server stops and goes.
_FLOWING_S = 1.0


class Pause:
    """The pause between two looks at one connection's socket.

    While data flows it is long enough that a look finds a good deal, and short enough that the server never waits for
    room in the socket's buffer: the pause follows from what the last look found.

    While little comes, and there are many sources, it is a rest, to a beat that all of them share: they look one
    behind the other, so that what one look brings into the processor's caches serves all, and no more often the more
    they are. 100 databases of one server with 300 changes a second had 420 looks a second, most of them for a
    keepalive (one comes whenever any database of the server is written to): 15 % of a core; with rests of 250 ms 8 %.

    Args:
        options: What a look should find, and how long a pause and a rest may be.
        is_local: Whether the socket is a UNIX one.
    """

    def __init__(self, options: ReaderOptions, *, is_local: bool) -> None:
        self._options = options
        self._aim_bytes = options.local_look_bytes if is_local else options.look_bytes
        self._pause_s = min(0.001, options.longest_pause_s)
        self._flowed_at = -_FLOWING_S
        self._found_at = -math.inf
        self._empty_looks = _EMPTY_LOOKS

    def after(self, found_bytes: int) -> float | None:
        """Return the pause, in seconds, after a look that found so many bytes; None: until the socket tells of more.

        0 lets other tasks have a turn.
        """
        now = time.monotonic()
        if found_bytes >= self._options.quiet_bytes:
            self._flowed_at, self._found_at, self._empty_looks = now, now, 0
            return self._flowing_s(found_bytes)
        rest_s = self._options.rest_s
        if not found_bytes:
            self._empty_looks += 1
        else:
            is_alone = now - self._found_at > _EMPTY_LOOKS * rest_s
            self._empty_looks, self._found_at = _EMPTY_LOOKS if is_alone else 0, now
        if rest_s and self._empty_looks < _EMPTY_LOOKS and now - self._flowed_at >= _FLOWING_S:
            return self._options.beat(now + rest_s / 2) - now
        return 0.0 if found_bytes else None

    def _flowing_s(self, found_bytes: int) -> float:
        change = min(max(self._aim_bytes / found_bytes, 0.25), 2.0)
        self._pause_s = min(max(self._pause_s * change, _SHORTEST_PAUSE_S), self._options.longest_pause_s)
        return self._pause_s if self._pause_s > _SHORTEST_PAUSE_S else 0.0


__all__ = ["Pause"]
