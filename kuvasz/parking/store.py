"""Which store of parking logs a configuration means: asked where things are put together, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.parking.log_folder import LogFolder
from kuvasz.state.store import shared_pieces

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.parking.ports import LogStore


def logs_of(config: Config) -> LogStore:
    """Return the store of parked changes."""
    folder, pieces = config.pipeline.state_folder, shared_pieces(config)
    secrets = config.pipeline.sealing_secrets
    if pieces is None:
        return LogFolder(folder, secrets)
    from kuvasz.parking.coordinated_logs import CoordinatedLogs

    return CoordinatedLogs(folder, pieces, secrets)


__all__ = ["logs_of"]
