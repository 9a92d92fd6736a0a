"""Which targets were followed all along, and which missed changes while nobody followed them. Pure.

A source's WAL is let go of for all of its targets at once. So what was confirmed while a target was not in the map is
missed by it, and nothing in the lake's table shows that: its position stays where it was. What shows it is the list
of targets that the sources fed at the last start (`kuvasz.state.ports.StoredFeeds`).

Nor does it show that another source has put its rows in the place of those of one that left the map: that one's slot
is there still, and its position is that of rows that are gone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from kuvasz.config import names
from kuvasz.config.sources import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feeders:
    """What feeds what; a feeder is as `kuvasz.config.names.feeder_of` names it."""

    #: feeder -> targets that it feeds from this start on, or of one that is not in the map: that would last
    now: Mapping[str, frozenset[str]]
    lasting: Mapping[str, frozenset[str]]  #: the same without those that it did not feed at the start before
    changed: frozenset[str]  #: targets that some feeder feeds no more, or did not feed before
    are_same: bool  #: every feeder is known, and feeds what it fed
    robbed: frozenset[str]  #: other sources, some of whose rows are those of the map's from now on

    def feeds(self, target: str, name: str) -> bool:
        """Whether the map has a target fed under a name now."""
        return target in self.now.get(names.feeder_of(name), ())


def feeders(
    sources: Collection[Source], known: Mapping[str, frozenset[str]], sids: Mapping[str, str | None]
) -> Feeders:
    """Return what feeds what.

    Args:
        sources: The sources of the map.
        known: Feeder -> targets at the last start; of one that is missing it is not known, and all it feeds lasts.
        sids: Source -> the sid of its rows, also of those that have left the map.
    """
    now = {feeder: targets for source in sources for feeder, targets in _of(source).items()}
    robbed = _robbed(sources, {feeder: known[feeder] for feeder in known.keys() - now.keys()}, sids)
    now |= robbed
    lasting = {feeder: targets & known.get(feeder, targets) for feeder, targets in now.items()}
    changed = (targets ^ known[feeder] for feeder, targets in now.items() if feeder in known)
    are_same = all(known.get(feeder) == targets for feeder, targets in now.items())
    return Feeders(
        now=now, lasting=lasting, changed=frozenset().union(*changed), are_same=are_same,
        robbed=frozenset(map(names.source_of, robbed)),
    )  # fmt: skip


def rows_of(source: Source) -> set[tuple[str, str | None]]:
    """Return which rows a source feeds: those of its sid in each target, or all of them where there is none.

    Which sids the schemas of a source have is not known here: those may be any.
    """
    return {
        (spec.identifier, source.sid if spec.has_sid and spec.schemas is None else None) for spec in source.tables
    }


def _robbed(
    sources: Iterable[Source], others: Mapping[str, frozenset[str]], sids: Mapping[str, str | None]
) -> dict[str, frozenset[str]]:
    """Return those of other feeders whose rows are the sources' from now on, with the targets that they have left."""
    taken: dict[str | None, set[str]] = {}
    for source in sources:
        for target, sid in rows_of(source):
            taken.setdefault(sid, set()).add(target)
    found = {
        feeder: targets - taken.get(None, set()) - taken.get(sids.get(names.source_of(feeder)), set())
        for feeder, targets in others.items()
    }
    return {feeder: left for feeder, left in found.items() if left != others[feeder]}


def _of(source: Source) -> dict[str, frozenset[str]]:
    collapses = names.member_name(source.name, names.MEMBERS)
    return {
        source.name: frozenset(spec.identifier for spec in source.tables if not spec.is_collapse),
        collapses: frozenset(spec.identifier for spec in source.tables if spec.is_collapse),
    }


__all__ = ["Feeders", "feeders", "rows_of"]
