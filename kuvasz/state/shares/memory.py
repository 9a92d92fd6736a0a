"""Who applies which group, in memory, for tests: it outlives whatever uses it, and ends with its process."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from typing_extensions import override

from kuvasz.errors import StateTaken
from kuvasz.state.shares.ports import ApplierNode, GroupHolders, HeldGroup, SharedGroups


class MemoryGroups(GroupHolders):
    """The record. Several processes ask, one after another."""

    def __init__(self) -> None:
        self.node = "memory"  #: who asks
        self.nodes = {self.node: ApplierNode()}  #: those who apply
        self.ended: set[str] = set()  #: whose lease was ended: they are refused until they begin again
        self._held: dict[str, HeldGroup] = {}

    @override
    def open(self) -> None:
        """See `GroupHolders.open`."""

    @override
    def shared(self) -> SharedGroups:
        """See `GroupHolders.shared`."""
        held = {
            group: HeldGroup(node=one.node, lives=self._lives(one.node), map=one.map, targets=one.targets)
            for group, one in self._held.items()
        }
        return SharedGroups(node=self.node, nodes=dict(self.nodes), held=held)

    def _lives(self, node: str) -> bool:
        return node in self.nodes and node not in self.ended

    @override
    def hold(self, targets: Mapping[str, int], map_digest: str) -> Collection[str]:
        """See `GroupHolders.hold`."""
        if self.node not in self.nodes:
            return []
        self._prove()
        self.ended |= {one.node for one in self._held.values() if one.node not in self.nodes}
        got = []
        for group, count in targets.items():
            before = self._held.get(group)
            if before is None or before.node == self.node or not self._lives(before.node):
                self._held[group] = HeldGroup(node=self.node, lives=True, map=map_digest, targets=count)
                got.append(group)
        return got

    @override
    def release(self, groups: Collection[str]) -> None:
        """See `GroupHolders.release`."""
        self._prove()
        for group in groups:
            if (one := self._held.get(group)) is not None and one.node == self.node:
                del self._held[group]

    def _prove(self) -> None:
        if self.node in self.ended:
            raise StateTaken(
                "the lease is lost", hint="`kuvasz cluster nodes` says which; this one ends, or has to be stopped"
            )


__all__ = ["MemoryGroups"]
