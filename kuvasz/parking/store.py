"""Which store of parking logs a configuration means: asked where things are put together, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.parking.log_folder import LogFolder

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.parking.ports import LogStore


def logs_of(config: Config) -> LogStore:
    """Return the store of parked changes."""
    return LogFolder(config.pipeline.state_folder)


__all__ = ["logs_of"]
