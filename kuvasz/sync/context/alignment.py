"""How far the lake is with a source: waiting until it has passed an LSN, or is known not to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kuvasz import lsn
from kuvasz.config.sources import Source
from kuvasz.errors import SlotLost, SourceError
from kuvasz.source import slots

_LOOK_S = 0.2

#: Without a reader for so long, a slot belongs to a kuvasz that is stopped; one that reconnects is back sooner.
_STOPPED_S = 3.0
#: A running kuvasz that confirms nothing new for so long is stuck.
_STUCK_S = 30.0


class LakeStanding(NamedTuple):
    """How far the lake is with a source, as far as is known."""

    lsn: int  #: everything before it is in the lake
    is_followed: bool  #: a kuvasz runs that gets on


class Alignment:
    """What is known of one source's slot.

    Whether anybody reads it, and whether it gets on, is waited for once and not for each of its tables.

    Args:
        source: From the map.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stuck_at: int | None = None  #: how far it was when it was given up
        self._is_stopped = False  #: nobody was seen reading it for so long that nobody is waited for

    def wait(self, connection: Any, point: int, place: str, on_waiting: Callable[[], None]) -> int:  # noqa: ANN401
        """Wait until the lake is as far as an LSN or nobody brings it further; return how far it is.

        Args:
            connection: To the source, in autocommit.
            point: The LSN.
            place: Source and table, for messages.
            on_waiting: Called each time there is nothing new.

        Raises:
            SlotLost: There is no slot.
            SourceError: Its reader does not get on.
        """
        last, moved_at, seen_at = -1, time.monotonic(), time.monotonic()
        while True:
            at, is_followed = self._look(connection, place)
            now = time.monotonic()
            if is_followed:
                seen_at, self._is_stopped = now, False
            if at > last:
                last, moved_at = at, now
            self._is_stopped = self._is_stopped or now - seen_at >= _STOPPED_S
            if at >= point:
                return at
            if self._is_stopped:
                return self._left(at, place)
            if at == self._stuck_at or now - moved_at >= _STUCK_S:
                self._stuck_at = at
                raise self._stuck(at, point, place)
            on_waiting()
            time.sleep(_LOOK_S)

    def _look(self, connection: Any, place: str) -> LakeStanding:  # noqa: ANN401
        """Look how far the lake is."""
        slot = self._source.object_name
        state = slots.describe(connection, slot)
        if state is None or state.confirmed_flush_lsn is None or state.why_lost:
            message = f"{place}: slot {slot} is gone: how far the lake is cannot be told"
            raise SlotLost(message, hint="start kuvasz: it says what to do")
        return LakeStanding(state.confirmed_flush_lsn, state.active_pid is not None)

    def _left(self, at: int, place: str) -> int:  # noqa: ARG002 (of what is staged)
        """Return how far the lake is that nobody brings further: the slot has what follows."""
        return at

    def _stuck(self, at: int, point: int, place: str) -> SourceError:
        return SourceError(
            f"{place}: kuvasz has confirmed {lsn.render(at)} and got no further in"
            f" {_STUCK_S:.0f} s; needed is {lsn.render(point)}",
            hint="`kuvasz status` says which table holds it: mend that, or stop kuvasz and verify then",
        )


__all__ = ["Alignment", "LakeStanding"]
