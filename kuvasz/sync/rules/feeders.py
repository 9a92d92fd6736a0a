"""Which targets were followed all along, and which missed changes while nobody followed them. Pure.

A source's WAL is let go of for all of its targets at once. So what was confirmed while a target was not in the map is
missed by it, and nothing in the lake's table shows that: its position stays where it was. What shows it is the list
of targets that the sources fed at the last start (`kuvasz.state.ports.StoredFeeds`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from kuvasz.config import names
from kuvasz.config.sources import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feeders:
    """What feeds what; a feeder is as `kuvasz.config.names.feeder_of` names it."""

    now: Mapping[str, frozenset[str]]  #: feeder -> targets that it feeds from this start on
    lasting: Mapping[str, frozenset[str]]  #: the same without those that it did not feed at the start before
    changed: frozenset[str]  #: targets that some feeder feeds no more, or did not feed before
    are_same: bool  #: every feeder is known, and feeds what it fed

    def feeds(self, target: str, name: str) -> bool:
        """Whether the map has a target fed under a name now."""
        return target in self.now[names.feeder_of(name)]


def feeders(sources: Iterable[Source], known: Mapping[str, frozenset[str]]) -> Feeders:
    """Return what feeds what.

    Args:
        sources: The sources of the map.
        known: Feeder -> targets at the last start; of one that is missing it is not known, and all it feeds lasts.
    """
    now = {feeder: targets for source in sources for feeder, targets in _of(source).items()}
    lasting = {feeder: targets & known.get(feeder, targets) for feeder, targets in now.items()}
    changed = (targets ^ known[feeder] for feeder, targets in now.items() if feeder in known)
    are_same = all(known.get(feeder) == targets for feeder, targets in now.items())
    return Feeders(now=now, lasting=lasting, changed=frozenset().union(*changed), are_same=are_same)


def _of(source: Source) -> dict[str, frozenset[str]]:
    collapses = names.member_name(source.name, names.MEMBERS)
    return {
        source.name: frozenset(spec.identifier for spec in source.tables if not spec.is_collapse),
        collapses: frozenset(spec.identifier for spec in source.tables if spec.is_collapse),
    }


__all__ = ["Feeders", "feeders"]
