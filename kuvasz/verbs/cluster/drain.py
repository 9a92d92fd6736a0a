"""``kuvasz cluster drain NODE``: a process that reads gives its sources to the others, and takes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError
from kuvasz.verbs.cluster import nodes

if TYPE_CHECKING:
    from kuvasz.config.model import Config


def run(config: Config, name: str, *, is_over: bool = False) -> str:
    """Have a process give its sources away, or take its share again; return what comes of it.

    Args:
        config: The configuration.
        name: The process, as `kuvasz cluster nodes` names it.
        is_over: It takes its share again.

    Raises:
        ConfigError: There is no such process, or it reads nothing.
        StateError: The coordinator does not answer.
    """
    member = nodes.joined(config)
    found = {node.name: node for node in member.nodes()}
    hint = "`kuvasz cluster nodes` lists the processes"
    if name not in found:
        raise ConfigError(f"cluster: there is no process {name}", hint=hint)
    if found[name].role != ClusterRole.READ:
        raise ConfigError(
            f"cluster: process {name} has role {found[name].role}: only those with role read share sources", hint=hint
        )
    if not member.drain(name, drains=not is_over):
        raise ConfigError(f"cluster: there is no process {name} any more", hint=hint)
    if is_over:
        return f"{name} takes its share of the sources again"
    others = [
        node for node in found.values() if node.role == ClusterRole.READ and node.is_holder and node.name != name
    ]
    if all(node.is_draining for node in others):
        return f"{name} keeps its sources until another process can take them: no other one reads, and is not drained"
    return f"{name} gives its sources away, and takes none; `kuvasz cluster nodes` shows how many it still has"


__all__ = ["run"]
