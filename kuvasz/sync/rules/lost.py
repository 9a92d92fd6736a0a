"""What becomes of a table whose source's stream was lost, with `on_slot_lost: repair`. Pure.

A clone is compared with a new snapshot and made equal, and so are the open versions of a history, whatever the map
makes of their rows. What an append or changelog table missed is nowhere to be found any more: it stops, and goes on
with the gap if a person says so. All of them then remember the gap (`kuvasz.ports.Gap`).
"""

from __future__ import annotations

import enum

from kuvasz import lsn
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, place_of, resync_of, retry_of
from kuvasz.model import TableType
from kuvasz.ports import Gap


class GapRemedy(enum.Enum):
    """How a table comes over a gap."""

    COMPARE = "compare"
    ACCEPT = "accept"  #: its rows stay, what it missed stays missing


def cure(source: str, spec: SourceTableSpec, gap: Gap, *, is_accepted: bool) -> GapRemedy:
    """Return how a table comes over a gap.

    Args:
        source: Its name.
        spec: Of the map.
        gap: What was lost.
        is_accepted: A person said so.

    Raises:
        ChangesLost: A person has to say what is to be done.
    """
    kind = spec.config.type
    if kind in {TableType.CLONE, TableType.HISTORY}:
        return GapRemedy.COMPARE
    if not is_accepted:
        message = f"{place_of(source, spec.table)}: its changes after {lsn.render(gap.from_lsn)} are lost, and a"
        message += f" table of type {kind} cannot be compared with its source"
        hint = f"{retry_of(spec.identifier)} goes on with the gap, which the table remembers;"
        hint += f" {resync_of(spec.identifier)} copies it again in place of all rows it has"
        raise ChangesLost(message, hint=hint)
    return GapRemedy.ACCEPT


__all__ = ["GapRemedy", "cure"]
