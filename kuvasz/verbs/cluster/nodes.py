"""``kuvasz cluster nodes``: the processes of a cluster, as the coordinator knows them."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError
from kuvasz.state.store import cluster_member
from kuvasz.verbs import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.model import Config
    from kuvasz.state.ports import ClusterMember, ClusterNode


#: What a node with the lease of its role does.
_DOES: Final = {"read": "reads", "apply": "applies"}


def run(config: Config) -> list[ClusterNode]:
    """Return the processes.

    Raises:
        ConfigError: The map knows of no cluster.
        StateError: The coordinator does not answer.
    """
    return joined(config).nodes()


def joined(config: Config) -> ClusterMember:
    """Return what asks the coordinator for its processes.

    Raises:
        ConfigError: The map knows of no cluster.
    """
    member = cluster_member(config, "lists nodes", lambda _: None)
    if member is None:
        hint = "docs/operating.md, section A standby, says how to begin"
        raise ConfigError("cluster.coordinator is not set: there is one process alone", hint=hint)
    return member


def exit_code(nodes: Sequence[ClusterNode], *, is_group: bool = False) -> int:
    """Return 0 if one of them replicates, or one reads and another one applies.

    Args:
        nodes: The processes.
        is_group: They are those of a group of the log, none of which reads.
    """
    roles = {node.role for node in nodes if node.is_holder}
    if is_group:
        return 0 if roles else 1
    return 0 if ClusterRole.ALL in roles or roles >= {ClusterRole.READ, ClusterRole.APPLY} else 1


def render(nodes: Sequence[ClusterNode]) -> str:
    """Return a table; maps that differ from that of who replicates are marked."""
    holders = [node for node in nodes if node.is_holder]
    used = next((node.map_digest for node in holders if node.role != ClusterRole.READ), None)
    shares = any(node.sources is not None or node.targets is not None for node in nodes)
    rows = [
        (
            node.name, node.role, _DOES.get(node.role, "replicates") if node.is_holder else "stands by",
            *([_share(node)] if shares else []),
            datetime.datetime.fromtimestamp(node.since, datetime.UTC).isoformat(timespec="seconds"),
            f"{node.silent_s:.0f} s ago", str(node.pid), node.version,
            node.map_digest if used in {None, "", node.map_digest} else f"{node.map_digest} (another one)",
        )
        for node in nodes
    ]  # fmt: skip
    share = ["share"] if shares else []
    return text.table(("node", "role", "does", *share, "since", "heard of", "pid", "version", "map"), rows)


def _share(node: ClusterNode) -> str:
    count, what = (node.sources, "source") if node.targets is None else (node.targets, "target")
    if count is None:
        return ""
    told = f"{count} {what}{'' if count == 1 else 's'}"
    return f"{told}, gives them away" if node.is_draining else told


def as_json(nodes: Sequence[ClusterNode]) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "nodes": [
            {"name": node.name, "host": node.host, "pid": node.pid, "version": node.version, "map": node.map_digest,
             "since": node.since, "silent_s": round(node.silent_s, 1), "role": node.role,
             "replicates": node.is_holder, "sources": node.sources, "targets": node.targets,
             "drains": node.is_draining}
            for node in nodes
        ]
    }  # fmt: skip


__all__ = ["as_json", "exit_code", "joined", "render", "run"]
