"""``kuvasz cluster nodes``: the processes of a cluster, as the coordinator knows them."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from kuvasz.errors import ConfigError
from kuvasz.state.store import cluster_member
from kuvasz.verbs import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.model import Config
    from kuvasz.state.ports import ClusterNode


def run(config: Config) -> list[ClusterNode]:
    """Return the processes.

    Raises:
        ConfigError: The map knows of no cluster.
        StateError: The coordinator does not answer.
    """
    member = cluster_member(config, "lists nodes", lambda _: None)
    if member is None:
        hint = "docs/operating.md, section A standby, says how to begin"
        raise ConfigError("cluster.coordinator is not set: there is one process alone", hint=hint)
    return member.nodes()


def exit_code(nodes: Sequence[ClusterNode]) -> int:
    """Return 0 if one of them replicates."""
    return 0 if any(node.is_holder for node in nodes) else 1


def render(nodes: Sequence[ClusterNode]) -> str:
    """Return a table; maps that differ from that of who replicates are marked."""
    used = next((node.map_digest for node in nodes if node.is_holder), None)
    rows = [
        (
            node.name, "replicates" if node.is_holder else "stands by",
            datetime.datetime.fromtimestamp(node.since, datetime.UTC).isoformat(timespec="seconds"),
            f"{node.silent_s:.0f} s ago", str(node.pid), node.version,
            node.map_digest if used in {None, "", node.map_digest} else f"{node.map_digest} (another one)",
        )
        for node in nodes
    ]  # fmt: skip
    return text.table(("node", "does", "since", "heard of", "pid", "version", "map"), rows)


def as_json(nodes: Sequence[ClusterNode]) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "nodes": [
            {"name": node.name, "host": node.host, "pid": node.pid, "version": node.version, "map": node.map_digest,
             "since": node.since, "silent_s": round(node.silent_s, 1), "replicates": node.is_holder}
            for node in nodes
        ]
    }  # fmt: skip


__all__ = ["as_json", "exit_code", "render", "run"]
