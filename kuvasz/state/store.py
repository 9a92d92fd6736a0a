"""Which state store a configuration means: asked where things are put together, and nowhere else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kuvasz.state.folder import StateFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.config.model import Config
    from kuvasz.state.coordinator.pieces import SharedPieces
    from kuvasz.state.coordinator.store import CoordinatorStore
    from kuvasz.state.lakes.index_secret import SharedIndexSecret
    from kuvasz.state.lakes.ports import TableOwners
    from kuvasz.state.ports import ClusterMember, StateStore
    from kuvasz.state.shares.ports import GroupHolders
    from kuvasz.state.staged.log_groups import LogGroups
    from kuvasz.state.staged.ports import LogIndex

#: By coordinator, name and folder: whoever writes names the lease that this process holds, so there is one store.
_clusters: dict[tuple[str, str, str], CoordinatorStore] = {}
_lock = threading.Lock()


def state_of(config: Config) -> StateStore:
    """Return the store of what is remembered of sources and tables."""
    return _cluster(config) or StateFolder(config.pipeline.state_folder)


def cluster_member(config: Config, does: str, on_lost: Callable[[str], None]) -> ClusterMember | None:
    """Return this process's place in its cluster; None if the map knows of none.

    Args:
        config: The configuration.
        does: What it does, for the others.
        on_lost: Told why the lease is lost, before anybody else can have it; from a thread of its own.
    """
    found = _cluster(config)
    return None if found is None else found.member(does, on_lost, config.cluster.role)


def shared_pieces(config: Config) -> SharedPieces | None:
    """Return the files that the processes of a cluster share; None if the map knows of none."""
    found = _cluster(config)
    return None if found is None else found.pieces


def log_index(config: Config) -> LogIndex | None:
    """Return the index of the staged log of a cluster; None if the map knows of no cluster."""
    found = _cluster(config)
    return None if found is None else found.log_index


def log_groups(config: Config) -> LogGroups | None:
    """Return the groups of the log of a cluster; None if the map knows of no cluster."""
    found = _cluster(config)
    return None if found is None else found.log_groups


def table_owners(config: Config) -> TableOwners | None:
    """Return which tables of lakes are which group's of a log; None if the map knows of no log."""
    found = _cluster(config)
    return None if found is None or config.cluster.log is None else found.table_owners


def index_secret(config: Config) -> SharedIndexSecret | None:
    """Return the secret of the indexes of a cluster whose processes keep them for each other; None: they do not."""
    found = _cluster(config)
    return None if found is None or config.indexes_location is None else found.index_secret


def group_holders(config: Config) -> GroupHolders | None:
    """Return who applies which groups of the map; None if the map knows of no cluster."""
    found = _cluster(config)
    return None if found is None else found.groups


def _cluster(config: Config) -> CoordinatorStore | None:
    cluster, folder = config.cluster, config.pipeline.state_folder
    if cluster.coordinator is None:
        return None
    from kuvasz.state.coordinator.store import CoordinatorStore

    key = cluster.coordinator.redacted(), cluster.key, str(folder)
    with _lock:
        if key not in _clusters:
            _clusters[key] = CoordinatorStore(
                cluster.coordinator.get, cluster.name, folder, cluster.lease, cluster.group
            )
        return _clusters[key]


__all__ = [
    "cluster_member", "group_holders", "index_secret", "log_groups", "log_index", "shared_pieces", "state_of",
    "table_owners",
]  # fmt: skip
