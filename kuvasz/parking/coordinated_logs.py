"""The parking logs of a cluster: files of this process, and the same bytes at the coordinator for the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.parking import log
from kuvasz.parking.coordinated_log import CoordinatedLog
from kuvasz.parking.log_folder import LogFolder
from kuvasz.parking.reach import ReachDocument
from kuvasz.seal.sealing_secrets import SealingSecrets

if TYPE_CHECKING:
    from kuvasz.state.coordinator.pieces import SharedPieces


#: Ends the name of a file.
_COPY: Final = ".copy.log"


class CoordinatedLogs(LogFolder):
    """The logs.

    Args:
        folder: The state folder of this process.
        pieces: What the processes share.
        secrets: What row messages are sealed with, and opened; by default they are not.
    """

    def __init__(self, folder: Path, pieces: SharedPieces, secrets: SealingSecrets | None = None) -> None:
        super().__init__(folder, secrets)
        self._pieces = pieces

    @override
    def log(self, target: str, source: str) -> CoordinatedLog:
        """Return the log of a table, which is yet to be made or found."""
        before = super().path(target, source)
        path, name = self.path(target, source), _name(target, source)
        reaches = [self.reach(target, source), self._shared_reach(target, source)]
        return CoordinatedLog(path, before, source, self._secrets, self._pieces, name, reaches)

    def _shared_reach(self, target: str, source: str) -> ReachDocument:
        return ReachDocument(self._pieces.reaches, _name(target, source))

    @override
    def path(self, target: str, source: str) -> Path:
        """Return where this machine's copy is: of another name than a file that is nowhere else."""
        return super().path(target, source).with_suffix(_COPY)

    @override
    def unfinished_lsn(self, target: str, source: str) -> int:
        """See `LogStore.unfinished_lsn`."""
        return self.unfinished_of(target, source) if self._pieces.size(_name(target, source)) else 0

    @override
    def remove(self, target: str, source: str) -> None:
        """See `LogStore.remove`."""
        self._pieces.remove(_name(target, source))
        self._shared_reach(target, source).remove()
        super().remove(target, source)
        log.remove(super().path(target, source))


def _name(target: str, source: str) -> str:
    return json.dumps(("parked", source, target))


__all__ = ["CoordinatedLogs"]
