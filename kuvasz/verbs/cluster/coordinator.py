"""The coordinator as `kuvasz check` looks at it: nothing is made there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.state.store import cluster_member

if TYPE_CHECKING:
    from kuvasz.config.model import Config


def prove(config: Config) -> str:
    """Return what the coordinator is like.

    Raises:
        StateError: It does not answer, or its role may not make what is needed.
        ConfigError: Its tables are a newer kuvasz's.
    """
    member = cluster_member(config, "looks", lambda _: None)
    return "" if member is None else member.look()


__all__ = ["prove"]
