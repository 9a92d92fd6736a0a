"""Comparing tables of which the lake has several rows of a key: append and changelog tables, and histories.

All rows of the lake are listed with what orders them, and each group of keys is sorted and reduced to what it says
of the source. Of a history the open versions are compared like a clone's rows; that its versions fit together is
seen in the lake alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from typing_extensions import override

from kuvasz.fold.difference import Difference, DifferenceKind, Listing, difference, uncontained
from kuvasz.fold.events import NEVER, faults, newest
from kuvasz.fold.keys import Keys
from kuvasz.lake.compare.comparison import Comparison, OnProgress, batches
from kuvasz.lake.executors.comparison_tasks import LakeFile, List, Reading, Show
from kuvasz.lake.executors.event_tasks import Count, EventsDone, ListEvents
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.model import TableType, UInt8s
from kuvasz.modes import history
from kuvasz.ports import CopyRequest

#: Rows of the lake that are sorted in memory at a time: some 200 MB. Nobody knows how many the source has before it
#: was read, so there are some groups in any case.
_GROUP_ROWS = 1 << 19
_LEAST_GROUPS = 64

#: Rows of the lake that one task lists: a larger file is read in pieces.
_TASK_ROWS = 1 << 18


_NAMES = {"source": "source", "pieces": "lake"}


class GrowingComparison(Comparison):
    """One comparison of a table with several rows of a key."""

    def __init__(
        self,
        jobs: Jobs,
        reading: Reading,
        requests: Sequence[CopyRequest],
        files: Sequence[LakeFile],
        *,
        parallelism: int | None,
        folder: Path,
        on_progress: OnProgress = lambda *_: None,
    ) -> None:
        super().__init__(
            jobs, reading, requests, files, parallelism=parallelism, folder=folder, on_progress=on_progress
        )
        self._parts["pieces"] = batches(sliced(files), _TASK_ROWS)
        self._since = NEVER  #: a changelog's last TRUNCATE

    @override
    def difference(self) -> Difference:
        """Compare the source's rows with the newest row of each key; without keys, with all rows there are.

        A history's open versions are its rows.
        """
        return super().difference() if self._is_history else self._compared(None)

    @override
    def difference_of(self, keys: Keys) -> Difference:
        return super().difference_of(keys) if self._is_history else self._compared(keys)

    @property
    def _is_history(self) -> bool:
        return self._reading.shape.mode is TableType.HISTORY

    def count(self) -> tuple[int, int]:
        """Return how many rows the source has, and how many the lake's rows say that it has."""
        source = self._counted("source", NEVER)
        self.rows = {"source": source, "lake": self._counted("pieces", self._since)}
        return source, self.rows["lake"]

    def _counted(self, side: str, since: tuple[int, int]) -> int:
        counts: list[int] = []
        self._each(
            f"count rows of the {_NAMES[side]}", Count(reading=self._reading, since=since), side, counts.append
        )
        return sum(counts)

    def faults(self) -> tuple[Keys, UInt8s]:
        """Return the keys of a history, ascending, whose versions do not fit together, and `Fault` of each."""
        groups = self._list_events(ListEvents(reading=self._every_version, groups=self._groups))
        found = []
        for group in sorted(groups):
            found.append(faults(self._spill.events("lake", group), history.FOREVER_US))
            self._spill.remove([group], ["lake"])
        keys = Keys.concat([part for part, _ in found])
        order = np.lexsort((keys.lo, keys.hi))
        kinds = np.concatenate([kinds for _, kinds in found] or [np.empty(0, np.uint8)])
        return keys.take(order), kinds[order]

    def fault_values(self, keys: Keys) -> dict[int, tuple[str, ...]]:
        """Return the values of keys of a history, whether they have an open version or not; see `key_values`."""
        return self._values(Show(reading=self._every_version, wanted=keys), "lake")

    @property
    def _every_version(self) -> Reading:
        return dataclasses.replace(self._reading, at_us=None)

    @property
    def _groups(self) -> int:
        return max(_LEAST_GROUPS, self._lake_rows // _GROUP_ROWS + 1)

    def _compared(self, keys: Keys | None) -> Difference:
        self.rows = {"source": 0, "lake": 0}
        listed = self._list_events(ListEvents(reading=self._reading, groups=self._groups, wanted=keys))
        listed |= self._list_rows(List(reading=self._reading, groups=self._groups, wanted=keys), "source")
        try:
            return self._joined(self._of_group(group) for group in sorted(listed))
        finally:
            self._spill.remove(listed, ("source", "lake"))

    def _of_group(self, group: int) -> Difference:
        source, events = self._spill.rows("source", group), self._spill.events("lake", group)
        events = events.after(self._since)
        self.rows["source"] += len(source)
        self.rows["lake"] += len(events)
        if not self._reading.shape.key:
            return self.judged(difference(source, events.take(~events.is_end).rows))
        if not self._reading.is_ordered:
            return uncontained(source, events.rows)
        lake, doubled = newest(events)
        if self._reading.shape.mode is TableType.APPEND:
            return self.judged(difference(source, lake))
        return difference(source, Listing.concat([lake, _again(doubled)]))

    @override
    def judged(self, found: Difference) -> Difference:
        if self._is_history:
            return found
        if not self._reading.shape.key:
            return found.keep(found.kinds == DifferenceKind.MISSING)
        is_append = self._reading.shape.mode is TableType.APPEND
        return found.keep(found.kinds != DifferenceKind.EXTRA) if is_append else found

    def _list_events(self, job: ListEvents) -> set[int]:
        groups: set[int] = set()

        def take(done: EventsDone) -> None:
            self._since = max(self._since, done.since)
            for group, events in done.groups.items():
                groups.add(group)
                self._spill.add_events("lake", group, events)

        self._each("list the lake", job, "pieces", take)
        return groups


def _again(keys: Keys) -> Listing:
    """Return one more row of each key, to which nothing at the source can be equal."""
    none = np.zeros(len(keys), np.uint32)
    return Listing(keys=keys, prints=Keys.empty(len(keys)), files=none, places=none)


def sliced(files: Iterable[LakeFile]) -> list[LakeFile]:
    """Return large files in pieces."""
    return [
        dataclasses.replace(file, begin=begin, end=min(begin + _TASK_ROWS, file.rows))
        for file in files
        for begin in range(0, file.rows, _TASK_ROWS)
    ]


__all__ = ["GrowingComparison", "sliced"]
