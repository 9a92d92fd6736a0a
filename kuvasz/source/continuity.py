"""Whether a source goes on from where the lake stands, or changes are missing and why. Pure.

Asked at every connection. A slot that is gone or invalidated says so itself; that it was moved by someone else, that
another cluster answers, or one that was restored from an older backup, is told by comparing numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.errors import SlotLost, SourceReplaced, place_of, start_over

if TYPE_CHECKING:
    from kuvasz.model import Applied, SourcePosition
    from kuvasz.source.slots import SlotState
    from kuvasz.state.ports import SourceRecord


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """What a source says of itself at a connection."""

    system_id: str
    timeline: int
    wal_lsn: int  #: the end of its WAL
    slot_name: str
    slot: SlotState | None  #: None: there is none of that name
    switches: Mapping[int, int] | None = None  #: timeline -> LSN at which it was left for ours; None: not asked
    started_us: int = 0  #: when it was started, µs since 1970 UTC; 0: not asked


def lost(source: str, standing: SourceRecord, applied_lsn: int, server: ServerState, place: str) -> SlotLost | None:
    """Return the error of a stream that cannot be continued without a gap; None if it can.

    Args:
        source: Its name.
        standing: What kuvasz noted of the source.
        applied_lsn: Everything before it may be in the lake; 0: nothing is.
        server: What answers now.
        place: Where what kuvasz noted is.
    """
    if (why := why_replaced(standing, applied_lsn, server)) is not None:
        return SourceReplaced(f"{place_of(source)}: {why}", hint=start_over(source))
    if (why := _why_slot(standing, applied_lsn, server)) is not None:
        return SlotLost(f"{place_of(source)}: {why}", hint=hint(source, why, place))
    return None


def without_publication(source: str, name: str, standing: SourceRecord, applied_lsn: int) -> SlotLost:
    """Return the error of a stream whose publication was dropped; see `lost`."""
    since = lsn.render(standing.confirmed_lsn or applied_lsn)
    why = f"publication {name} was dropped: changes after {since} may be missing"
    return SlotLost(f"{place_of(source)}: {why}", hint=start_over(source))


def without_record(source: str, slot: SlotState, place: str) -> SlotLost:
    """Return the error of a stream of which nobody knows what was staged; see `lost`."""
    why = f"nothing is known of it in {place}: changes before {lsn.render(slot.confirmed_flush_lsn or 0)}"
    return SlotLost(
        f"{place_of(source)}: {why} may have been staged, and be nowhere else",
        hint=f"give kuvasz the coordinator, and the `cluster.name`, that it had; or {start_over(source)}",
    )


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


def witness(
    source: str,
    standing: SourceRecord,
    copied: Iterable[SourcePosition],
    applied: Iterable[Applied],
    server: ServerState,
) -> Applied | None:
    """Return a transaction that has to come again, to prove that a source has what was copied; None: that is proved.

    A backup that was put back without recovery keeps its timeline, and its WAL may have grown beyond the lake's
    positions by the time it is looked at. A transaction proves the WAL up to itself, for it has to come again. A copy
    leaves no trace there: it is proved by the server that it was read from, as long as that is not started anew, by a
    slot that was confirmed behind it, which only kuvasz does, or by a transaction behind it.

    Args:
        source: Its name.
        standing: What kuvasz noted of the source.
        copied: Copies in the lake that no transaction of their table has followed.
        applied: The last transactions in the lake.
        server: What answers now, on the timeline that it was on or on one that left that behind the lake's positions.

    Raises:
        SourceReplaced: Nothing can prove it.
    """
    confirmed_lsn = 0 if server.slot is None else server.slot.confirmed_flush_lsn or 0
    is_compared = server.started_us == standing.started_us
    proved_lsn = max(confirmed_lsn, standing.proved_lsn if is_compared else 0)
    known = {server.started_us}
    if is_compared or not standing.started_us:
        known.add(0)  # earlier versions did not note it
    unproved = [one.lsn for one in copied if one.lsn > proved_lsn and one.started_us not in known]
    if not unproved or is_rewound(standing, server):
        return None
    found = min((one for one in (*applied, standing.witness) if one.commit_lsn >= max(unproved)), default=None)
    if found is None:
        raise SourceReplaced(
            f"{place_of(source)}: its server was started anew, slot {server.slot_name} stands at"
            f" {lsn.render(confirmed_lsn)}, and nothing proves that it has what was copied as of"
            f" {lsn.render(max(unproved))}: an older backup may have been restored",
            hint=start_over(source),
        )
    return found


def _why_slot(standing: SourceRecord, applied_lsn: int, server: ServerState) -> str | None:
    confirmed_lsn = _confirmed_here(standing, server)
    since = confirmed_lsn or applied_lsn
    missing = f"the changes between {lsn.render(since)} and {lsn.render(server.wal_lsn)} are missing"
    slot = server.slot
    if slot is None:
        return f"slot {server.slot_name} is gone: {missing}"
    if slot.why_lost:
        return f"slot {slot.name} cannot be used: {slot.why_lost}: {missing}"
    moved_to = slot.confirmed_flush_lsn or 0
    if confirmed_lsn and moved_to > confirmed_lsn:
        return (
            f"slot {slot.name} {_MOVED}: the changes between {lsn.render(confirmed_lsn)}"
            f" and {lsn.render(moved_to)} are missing"
        )
    return None


def _confirmed_here(standing: SourceRecord, server: ServerState) -> int:
    """Return what was confirmed as far as the server has that: behind the place where its timeline begins it has not.

    A slot that its standby kept stands before that place, so one that stands behind it was made or moved there by
    someone else.
    """
    left = (server.switches or {}).get(standing.timeline) if is_rewound(standing, server) else None
    return standing.confirmed_lsn if left is None else min(standing.confirmed_lsn, left)


_MOVED = "was advanced by someone else"


def hint(source: str, why: str, place: str) -> str:
    """Return what to do when the stream is lost; what kuvasz noted of the source is at `place`."""
    if _MOVED not in why:
        return start_over(source)
    return (
        f"{start_over(source)}. Only if another kuvasz with a state folder of its own ran meanwhile, nothing is"
        f" missing: then remove {place}"
    )


def switches(history: str) -> dict[int, int]:
    """Parse a timeline's history file (manual, section 55.4, TIMELINE_HISTORY): timeline -> LSN where it was left."""
    found = {}
    for line in history.splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[0].isdigit():
            found[int(parts[0])] = lsn.parse(parts[1])
    return found


__all__ = [
    "ServerState", "hint", "is_rewound", "lost", "switches", "why_replaced", "without_publication", "without_record",
]  # fmt: skip
