"""When a mini-transaction begins. Pure."""

from __future__ import annotations

import dataclasses

#: Share of `FlushPolicy.bytes` from which waiting for the interval's end only costs time.
_EAGER_SHARE = 8

#: What one table's commit costs: CPU, and the bytes of changes that cost as much (measured: 20 ms warm, 30 ms in the
#: first minute; 5 000 to 8 000 rows).
_COMMIT_COSTS_S = 0.02
_COMMIT_COSTS_BYTES = 1 << 20

#: A flood is given so much more time than a trickle: what comes meanwhile spares whole commits.
_FLOOD_FACTOR = 1.5

#: How long the first changes after a quiet time, if they are of several tables, wait to be told from a flood's first.
_DOUBT_S = 0.2

#: The interval while somebody waits until all is in the lake.
_HURRIED_S = 1.0

#: Where so much waits, more is on its way, until nothing has come for a while.
_FLOW_BYTES = 256 << 10
_QUIET_S = 0.3

#: What a flood that is over must have brought for each table, to be worth commits that nothing else shares.
_WORTH_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for a mini-transaction. Times are seconds of any one clock."""

    bytes: int
    tables: int  #: of how many tables
    since: float  #: when the first of it came
    last: float  #: when the last of it came
    last_begin: float  #: of a mini-transaction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """Begin when an interval has passed since the last beginning, or earlier when much waits.

    Where many tables are dirty, committing them is most of the work, and so the interval is longer, and more has to
    wait for an early beginning: the commits then take half of a core at most.

    Args:
        interval_s: Between beginnings while little waits.
        bytes: What one mini-transaction takes at most, and half as much again where its commits cost that much. With
            an eighth of it waiting, the next begins as soon as the last one is written: a backlog is worked off
            without a pause, in the sizes that gather by themselves.
        eager_share: Which part of it that is: another one where the interval is to be kept if it can be.
        is_hurried: Somebody waits until all is in the lake.
    """

    interval_s: float
    bytes: int
    eager_share: int = _EAGER_SHARE
    is_hurried: bool = False

    def hurried(self) -> FlushPolicy:
        """Return the policy for when somebody waits until all is in the lake."""
        return dataclasses.replace(self, interval_s=min(self.interval_s, _HURRIED_S), is_hurried=True)

    def at(self, interval_s: float) -> FlushPolicy:
        """Return the same with another interval."""
        changed = dataclasses.replace(self, interval_s=interval_s)
        return changed.hurried() if self.is_hurried else changed

    def most(self, tables: int) -> int:
        """Return the bytes that a mini-transaction into so many tables takes at most."""
        return self.bytes + min(self.bytes // 2, (tables - 1) * _COMMIT_COSTS_BYTES)

    def wait(self, waiting: Waiting, now: float) -> float:
        """Return the seconds to wait before beginning, 0 for now.

        The interval counts from the last beginning, not from the first arrival: after a quiet time the first change
        is on its way at once, and under steady load a change waits half an interval on average. Only a flood is given
        the time to gather, and none after its end.
        """
        more = waiting.tables - 1  # one table is committed as often as was asked for
        if waiting.bytes >= max(self.bytes / self.eager_share, min(self.bytes, more * _COMMIT_COSTS_BYTES)):
            return 0.0
        commits_s = 2 * more * _COMMIT_COSTS_S
        gather_s = _FLOOD_FACTOR * commits_s if waiting.bytes >= _FLOW_BYTES else min(commits_s / 2, _DOUBT_S)
        begin = max(waiting.last_begin + max(self.interval_s, commits_s), waiting.since + gather_s)
        if waiting.bytes >= max(_FLOW_BYTES, more * _WORTH_BYTES):
            begin = min(begin, max(waiting.last_begin + self.interval_s, waiting.last + _QUIET_S))
        return max(0.0, begin - now)
