"""The parking logs in a folder: one file per table and source, `parked/<source>/<table>.log`.

How far each goes is noted in a folder beside that one (`reach`): whoever puts files back puts back all of a folder.
"""

from __future__ import annotations

import hashlib
import urllib.parse
import uuid
from pathlib import Path

from typing_extensions import override

from kuvasz.parking import log
from kuvasz.parking.ports import LogDamaged, LogStore
from kuvasz.parking.reach import ReachFile
from kuvasz.parking.reached_log import ReachedLog
from kuvasz.seal.sealing_secrets import SealingSecrets

FOLDER = "parked"

#: Where it is noted how far they go.
REACHES = "reach"

#: A file's name has at most 255 bytes.
_NAME_BYTES = 120


class LogFolder(LogStore):
    """The folder.

    Args:
        folder: The state folder; one of its own below it is made when there is something to park.
        secrets: What row messages are sealed with, and opened; by default they are not.
    """

    def __init__(self, folder: Path, secrets: SealingSecrets | None = None) -> None:
        self._folder = folder
        self._secrets = secrets or SealingSecrets()

    @override
    def create(self, target: str, source: str) -> ReachedLog:
        """See `LogStore.create`."""
        made = self.log(target, source)
        made.create(uuid.uuid4().hex)
        return made

    @override
    def load(self, target: str, source: str, log_id: str) -> ReachedLog:
        """See `LogStore.load`."""
        found = self.log(target, source)
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
        return self.unfinished_of(target, source) if log.is_begun(self.path(target, source)) else 0

    def log(self, target: str, source: str) -> ReachedLog:
        """Return the log of a table, which is yet to be made or found."""
        return ReachedLog(self.path(target, source), source, self._secrets, [self.reach(target, source)])

    def unfinished_of(self, target: str, source: str) -> int:
        """Return `TableLog.last_lsn` of a log that is there; 0 if it is finished.

        Raises:
            LogDamaged: It is not whole.
        """
        found = self.log(target, source)
        try:
            found.load()
            return 0 if found.is_finished else found.last_lsn
        finally:
            found.close()

    @override
    def remove(self, target: str, source: str) -> None:
        """See `LogStore.remove`."""
        log.remove(self.path(target, source))
        self.reach(target, source).remove()

    def path(self, target: str, source: str) -> Path:
        """Return where the file of a table's log is."""
        return self._folder / FOLDER / source / f"{self._name(target)}.log"

    def reach(self, target: str, source: str) -> ReachFile:
        """Return where it is noted how far a table's log goes."""
        return ReachFile(self._folder / REACHES / source / f"{self._name(target)}.json")

    @staticmethod
    def _name(target: str) -> str:
        readable = urllib.parse.quote(target, safe="")[:_NAME_BYTES]
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        return f"{readable}-{digest}"


__all__ = ["FOLDER", "REACHES", "LogFolder"]
