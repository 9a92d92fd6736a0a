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
from kuvasz.parking.log import Buffer, ParkingLog, finish_mark
from kuvasz.parking.ports import LogDamaged

if TYPE_CHECKING:
    from kuvasz.state.coordinator.pieces import SharedPieces


class CoordinatedLog(ParkingLog):
    """The log.

    Args:
        path: Where its file is on this machine.
        source: The source's name, for the segments.
        pieces: Where the same bytes are for others.
        name: By which name.
    """

    def __init__(self, path: Path, source: str, pieces: SharedPieces, name: str) -> None:
        super().__init__(path, source)
        self._pieces = pieces
        self._name = name

    @override
    def create(self, log_id: str) -> None:
        """See `ParkingLog.create`."""
        super().create(log_id)
        self._pieces.put(self._name, 0, self._path.read_bytes())

    @override
    def load(self) -> None:
        """See `ParkingLog.load`: what others may have written counts, not what is left of this machine's file."""
        if self._is_from_before():
            super().load()
            return
        try:
            private_folder.make_state(self._path.parent)
            self._path.unlink(missing_ok=True)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.writelines(self._pieces.read(self._name))
                file.flush()
                os.fsync(file.fileno())
                if not file.tell():
                    raise LogDamaged(f"{self._path} is gone")
        except (OSError, StateError) as error:
            raise LogDamaged(f"{self._path} cannot be had from the coordinator: {error}") from error
        super().load()

    def _is_from_before(self) -> bool:
        """Bring a log of before the cluster, and say whether there was one; whether it is the table's its id says."""
        try:
            if self._pieces.size(self._name) or not self._path.exists():
                return False
            with self._path.open("rb") as file:
                self._pieces.bring(self._name, file)
        except (OSError, StateError) as error:
            raise LogDamaged(f"{self._path} cannot be brought to the coordinator: {error}") from error
        return True

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
