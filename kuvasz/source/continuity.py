"""Whether a source goes on from where the lake stands, or changes are missing and why. Pure.

Asked at every connection. A slot that is gone or invalidated says so itself; that it was moved by someone else, that
another cluster answers, or one that was restored from an older backup, is told by comparing numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.errors import RESYNC_HINT, SlotLost, SourceReplaced

if TYPE_CHECKING:
    from kuvasz.source.slots import SlotState
    from kuvasz.state.source_record import SourceRecord


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """What a source says of itself at a connection."""

    system_id: str
    timeline: int
    wal_lsn: int  #: the end of its WAL
    slot_name: str
    slot: SlotState | None  #: None: there is none of that name
    switches: Mapping[int, int] | None = None  #: timeline -> LSN at which it was left for ours; None: not asked


def lost(source: str, standing: SourceRecord, applied_lsn: int, server: ServerState, file: object) -> SlotLost | None:
    """Return the error of a stream that cannot be continued without a gap; None if it can.

    Args:
        source: Its name.
        standing: What kuvasz noted of the source.
        applied_lsn: Everything before it may be in the lake; 0: nothing is.
        server: What answers now.
        file: Holds what kuvasz noted.
    """
    if (why := why_replaced(standing, applied_lsn, server)) is not None:
        return SourceReplaced(f"source {source}: {why}", hint=RESYNC_HINT)
    if (why := _why_slot(standing, applied_lsn, server)) is not None:
        return SlotLost(f"source {source}: {why}", hint=hint(why, file))
    return None


def why_replaced(standing: SourceRecord, applied_lsn: int, server: ServerState) -> str | None:
    """Return why what answers is not the source that it was, and lacks some of it; None if it is; see `lost`."""
    if standing.system_id and standing.system_id != server.system_id:
        return f"cluster {server.system_id} answers, not {standing.system_id}"
    lake = f"the lake has its changes up to {lsn.render(applied_lsn)}"
    cause = "an older backup was restored, or a standby took over that was late"
    if standing.timeline and server.timeline < standing.timeline:
        return f"its timeline went back from {standing.timeline} to {server.timeline}: {cause}; {lake}"
    if standing.timeline and server.timeline > standing.timeline and server.switches is not None:
        left = server.switches.get(standing.timeline)
        if left is None:
            return f"its timeline {server.timeline} does not come from {standing.timeline}: {cause}; {lake}"
        if left < applied_lsn:
            return (
                f"its timeline {server.timeline} left timeline {standing.timeline} at {lsn.render(left)}, and"
                f" {lake}: {cause}"
            )
    if server.wal_lsn < applied_lsn:
        return f"its WAL ends at {lsn.render(server.wal_lsn)}, and {lake}: {cause}"
    if server.wal_lsn < standing.confirmed_lsn and not is_rewound(standing, server):
        confirmed = lsn.render(standing.confirmed_lsn)
        return f"its WAL ends at {lsn.render(server.wal_lsn)}, and it was confirmed up to {confirmed}: {cause}"
    return None


def is_rewound(standing: SourceRecord, server: ServerState) -> bool:
    """Whether the source went on from an earlier place than its end, on a timeline of its own.

    A standby that took over lacks what the old primary wrote last. If the lake has none of that, the stream goes on
    from the slot there; but what was confirmed to the old primary says nothing about the new one's WAL.
    """
    return 0 < standing.timeline < server.timeline


def _why_slot(standing: SourceRecord, applied_lsn: int, server: ServerState) -> str | None:
    since = standing.confirmed_lsn or applied_lsn
    missing = f"the changes between {lsn.render(since)} and {lsn.render(server.wal_lsn)} are missing"
    slot = server.slot
    if slot is None:
        return f"slot {server.slot_name} is gone: {missing}"
    if slot.why_lost:
        return f"slot {slot.name} cannot be used: {slot.why_lost}: {missing}"
    moved_to = slot.confirmed_flush_lsn or 0
    if standing.confirmed_lsn and moved_to > standing.confirmed_lsn:
        return (
            f"slot {slot.name} {_MOVED}: the changes between {lsn.render(standing.confirmed_lsn)}"
            f" and {lsn.render(moved_to)} are missing"
        )
    return None


_MOVED = "was advanced by someone else"


def hint(why: str, file: object) -> str:
    """Return what to do when the stream is lost; `file` holds what kuvasz noted of the source."""
    if _MOVED not in why:
        return RESYNC_HINT
    return (
        f"{RESYNC_HINT}. Only if another kuvasz with a state folder of its own ran meanwhile, nothing is missing:"
        f" then remove {file}"
    )


def switches(history: str) -> dict[int, int]:
    """Parse a timeline's history file (manual, section 55.4, TIMELINE_HISTORY): timeline -> LSN where it was left."""
    found = {}
    for line in history.splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[0].isdigit():
            found[int(parts[0])] = lsn.parse(parts[1])
    return found


__all__ = ["RESYNC_HINT", "ServerState", "hint", "is_rewound", "lost", "switches", "why_replaced"]
