"""The index of a staged log in memory, for tests: it outlives whatever uses it, and ends with its process."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from kuvasz.errors import StateTaken
from kuvasz.state.staged.ports import LogIndex, LogLease, StagedPosition, StagedSlice, still_staged


class MemoryIndex(LogIndex):
    """The index. Who opened it last holds the lease."""

    def __init__(self) -> None:
        self._positions: dict[str, StagedPosition] = {}
        self._slices: list[StagedSlice] = []
        self._objects: set[str] = set()
        self._opened = 0

    @property
    @override
    def place(self) -> str:
        """See `LogIndex.place`."""
        return "memory"

    @override
    def open(self) -> LogLease:
        """See `LogIndex.open`."""
        self._opened += 1
        return LogLease("memory", self._opened)

    @override
    def retire(self) -> None:
        """See `LogIndex.retire`."""
        if self._slices:
            raise still_staged(self.place, {one.source for one in self._slices})
        self._positions.clear()

    @override
    def positions(self) -> dict[str, StagedPosition]:
        """See `LogIndex.positions`."""
        return dict(self._positions)

    @override
    def append(
        self, name: str, slices: Sequence[StagedSlice], moves: Mapping[str, tuple[StagedPosition, StagedPosition]]
    ) -> None:
        """See `LogIndex.append`."""
        if name in self._objects:
            return
        for source, (before, after) in moves.items():
            known = self._positions.get(source)
            if known is None or (known.number, known.lsn) not in {
                (before.number, before.lsn), (after.number, after.lsn),
            }:  # fmt: skip
                raise StateTaken(f"{self.place}: source {source} stands elsewhere")
        for source, (_, after) in moves.items():
            applied = self._positions[source].applied
            self._positions[source] = dataclasses.replace(after, applied=applied)
        self._slices += slices
        if slices:
            self._objects.add(name)

    @override
    def begin_anew(self, source: str, lsn: int) -> None:
        """See `LogIndex.begin_anew`."""
        number = self._positions[source].number if source in self._positions else 0
        self._slices = [one for one in self._slices if one.source != source]
        self._positions[source] = StagedPosition(lsn=lsn, ended=0, number=number, applied=lsn)

    @override
    def set_back(self, source: str, lsn: int) -> None:
        """See `LogIndex.set_back`."""
        known = self._positions[source]
        self._positions[source] = dataclasses.replace(
            known, lsn=min(known.lsn, lsn), applied=min(known.applied, lsn)
        )  # fmt: skip

    @override
    def abandon_open(self, source: str, ended: int) -> None:
        """See `LogIndex.abandon_open`."""
        self._slices = [
            one for one in self._slices if not (one.source == source and one.is_open and one.through > ended)
        ]

    @override
    def slices(self, source: str, after: int, *, through: int, most: int) -> list[StagedSlice]:
        """See `LogIndex.slices`."""
        mine = [one for one in self._slices if one.source == source and one.last > after and one.through > through]
        return sorted(mine, key=lambda one: one.last)[:most]

    @override
    def applied(self, lsns: Mapping[str, int], removed: Collection[str] = (), most: int = 1000) -> list[str]:
        """See `LogIndex.applied`."""
        self._objects -= set(removed)
        for source, lsn in lsns.items():
            if (known := self._positions.get(source)) is not None:
                self._positions[source] = dataclasses.replace(known, applied=max(known.applied, lsn))
        self._slices = [one for one in self._slices if one.through > self._positions[one.source].applied]
        return sorted(self._objects - {one.object for one in self._slices})[:most]

    @override
    def objects(self) -> Collection[str]:
        """See `LogIndex.objects`."""
        return set(self._objects)

    @override
    def forget(self, source: str) -> None:
        """See `LogIndex.forget`."""
        self._slices = [one for one in self._slices if one.source != source]
        self._positions.pop(source, None)


__all__ = ["MemoryIndex"]
