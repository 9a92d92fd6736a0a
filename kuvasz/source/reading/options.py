"""What may be tuned of a reader; the defaults are meant to stay."""

from __future__ import annotations

import dataclasses
import math

#: Seconds between two status updates for each source that there is, and the most: what WAL they hold back is little,
#: and each is a write to the state folder, a packet and a walsender that wakes.
_CONFIRMING_S, _LONGEST_CONFIRMING_S = 0.03, 10.0

#: The same where nothing changed: a source at rest costs little else.
_LIVING_S, _LONGEST_LIVING_S = 0.04, 20.0

#: Seconds that a source which brings little is left alone after a look, for each source that there is, and the most
#: but for the least of very many: a look costs 0.2 ms, so that all of them take no more than a fifth of a core.
_RESTING_S, _LONGEST_REST_S, _LEAST_RESTING_S = 0.0025, 1.0, 0.001

#: Rests of a source between two looks of each other task that it has: where there are many, most find nothing to do.
_RESTS = 4

#: Times as long as it took to route the last gulp, the next one gathers: each costs something for every table in it.
_GATHERING_TO_ROUTING = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What may be tuned; the defaults are meant to stay.

    The pauses were measured with benchmarks/micro_reader.py. A walsender makes a system call for each row; while the
    receiver's window is open, each is a packet, and often a context switch. A reader that leaves the socket alone for
    longer than its buffer takes to fill lets the rows gather in the sender's, in large packets, at half the price.
    Pauses that are too short to get there (5 ms) are worth little more than none.
    """

    status_interval_s: float = 10.0  #: between status updates when nothing changed
    confirm_interval_s: float = 1.0  #: between status updates when the confirmable LSN moved
    silence_timeout_s: float = 60.0  #: without a byte from the server the connection is taken for dead
    spill_bytes: int = 32 << 20  #: of one open transaction, before it is handed on in parts
    gulp_bytes: int = 4 << 20  #: at which a gulp is routed
    gulp_s: float = 0.02  #: after which a gulp is routed while data flows
    longest_gulp_s: float = 0.2  #: the same where routing takes long, as it does over many tables
    longest_pause_s: float = 0.02  #: between two looks at the socket while data flows
    look_bytes: int = 1 << 20  #: what a look at a TCP socket should find: the pauses adapt to it
    local_look_bytes: int = 32 << 10  #: the same for a UNIX socket, whose buffers are small
    quiet_bytes: int = 4096  #: a look that finds less than this is routed at once and followed by no pause
    rest_s: float = 0.0  #: for which the socket is left alone then
    first_backoff_s: float = 0.5
    last_backoff_s: float = 30.0
    compiled: bool = True  #: what takes messages from the socket: faster, for 70 MB

    def among(self, sources: int, share_bytes: int) -> ReaderOptions:
        """Return the same for one of so many sources.

        Args:
            sources: How many there are.
            share_bytes: What each may gather.
        """
        return dataclasses.replace(
            self,
            spill_bytes=min(self.spill_bytes, share_bytes),
            gulp_bytes=min(self.gulp_bytes, share_bytes),
            rest_s=_rest_s(sources) if sources > 1 else 0.0,
            confirm_interval_s=min(max(self.confirm_interval_s, _CONFIRMING_S * sources), _LONGEST_CONFIRMING_S),
            status_interval_s=max(self.status_interval_s, min(_LIVING_S * sources, _LONGEST_LIVING_S)),
        )

    @property
    def unhurried(self) -> ReaderOptions:
        """The same for who does not hear the server itself."""
        return dataclasses.replace(self, silence_timeout_s=math.inf)

    def beat(self, at_s: float) -> float:
        """Return the moment, at a time of the loop's clock or behind it, at which all sources that rest wake."""
        return at_s if not self.rest_s else math.ceil(at_s / self.rest_s) * self.rest_s

    def pause_s(self, wanted_s: float, now_s: float) -> float:
        """Return how long another task of the source sleeps, at a time of the loop's clock, until it looks again."""
        return self.beat(now_s + max(wanted_s, _RESTS * self.rest_s)) - now_s

    def gather_s(self, routing_s: float) -> float:
        """Return how long the next gulp gathers, by what routing the last one took."""
        return min(max(_GATHERING_TO_ROUTING * routing_s, self.gulp_s), self.longest_gulp_s)


def _rest_s(sources: int) -> float:
    return max(min(_RESTING_S * sources, _LONGEST_REST_S), _LEAST_RESTING_S * sources)


__all__ = ["ReaderOptions"]
