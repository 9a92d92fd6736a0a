"""Copies that are cut off after some of their parts, and what happens at the source before they go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from kuvasz.errors import SourceError
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.rules import copy_plan
from kuvasz.sync.tables import copies, copy_snapshot

PAGE = 8192


@dataclasses.dataclass
class CutCopies:
    """The attempts at the copies of one table.

    Args:
        cuts: Which parts each attempt reads before it is cut off; the one after the last goes through.
        between: What happens after each of these attempts, before the next one has its snapshot.
    """

    cuts: list[Collection[int]]
    between: Sequence[Callable[[], object]] = ()
    read: list[list[int]] = dataclasses.field(default_factory=list)  #: the parts that each attempt has read
    again: list[int] = dataclasses.field(default_factory=list)  #: requests of each that read changed rows
    ended: int = 0  #: attempts that were cut off
    is_away: bool = False  #: the server gives no snapshot for the attempt after the last cut
    _snapshots: int = 0

    def arm(self, monkeypatch: pytest.MonkeyPatch, *, pages: int = 4) -> None:
        """Cut copies off, whose parts have so many pages."""
        monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", pages * PAGE)
        monkeypatch.setattr(copy_plan, "LARGE_BYTES", 0)
        monkeypatch.setattr(copies, "FIRST_S", 0.05)  # until the next attempt
        whole, part, snapshot = CopiedFiles.read, CopiedFiles._range, Slot.snapshot

        def read(files: CopiedFiles, *arguments: Any) -> None:
            attempt = len(self.read)
            self.read.append([])
            self.again.append(0)
            whole(files, *arguments)
            if attempt < len(self.cuts):
                self.ended += 1
                raise SourceError("the connection was cut off")

        def range_(files: CopiedFiles, request: Any, lsn: int, number: int | None) -> int:
            attempt = len(self.read) - 1
            if number is None:
                self.again[-1] += 1
            elif attempt < len(self.cuts) and number not in self.cuts[attempt]:
                return 0
            else:
                self.read[-1].append(number)
            return part(files, request, lsn, number)

        def taken(slot: Slot, *arguments: Any) -> Any:
            done = len(self.read)
            if done > self._snapshots and done <= len(self.between):
                self._snapshots = done
                self.between[done - 1]()
            if self.is_away and done >= len(self.cuts):
                raise SourceError("the server is away")
            return snapshot(slot, *arguments)

        monkeypatch.setattr(CopiedFiles, "read", read)
        monkeypatch.setattr(CopiedFiles, "_range", range_)
        monkeypatch.setattr(Slot, "snapshot", taken)
