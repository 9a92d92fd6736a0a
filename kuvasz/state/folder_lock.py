"""Who owns a state folder: one process at a time, proved by a lock of the kernel.

Parking logs, indexes and the spool are written by one process that believes what it wrote last. A second one would
cut logs short that the first is writing, so whoever wants to read or change anything in the folder takes it first.
The lock is ``flock(2)`` on a file: it ends with its process, however that ends, and nothing has to be cleaned up.
What stands in the file says who the owner is, for people alone.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Final

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError, StateTaken
from kuvasz.state.ports import Ownership

FILE: Final = "owner.lock"

#: A verb holds the folder for as long as it takes to write a note: that is waited for, a running kuvasz is not.
_PATIENCE_S: Final = 2.0
_LOOK_S: Final = 0.05
_RECORD_BYTES: Final = 4096


class FolderLock(Ownership):
    """The right to read and change a state folder.

    Args:
        folder: The state folder; made if it is not there.
        does: What the owner does with it, for whoever finds it taken.
    """

    def __init__(self, folder: Path, does: str) -> None:
        self._path = folder / FILE
        self._does = does
        self._descriptor: int | None = None

    @override
    def take(self, patience_s: float = _PATIENCE_S) -> None:
        """Own the folder; nothing happens if this object does so already.

        Args:
            patience_s: How long to wait for an owner that may be about to end.

        Raises:
            StateTaken: Another process owns it.
            StateError: The folder cannot be written, or its file system has no locks.
        """
        if self._descriptor is not None:
            return
        end = time.monotonic() + patience_s
        try:
            private_folder.make_state(self._path.parent)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            while not _is_locked(descriptor):
                if time.monotonic() >= end:
                    raise self._taken(descriptor)
                time.sleep(_LOOK_S)
            self._sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise self._unusable(error) from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    @override
    def give_back(self) -> None:
        """Own the folder no longer. The file stays: were it removed, two processes could lock two files."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _sign(self, descriptor: int) -> None:
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "does": self._does}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)

    def _taken(self, descriptor: int) -> StateTaken:
        return StateTaken(
            f"the state folder {self._path.parent} is in use: {_owner(descriptor)}",
            hint="one kuvasz at a time: stop that one; another map needs a `pipeline.state` of its own",
        )

    def _unusable(self, error: OSError) -> StateError:
        return StateError(
            f"{self._path} cannot be locked: {(error.strerror or str(error)).lower()}",
            hint="choose a folder on a local disk that kuvasz may write to for `pipeline.state`",
        )


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(descriptor: int) -> str:
    """Return who signed; whoever has just taken the folder may not have done so yet."""
    try:
        found = json.loads(os.pread(descriptor, _RECORD_BYTES, 0))
        return f"process {found['pid']} on {found['host']} {found['does']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process holds its lock"


__all__ = ["FILE", "FolderLock"]
