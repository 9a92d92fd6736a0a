"""The parking logs in a folder: one file per table and source, `parked/<source>/<table>.log`."""

from __future__ import annotations

import hashlib
import urllib.parse
import uuid
from pathlib import Path

from typing_extensions import override

from kuvasz.parking import log
from kuvasz.parking.log import ParkingLog
from kuvasz.parking.ports import LogDamaged, LogStore

FOLDER = "parked"

#: A file's name has at most 255 bytes.
_NAME_BYTES = 120


class LogFolder(LogStore):
    """The folder.

    Args:
        folder: The state folder; one of its own below it is made when there is something to park.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    @override
    def create(self, target: str, source: str) -> ParkingLog:
        """See `LogStore.create`."""
        made = ParkingLog(self._path(target, source), source)
        made.create(uuid.uuid4().hex)
        return made

    @override
    def load(self, target: str, source: str, log_id: str) -> ParkingLog:
        """See `LogStore.load`."""
        found = ParkingLog(self._path(target, source), source)
        try:
            found.load()
            if found.id != log_id:
                raise LogDamaged(f"{found.place} is another log than the lake's table knows")
        except BaseException:
            found.close()
            raise
        return found

    @override
    def unfinished_lsn(self, target: str, source: str) -> int:
        """See `LogStore.unfinished_lsn`."""
        path = self._path(target, source)
        if not log.is_begun(path):
            return 0
        found = ParkingLog(path, source)
        try:
            found.load()
            return 0 if found.is_finished else found.last_lsn
        finally:
            found.close()

    @override
    def remove(self, target: str, source: str) -> None:
        """See `LogStore.remove`."""
        log.remove(self._path(target, source))

    def _path(self, target: str, source: str) -> Path:
        readable = urllib.parse.quote(target, safe="")[:_NAME_BYTES]
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        return self._folder / source / f"{readable}-{digest}.log"


__all__ = ["FOLDER", "LogFolder"]
