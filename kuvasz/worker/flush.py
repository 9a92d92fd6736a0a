"""When a mini-transaction begins. Pure."""

from __future__ import annotations

import dataclasses

#: Share of `FlushPolicy.bytes` from which waiting for the interval's end only costs time.
_EAGER_SHARE = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """Begin when an interval has passed since the last beginning, or earlier when much waits.

    Args:
        interval_s: Between beginnings while little waits.
        bytes: The most that one mini-transaction takes. With an eighth of it waiting, the next begins as soon as the
            last one is written: a backlog is worked off without a pause, in the sizes that gather by themselves.
    """

    interval_s: float
    bytes: int

    def wait(self, *, waiting_bytes: int, last_begin: float, now: float) -> float:
        """Return the seconds to wait before beginning, 0 for now.

        The interval counts from the last beginning, not from the first arrival: after a quiet time the first change
        is on its way at once, and under steady load a change waits half an interval on average.
        """
        if waiting_bytes * _EAGER_SHARE >= self.bytes:
            return 0.0
        return max(0.0, last_begin + self.interval_s - now)
