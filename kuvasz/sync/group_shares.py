"""Which of the processes that apply is to have which groups of the map. Pure: each works the same out for itself.

Groups that feed one target are one *unit*: they go together, so that a target is one process's alone. Units are
shared out as sources are among those that read (`kuvasz.state.staged.sharing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kuvasz.config.sources import Source
from kuvasz.state.shares.ports import SharedGroups
from kuvasz.state.staged.sharing import shared_out

if TYPE_CHECKING:
    from kuvasz.config.model import Config


class GroupClaims(Protocol):
    """What a process that applies a share of the groups asks when its map changes."""

    @property
    def groups(self) -> frozenset[str]:
        """The groups that it applies at its start."""

    @property
    def has_all(self) -> bool:
        """Whether those are all groups of the map."""

    @property
    def is_alone(self) -> bool:
        """Whether no other process applied when it was asked."""

    def planned(self, config: Config) -> frozenset[str]:
        """Return the groups that it is to apply by another map: what it has, and what nobody has and is its share."""

    def claim(self, groups: frozenset[str]) -> None:
        """Take those that are not its own yet; blocks.

        Raises:
            MapBusy: Another process has taken one since.
            StateError: The coordinator does not answer.
        """

    def elsewhere(self, sources: Collection[str], config: Config) -> Collection[str]:
        """Return those of some sources that another process has, which goes by another map still; blocks.

        Raises:
            StateError: The coordinator does not answer.
        """

    def follow(self, config: Config) -> None:
        """Say that nothing is applied here by another map any more; blocks.

        Raises:
            StateError: The coordinator does not answer.
        """


class GroupShare(NamedTuple):
    """What one process is to do about its share."""

    taken: list[str]  #: groups that nobody holds who lives, and that it is to take
    given: list[str]  #: groups that it holds, and is to give back


def units_of(mapped: Iterable[Source]) -> dict[str, str]:
    """Return group -> its unit, which is called as the first of its groups by name."""
    first: dict[str, str] = {}  #: a group -> one of its unit, itself at the end

    def root(group: str) -> str:
        while first.setdefault(group, group) != group:
            group = first[group]
        return group

    fed: dict[str, str] = {}
    for source in mapped:
        group = root(source.database)
        for spec in source.tables:
            other = root(fed.setdefault(spec.identifier, source.database))
            first[max(group, other)] = group = min(group, other)
    return {group: root(group) for group in first}


def targets_of(mapped: Iterable[Source]) -> dict[str, int]:
    """Return how many targets each group has."""
    found: dict[str, set[str]] = {}
    for source in mapped:
        found.setdefault(source.database, set()).update(spec.identifier for spec in source.tables)
    return {group: len(targets) for group, targets in found.items()}


def whole(units: Mapping[str, str], mine: Collection[str]) -> frozenset[str]:
    """Return those of some groups all of whose unit is among them: only those are applied."""
    lacking = {unit for group, unit in units.items() if group not in mine}
    return frozenset(group for group in mine if group in units and units[group] not in lacking)


def other_map(shared: SharedGroups, digest: str) -> str | None:
    """Return a process that lives, and holds something by another map than a process has; None: there is none."""
    others = (one for one in shared.held.values() if one.lives and one.node != shared.node)
    return next((one.node for one in others if one.map != digest), None)


def left_by(shared: SharedGroups, digest: str) -> str | None:
    """Return a process that left without a word, and held something by another map; None: there is none.

    What this process held itself, before it was killed, it takes by the map that it was started with since.
    """
    others = (one for one in shared.held.values() if not one.lives and one.node != shared.node)
    return next((one.node for one in others if one.map != digest), None)


def share_of(shared: SharedGroups, units: Mapping[str, str], digest: str) -> GroupShare:
    """Return what a process is to do: nothing, once all are shared out.

    Args:
        shared: Who applies what.
        units: As `units_of` returns them for the map of this process.
        digest: What tells that map from others.
    """
    node = shared.node
    nodes = {name: one.drains for name, one in shared.nodes.items() if one.map == digest or name == node}
    plan = shared_out(nodes, _holders(shared, units, nodes))
    left = {units[group] for group, one in shared.held.items()
            if group in units and not one.lives and one.map != digest and one.node != node}  # fmt: skip
    taken, given = [], []
    for group, unit in units.items():
        one = shared.held.get(group)
        if one is not None and one.lives:
            if one.node == node and plan[unit] not in {node, None}:
                given.append(group)
        elif plan[unit] == node and unit not in left:
            taken.append(group)
    return GroupShare(taken=taken, given=given)


def _holders(
    shared: SharedGroups, units: Mapping[str, str], nodes: Collection[str]
) -> dict[str, str | None]:  # fmt: skip
    """Return unit -> who holds the most of it."""
    votes: dict[str, Counter[str]] = {unit: Counter() for unit in units.values()}
    for group, one in shared.held.items():
        if group in units and one.lives and one.node in nodes:
            votes[units[group]][one.node] += 1
    return {
        unit: max(counts, key=lambda name: (counts[name], name)) if counts else None for unit, counts in votes.items()
    }


__all__ = ["GroupClaims", "GroupShare", "left_by", "other_map", "share_of", "targets_of", "units_of", "whole"]
