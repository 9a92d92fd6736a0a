"""What a record of who applies which group owes: `tests/contract/test_group_holders.py` holds both bodies to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Protocol


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApplierNode:
    """A process that applies, and lives."""

    drains: bool = False  #: it is to give away what it holds
    map: str = ""  #: what tells its map from others


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeldGroup:
    """Who holds a group, or left without a word while he did."""

    node: str
    lives: bool  #: he was heard of in time, and may write
    map: str  #: what told his map from others when he said so last
    targets: int  #: of it, by that map


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroups:
    """Who applies what, as one of those is told."""

    node: str  #: this process
    nodes: Mapping[str, ApplierNode]  #: all that apply and live
    held: Mapping[str, HeldGroup]  #: groups that somebody holds, or held and left without a word


class GroupHolders(Protocol):
    """The record. From any thread; what writes names the lease, and is refused when that is somebody else's.

    Raises from everything: `StateError` where it does not answer, `StateTaken` where the lease is lost.
    """

    def open(self) -> None:
        """Get ready."""

    def shared(self) -> SharedGroups:
        """Return who applies, and which groups each of them holds."""

    def hold(self, targets: Mapping[str, int], map_digest: str) -> Collection[str]:
        """Take groups that nobody holds who lives, and say anew what is held already.

        Whoever held one and left without a word is refused everything from then on.

        Args:
            targets: Group -> how many targets it has.
            map_digest: What tells the map of this process from others.

        Returns:
            Those of the groups that this process holds from now on.
        """

    def release(self, groups: Collection[str]) -> None:
        """Give groups back that this process holds: nothing of them is under way any more."""


__all__ = ["ApplierNode", "GroupHolders", "HeldGroup", "SharedGroups"]
