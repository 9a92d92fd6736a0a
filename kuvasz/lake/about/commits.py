"""The table of commits, from the snapshots of the lake's tables themselves. Pure.

A snapshot says all of itself that a row needs, so whoever died between a commit and its row has lost nothing: the
next start reads it there. Up to which snapshot of each table that was done is a property of the table of commits,
and moves in the commit that brings the rows. So no snapshot is missing and none comes twice, but those that were
expired before somebody looked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kuvasz import lsn
from kuvasz.lake.about.rows import Row
from kuvasz.lake.files import snapshot_origin
from kuvasz.lake.format import source_positions
from kuvasz.lake.table.notes import ANCHOR_PROPERTY, REWRITE_PROPERTY, SEEN_PREFIX

#: Entries in the summary of a snapshot that a repair made, of the stream's process or of `verify --fix`.
_REPAIRS = frozenset({"kuvasz.repair", "kuvasz.mend"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenSnapshots:
    """Up to where the snapshots of a target are in the table of commits."""

    uuid: str  #: of the target: another one after it was dropped and made anew
    sequence: int = 0
    at_ms: int | None = None  #: when the last one was made

    def render(self) -> str:
        """Return the property's value."""
        return json.dumps([self.uuid, self.sequence, self.at_ms])


def seen_of(properties: Mapping[str, str], target: str, uuid: str) -> SeenSnapshots:
    """Return up to where a target's snapshots are there, from the properties of the table of commits."""
    try:
        found, sequence, at_ms = json.loads(properties[SEEN_PREFIX + target])
        seen = SeenSnapshots(uuid=str(found), sequence=int(sequence), at_ms=None if at_ms is None else int(at_ms))
    except (KeyError, ValueError, TypeError):
        return SeenSnapshots(uuid=uuid)
    return seen if seen.uuid == uuid else SeenSnapshots(uuid=uuid)


class SnapshotList(Protocol):
    """The snapshots of a table, see `kuvasz.lake.jvm.snapshots`."""

    @property
    def sequence(self) -> int:
        """See there."""

    def newer_than(self, sequence: int, most: int | None = None) -> Sequence[Mapping[str, Any]]:
        """See there."""


def news(
    snapshots: SnapshotList, seen: SeenSnapshots, most: int | None = None
) -> tuple[SeenSnapshots, Sequence[Mapping[str, Any]]]:
    """Return the snapshots that are new, oldest first, with what was seen before them.

    Where an older catalog was put back, snapshots get the numbers of those that are gone; the time tells them apart.

    Args:
        snapshots: The target's.
        seen: What was seen before.
        most: How many come back, at the most; None: all of them.
    """
    found = snapshots.newer_than(max(0, seen.sequence - 1), None if most is None else most + 1)
    at_ms = seen.at_ms
    if not seen.sequence or at_ms is None:
        return seen, found[:most]
    if found and int(found[0]["sequence-number"]) == seen.sequence:
        if int(found[0]["timestamp-ms"]) == at_ms:
            return seen, found[1:]
    elif snapshots.sequence >= seen.sequence:  # it was expired
        return seen, found[:most]
    every = snapshots.newer_than(0)
    begin = next((place for place, one in enumerate(every) if int(one["timestamp-ms"]) > at_ms), len(every))
    last = every[begin - 1] if begin else None
    before = SeenSnapshots(
        uuid=seen.uuid,
        sequence=0 if last is None else int(last["sequence-number"]),
        at_ms=None if last is None else int(last["timestamp-ms"]),
    )
    return before, every[begin:][:most]


def rows_of(
    target: str, snapshots: Sequence[Mapping[str, Any]], seen: SeenSnapshots, took: Mapping[int, float]
) -> tuple[list[Row], SeenSnapshots]:
    """Return the rows of snapshots that are new, and what has been seen with them.

    Args:
        target: Whose they are.
        snapshots: As Iceberg's JSON has them, oldest first.
        seen: What was seen before.
        took: Snapshot -> the seconds that its commit took, of those of which somebody said so.
    """
    rows: list[Row] = []
    before_ms = seen.at_ms
    for snapshot in snapshots:
        at_ms, number = int(snapshot["timestamp-ms"]), int(snapshot["snapshot-id"])
        rows.append(_row(target, snapshot, before_ms, took.get(number)))
        before_ms = at_ms
        seen = SeenSnapshots(uuid=seen.uuid, sequence=int(snapshot["sequence-number"]), at_ms=at_ms)
    return rows, seen


def _row(target: str, snapshot: Mapping[str, Any], before_ms: int | None, took_s: float | None) -> Row:
    summary: Mapping[str, str] = snapshot.get("summary", {})
    at_ms = int(snapshot["timestamp-ms"])
    known = snapshot_origin.parse(summary)
    return {
        "target": target,
        "snapshot_id": int(snapshot["snapshot-id"]),
        "sequence": int(snapshot["sequence-number"]),
        "committed_at": datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC),
        "kind": kind_of(summary, known),
        "positions": sorted(_positions(summary).items()),
        "inserts": None if known is None else known.operations.inserts,
        "updates": None if known is None else known.operations.updates,
        "deletes": None if known is None else known.operations.deletes,
        "added_rows": _number(summary, "added-records"),
        "files": _number(summary, "added-data-files") + _number(summary, "added-delete-files"),
        "bytes": _number(summary, "added-files-size"),
        "writing_seconds": None if known is None else known.writing_s,
        "waiting_seconds": None if known is None else known.waiting_s,
        "committing_seconds": took_s,
        "interval_seconds": None if before_ms is None else max(0.0, (at_ms - before_ms) / 1000),
    }


def kind_of(summary: Mapping[str, str], known: snapshot_origin.SnapshotOrigin | None) -> str:
    """Return what made a snapshot, by its summary and what that says of its origin."""
    if known is not None:
        return known.by
    if not _REPAIRS.isdisjoint(summary):
        return "repair"
    if REWRITE_PROPERTY in summary:
        return "maintenance"
    return "kuvasz" if ANCHOR_PROPERTY in summary else "other"


def _positions(summary: Mapping[str, str]) -> dict[str, str]:
    """Return source -> LSN of the sources that moved."""
    found = {}
    with contextlib.suppress(ValueError):  # somebody damaged it, as below; who relies on it says so
        for source, text in source_positions.texts_of(summary).items():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found[source] = lsn.render(source_positions.lsn_of(text))
    return found


def _number(summary: Mapping[str, str], entry: str) -> int:
    text = summary.get(entry, "0")
    return int(text) if text.isdigit() else 0


__all__ = ["SeenSnapshots", "SnapshotList", "kind_of", "news", "rows_of", "seen_of"]
