"""Which state store a configuration means: asked where things are put together, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.state.folder import StateFolder

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.state.ports import StateStore


def state_of(config: Config) -> StateStore:
    """Return the store of what is remembered of sources and tables."""
    return StateFolder(config.pipeline.state_folder)


__all__ = ["state_of"]
