"""What kuvasz holds of a source, so that it can tell whether the source it meets goes on from there.

The lake says what was applied; what was *confirmed* may be further, for a quiet source confirms without a commit. So
it is written to a small file in the state folder before it is told to the server. That file is worth something only
if nothing newer was lost: it is written without waiting for the disk, which a killed process survives and a machine
that loses power does not. After such an end, or without the file, the confirmed LSN counts as unknown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import sys
from pathlib import Path

from typing_extensions import override

from kuvasz.errors import unreadable
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.state.ports import SourceRecord, StoredRecord

_log = EventLog(__name__)

FOLDER = "sources"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

#: A record is written over the one before it: always as long, so that none is ever seen half.
_RECORD_BYTES = 512


class SourceRecordFile(StoredRecord):
    """The standing of one source and its file, which is read when it is asked for first.

    Args:
        folder: The state folder.
        source: The source's name.
        boot_id: The boot id of the running system; read from the kernel by default.
    """

    def __init__(self, folder: Path, source: str, boot_id: str | None = None) -> None:
        self._folder = folder
        self._source = source
        self._boot_id = _boot_id() if boot_id is None else boot_id
        self._descriptor: int | None = None
        self._failing = EventLimit()  # it is written each second

    @property
    def _path(self) -> Path:
        return self._folder / FOLDER / f"{self._source}.json"

    @functools.cached_property
    @override
    def standing(self) -> SourceRecord:  # type: ignore[override] # cached, it is an attribute like any other
        """See `StoredRecord.standing`: what cannot be read now is not written over."""
        return self._load()

    @property
    @override
    def place(self) -> str:
        return str(self._path)

    def _load(self) -> SourceRecord:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            is_sound = found["is_closed"] or (bool(self._boot_id) and found["boot_id"] == self._boot_id)
            standing = SourceRecord.of_json(found)
            return standing if is_sound else dataclasses.replace(standing, confirmed_lsn=0)
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return SourceRecord()
        except OSError as error:
            raise unreadable(self._path, error) from error

    @override
    def update(self, standing: SourceRecord) -> None:
        """Take a standing over, and write it without waiting for the disk."""
        if self._descriptor is not None and standing == self.standing:
            return
        self.standing = standing
        self._write(is_closed=False)

    @override
    def close(self) -> None:
        """Have the disk keep it: it then counts even after the machine lost power."""
        if self._descriptor is None:
            return
        if not self._write(is_closed=True):
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            _log.tell(Event.STANDING_FAILED, file=str(self._path), error=str(error))
        os.close(self._descriptor)
        self._descriptor = None

    def _write(self, *, is_closed: bool) -> bool:
        """Write the record over the one before; returns whether it could be."""
        record = json.dumps({**self.standing.as_json(), "boot_id": self._boot_id, "is_closed": is_closed})
        try:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
                os.ftruncate(self._descriptor, _RECORD_BYTES)
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES).encode(), 0)
        except OSError as error:
            # A record that is too old would cry wolf; and the stream is worth more than the file.
            if self._failing.is_news():
                _log.tell(Event.STANDING_FAILED, file=str(self._path), error=str(error))
            with contextlib.suppress(OSError):
                self._path.unlink()
            if self._descriptor is not None:  # it has no name any more: what is written next is to have one
                os.close(self._descriptor)
                self._descriptor = None
            return False
        self._failing.over()
        return True


def _boot_id() -> str:
    try:
        return sys.intern(_BOOT_ID.read_text(encoding="ascii").strip())  # one object, which the records of all have
    except OSError:
        return ""


__all__ = ["FOLDER", "SourceRecordFile"]
