"""One table's parked changes where several processes take turns: a file as everywhere, and the same bytes elsewhere.

The coordinator has a group before the file has it, and the next process makes its file of what is there. So a group
is never less than durable when `append` returns, and one that was cut off may be there once more: its transactions
are left out when they come again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError
from kuvasz.parking.log import finish_mark
from kuvasz.parking.ports import LogDamaged
from kuvasz.parking.reached_log import ReachedLog
from kuvasz.seal.sealing_key import Buffer
from kuvasz.seal.sealing_secrets import SealingSecrets

if TYPE_CHECKING:
    from kuvasz.parking.reach import StoredReach
    from kuvasz.state.coordinator.pieces import SharedPieces


class CoordinatedLog(ReachedLog):
    """The log.

    Args:
        path: Where its file is on this machine.
        before: Where that of this machine was before the cluster: nobody else has what is in it.
        source: The source's name, for the segments.
        secrets: What row messages are sealed with, and opened.
        pieces: Where the same bytes are for others.
        name: By which name.
        reaches: Where its reach is noted, on this machine and for others.
    """

    def __init__(
        self,
        path: Path,
        before: Path,
        source: str,
        secrets: SealingSecrets,
        pieces: SharedPieces,
        name: str,
        reaches: Sequence[StoredReach],
    ) -> None:
        super().__init__(path, source, secrets, reaches)
        self._before = before
        self._pieces = pieces
        self._name = name

    @override
    def create(self, log_id: str) -> None:
        """See `ParkingLog.create`."""
        super().create(log_id)
        self._pieces.put(self._name, 0, self._path.read_bytes())

    @override
    def load(self) -> None:
        """See `ReachedLog.load`: what others may have written counts, not what is left of this machine's file."""
        self._bring()
        try:
            private_folder.make_state(self._path.parent)
            self._path.unlink(missing_ok=True)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.writelines(self._pieces.read(self._name))
                file.flush()
                os.fsync(file.fileno())
                found = file.tell()
        except OSError as error:
            raise self._failed(error) from error
        if not found:
            raise LogDamaged(f"{self._path} is gone")
        if found != self._pieces.size(self._name):
            raise LogDamaged(f"{self._path}: a piece is missing at byte {found}")
        super().load()

    def _bring(self) -> None:
        """Bring a log of before the cluster, if there is one; whether it is the table's its id says."""
        try:
            if not self._before.exists():
                return
            if not self._pieces.size(self._name):
                with self._before.open("rb") as file:
                    self._pieces.bring(self._name, file)
            self._before.unlink()  # others may go on with it from here on
        except OSError as error:
            raise StateError(
                f"{self._before} cannot be brought to the coordinator: {error}",
                hint="let kuvasz read and write there; it is tried again",
            ) from error

    @override
    def finish(self) -> None:
        """See `TableLog.finish`."""
        self._pieces.put(self._name, self._size, finish_mark())
        super().finish()

    @override
    def _write(self, buffers: Sequence[Buffer]) -> None:
        try:
            self._pieces.put(self._name, self._size, b"".join(buffers))
        except StateError as error:
            raise OSError(errno.EIO, error.message) from error
        super()._write(buffers)


__all__ = ["CoordinatedLog"]
