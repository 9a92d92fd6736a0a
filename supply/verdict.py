"""What an audit comes to: which holes are open, which are accepted, and whether that may be delivered."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from supply.accepted import Accepted
from supply.hole import Hole


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found.

    Attributes:
        open: Holes that nobody accepted, or nobody any more.
        accepted: Holes that somebody accepted.
        expired: Entries whose last day is over, whether or not their hole is still there.
        unused: Entries that no hole is left for; they do no harm, and should go.
    """

    open: tuple[Hole, ...]
    accepted: tuple[Hole, ...]
    expired: tuple[Accepted, ...]
    unused: tuple[Accepted, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing stands against a delivery."""
        return not (self.open or self.expired)

    @property
    def report(self) -> str:
        """Return what a person reads."""
        lines = [f"hole: {hole.line}" for hole in self.open]
        lines += [f"expired: {entry.line}" for entry in self.expired]
        lines += [f"accepted: {hole.line}" for hole in self.accepted]
        lines += [f"no longer found, remove it: {entry.line}" for entry in self.unused]
        lines.append(f"{len(self.open)} open, {len(self.expired)} expired, {len(self.accepted)} accepted")
        return "\n".join(lines)


def judge(holes: Iterable[Hole], entries: Iterable[Accepted], today: datetime.date) -> Verdict:
    """Return the verdict on what was found."""
    entries = sorted(entries)
    found = sorted(holes)
    valid = [entry for entry in entries if today <= entry.expires]
    accepted = [hole for hole in found if any(_is_meant(hole, entry) for entry in valid)]
    return Verdict(
        open=tuple(hole for hole in found if hole not in accepted),
        accepted=tuple(accepted),
        expired=tuple(entry for entry in entries if entry not in valid),
        unused=tuple(entry for entry in valid if not any(_is_meant(hole, entry) for hole in found)),
    )


def _is_meant(hole: Hole, entry: Accepted) -> bool:
    return hole.package == entry.package and entry.hole in hole.names


__all__ = ["Verdict", "judge"]
