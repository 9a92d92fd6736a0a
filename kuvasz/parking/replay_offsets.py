"""How far what is parked of each table is replayed: up to which offset of its log everything is in the lake."""

from __future__ import annotations

import dataclasses
import itertools


@dataclasses.dataclass(slots=True, kw_only=True)
class _Replay:
    """The replay of one table of one source."""

    number: int = 0  #: of the replay under way
    offset: int = 0  #: up to which everything is in the lake


class ReplayOffsets:
    """All replays of a process. Of each table only the last one counts: what an earlier one sent is void."""

    def __init__(self) -> None:
        self._replays: dict[tuple[str, str], _Replay] = {}
        self._numbers = itertools.count(1)

    def reset(self, target: str, source: str) -> None:
        """Take note that a table has a log, of which nothing is replayed yet."""
        self._replays[target, source] = _Replay()

    def begin(self, target: str, source: str) -> tuple[int, int]:
        """Return a number for a replay, and the offset to begin at; an earlier replay's deliveries are void."""
        found = self._replays[target, source]
        found.number = next(self._numbers)
        return found.number, found.offset

    def forget(self, target: str, source: str) -> None:
        """Take note that a table has no log any more."""
        self._replays.pop((target, source), None)

    def is_on(self, target: str, source: str, number: int) -> bool:
        """Whether the deliveries of a replay are still good."""
        found = self._replays.get((target, source))
        return found is not None and found.number == number

    def applied(self, target: str, source: str, number: int, offset: int) -> None:
        """Note that everything before an offset is in the lake."""
        found = self._replays.get((target, source))
        if found is not None and found.number == number:
            found.offset = max(found.offset, offset)

    def offset(self, target: str, source: str) -> int:
        """Return the offset up to which everything is in the lake."""
        return self._replays[target, source].offset


__all__ = ["ReplayOffsets"]
