"""Whether a source's stream is lost, and what becomes of a table then, with `on_slot_lost: repair`. Pure.

A clone is compared with a new snapshot and made equal, and so are the open versions of a history, whatever the map
makes of their rows. What an append or changelog table missed is nowhere to be found any more: it stops, and goes on
with the gap if a person says so. All of them then remember the gap (`kuvasz.ports.Gap`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import ChangesLost, SlotLost, place_of, resync_of, retry_of, start_over
from kuvasz.ports import Gap
from kuvasz.source import slots

if TYPE_CHECKING:
    from kuvasz.errors import SourceRefused
    from kuvasz.source.slots import SlotState


class GapRemedy(enum.Enum):
    """How a table comes over a gap."""

    COMPARE = "compare"
    ACCEPT = "accept"  #: its rows stay, what it missed stays missing


def without_slot(source: Source, slot: SlotState | None, *, is_known: bool) -> SlotLost | SourceRefused | None:
    """Return the error of a stream that cannot go on in its slot; None if it can, or has not begun yet.

    Args:
        source: The source, as the map has it.
        slot: The slot of its name; None if there is none.
        is_known: Whether the lake has rows of the source.
    """
    place, name = place_of(source.name), source.object_name
    if slot is None:
        told = f"{place}: slot {name} is gone, but the lake has rows of it"
        hint = f"the missed changes are gone: {start_over(source.name)}"
        return SlotLost(told, hint=hint) if is_known else None
    if slot.why_foreign:
        return slots.foreign(slot, place)
    if why := slot.why_lost:
        hint = f"drop it (SELECT pg_drop_replication_slot('{name}')), then {start_over(source.name)}"
        return SlotLost(f"{place}: slot {name} cannot be used: {why}", hint=hint)
    return None


def cure(source: str, spec: SourceTableSpec, gap: Gap, *, is_accepted: bool) -> GapRemedy:
    """Return how a table comes over a gap.

    Args:
        source: Its name.
        spec: What the map says of the table.
        gap: What was lost.
        is_accepted: A person said so.

    Raises:
        ChangesLost: A person has to say what is to be done.
    """
    kind = spec.config.type
    if kind.is_comparable:
        return GapRemedy.COMPARE
    if not is_accepted:
        message = f"{place_of(source, spec.table)}: its changes after {lsn.render(gap.from_lsn)} are lost, and a"
        message += f" table of type {kind} cannot be compared with its source"
        hint = f"{retry_of(spec.identifier)} goes on with the gap, which the table remembers;"
        hint += f" {resync_of(spec.identifier)} copies it again in place of all rows it has"
        raise ChangesLost(message, hint=hint)
    return GapRemedy.ACCEPT


__all__ = ["GapRemedy", "cure", "without_slot"]
