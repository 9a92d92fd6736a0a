"""A process's place in a cluster: its own state folder, its heartbeat, and the lease when its turn comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from kuvasz.errors import StateError, StateTaken
from kuvasz.state.coordinator.database import CoordinatorDatabase
from kuvasz.state.coordinator.heartbeat import Heartbeat
from kuvasz.state.coordinator.lease import ClusterLease
from kuvasz.state.coordinator.nodes.node_list import NodeList
from kuvasz.state.folder_lock import FolderLock
from kuvasz.state.ports import ClusterMember, ClusterNode, LeaseHolder, Ownership

#: A verb holds the lease for as long as it takes to write a note: that is waited for.
_PATIENCE_S: Final = 2.0
_LOOK_S: Final = 0.1


class CoordinatedMember(ClusterMember):
    """The place of this process.

    Args:
        database: The coordinator.
        lease: The cluster's lease.
        nodes: The list of its processes.
        folder: The lock on this process's own state folder.
        heartbeat: Says that it lives.
        on_taken: Called when this process has the lease.
    """

    def __init__(
        self,
        database: CoordinatorDatabase,
        lease: ClusterLease,
        nodes: NodeList,
        folder: FolderLock,
        heartbeat: Heartbeat,
        on_taken: Callable[[], None],
    ) -> None:
        self._database = database
        self._lease = lease
        self._nodes = nodes
        self._folder = folder
        self._heartbeat = heartbeat
        self._on_taken = on_taken

    @property
    @override
    def node(self) -> str:
        """See `ClusterMember.node`."""
        return self._lease.node

    @property
    @override
    def was_killed(self) -> bool:
        """See `ClusterMember.was_killed`."""
        return self._lease.was_killed

    @override
    def join(self) -> None:
        """See `ClusterMember.join`."""
        self._folder.take()
        try:
            self._lease.holder()
        except BaseException:
            self._folder.give_back()
            raise
        self._heartbeat.start()

    @override
    def take(self, does: str, map_digest: str) -> LeaseHolder | None:
        """See `ClusterMember.take`."""
        self._heartbeat.map_digest = map_digest
        holder = self._lease.take(does, map_digest)
        if holder is None:
            self._on_taken()
        return holder

    @override
    def has_map(self, map_digest: str) -> None:
        """See `ClusterMember.has_map`: with the next heartbeat."""
        self._heartbeat.map_digest = map_digest

    @override
    def holder(self) -> LeaseHolder | None:
        """See `ClusterMember.holder`."""
        return self._lease.holder()

    @override
    def look(self) -> str:
        """See `ClusterMember.look`."""
        return self._database.look()

    @override
    def nodes(self) -> list[ClusterNode]:
        """See `ClusterMember.nodes`."""
        return self._nodes.all()

    @override
    def drain(self, node: str, *, drains: bool) -> bool:
        """See `ClusterMember.drain`."""
        return self._nodes.drain(node, drains=drains)

    @override
    def forget(self, node: str) -> bool:
        """See `ClusterMember.forget`."""
        return self._nodes.forget(node)

    @override
    def leave(self) -> None:
        """See `ClusterMember.leave`."""
        self._heartbeat.stop()
        with contextlib.suppress(StateError):
            self._lease.give_back()
            self._nodes.leave()
        self._database.close()
        self._folder.give_back()


class ClusterOwnership(Ownership):
    """The right to what a cluster remembers, for a verb: all processes of the cluster are to be stopped.

    Args:
        member: The place of this process.
        does: As `StateStore.own`.
        cluster: Which cluster's, for people.
    """

    def __init__(self, member: CoordinatedMember, does: str, cluster: str) -> None:
        self._member = member
        self._does = does
        self._cluster = cluster
        self._is_taken = False

    @override
    def take(self) -> None:
        """See `Ownership.take`."""
        if self._is_taken:
            return
        self._member.join()
        end = time.monotonic() + _PATIENCE_S
        try:
            while (holder := self._member.take(self._does, "")) is not None:
                if time.monotonic() >= end:
                    raise self._taken(holder)
                time.sleep(_LOOK_S)
        except BaseException:
            self._member.leave()
            raise
        self._is_taken = True

    def _taken(self, holder: LeaseHolder) -> StateTaken:
        return StateTaken(
            f"the cluster {self._cluster} is in use: {holder.node} {holder.does} since {holder.since}",
            hint="`kuvasz cluster nodes` lists its processes; a dead one is forgotten after `cluster.lease`",
        )

    @override
    def give_back(self) -> None:
        """See `Ownership.give_back`."""
        if self._is_taken:
            self._is_taken = False
            self._member.leave()


__all__ = ["ClusterOwnership", "CoordinatedMember"]
