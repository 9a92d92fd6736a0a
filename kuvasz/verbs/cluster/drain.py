"""``kuvasz cluster drain NODE``: a process that shares gives what it has to the others, and takes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError
from kuvasz.verbs.cluster import nodes

if TYPE_CHECKING:
    from kuvasz.config.model import Config

#: What those share who have a role that is shared, and what they do with it.
_SHARED: Final = {ClusterRole.READ: ("sources", "reads"), ClusterRole.APPLY: ("targets", "applies")}


def run(config: Config, name: str, *, is_over: bool = False) -> str:
    """Have a process give what it has away, or take its share again; return what comes of it.

    Args:
        config: The configuration.
        name: The process, as `kuvasz cluster nodes` names it.
        is_over: It takes its share again.

    Raises:
        ConfigError: There is no such process, or it shares nothing.
        StateError: The coordinator does not answer.
    """
    member = nodes.joined(config)
    found = {node.name: node for node in member.nodes()}
    hint = "`kuvasz cluster nodes` lists the processes"
    if name not in found:
        raise ConfigError(f"cluster: there is no process {name}", hint=hint)
    role = found[name].role
    if role not in _SHARED:
        raise ConfigError(
            f"cluster: process {name} has role {role}: only those with role read or apply share anything", hint=hint
        )
    what, does = _SHARED[ClusterRole(role)]
    if not member.drain(name, drains=not is_over):
        raise ConfigError(f"cluster: there is no process {name} any more", hint=hint)
    if is_over:
        return f"{name} takes its share of the {what} again"
    others = [node for node in found.values() if node.role == role and node.is_holder and node.name != name]
    if all(node.is_draining for node in others):
        return f"{name} keeps its {what} until another process can take them: no other one {does}, and is not drained"
    return f"{name} gives its {what} away, and takes none; `kuvasz cluster nodes` shows how many it still has"


__all__ = ["run"]
