"""``kuvasz cluster forget NODE``: what a process held that is gone for good is anybody's, whichever map it had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.errors import ConfigError
from kuvasz.verbs.cluster import nodes

if TYPE_CHECKING:
    from kuvasz.config.model import Config


def run(config: Config, name: str) -> str:
    """Forget a process; return what comes of it.

    Args:
        config: The configuration.
        name: The process, as `map_differs` or `kuvasz cluster nodes` names it.

    Raises:
        ConfigError: There was no such process, or it lives.
        StateError: The coordinator does not answer.
    """
    if not nodes.joined(config).forget(name):
        hint = "`kuvasz cluster nodes` lists the processes, and the log names one with another map"
        raise ConfigError(f"cluster: nothing is known of a process {name}", hint=hint)
    return f"{name} is forgotten: the others take what it held, by the map that they have"


__all__ = ["run"]
