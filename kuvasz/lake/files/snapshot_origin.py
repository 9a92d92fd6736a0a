"""How a snapshot came about, as its summary says: for the table of commits that kuvasz keeps about the lake. Pure.

One short entry, `stream 120 30 5 0.213 0.051`: what made it; rows that the sources inserted, updated and deleted;
seconds of writing its files, and of waiting for its turn to be committed. All snapshots of a table are in its
metadata, which every commit writes anew, so it is there only if somebody wants it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kuvasz.model import NO_OPERATIONS, Operations

#: Entry of the summary.
ENTRY = "kuvasz.made"

STREAM = "stream"
COPY = "copy"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """How a snapshot came about."""

    by: str  #: `STREAM` or `COPY`
    operations: Operations = NO_OPERATIONS  #: of the sources
    writing_s: float = 0.0
    waiting_s: float = 0.0

    def entry(self) -> dict[str, str]:
        """Return the summary's entry."""
        return {
            ENTRY: " ".join([self.by, *map(str, self.operations), *map(_seconds, (self.writing_s, self.waiting_s))])
        }


def _seconds(value: float) -> str:
    return f"{max(0.0, value):.3f}"


def parse(summary: Mapping[str, str]) -> SnapshotOrigin | None:
    """Return what a summary says; None if it says nothing that can be read."""
    parts = summary.get(ENTRY, "").split()
    try:
        by, inserts, updates, deletes, writing, waiting = parts
        operations = Operations(int(inserts), int(updates), int(deletes))
        return SnapshotOrigin(by=by, operations=operations, writing_s=float(writing), waiting_s=float(waiting))
    except ValueError:  # there is none, or another version's
        return None


__all__ = ["COPY", "ENTRY", "STREAM", "SnapshotOrigin", "parse"]
