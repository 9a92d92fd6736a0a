"""What kuvasz holds of a source, so that it can tell whether the source it meets goes on from there.

The lake says what was applied; what was *confirmed* may be further, for a quiet source confirms without a commit. So
it is written to a small file in the state folder before it is told to the server. That file is worth something only
if nothing newer was lost: it is written without waiting for the disk, which a killed process survives and a machine
that loses power does not. After such an end, or without the file, the confirmed LSN counts as unknown.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from typing_extensions import override

from kuvasz import lsn
from kuvasz.events import Event, EventLog
from kuvasz.model import Applied
from kuvasz.state.ports import NONE, SourceRecord, StoredRecord

_log = EventLog(__name__)

FOLDER = "sources"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

#: A record is written over the one before it: always as long, so that none is ever seen half.
_RECORD_BYTES = 512


class SourceRecordFile(StoredRecord):
    """The standing of one source and its file.

    Args:
        folder: The state folder.
        source: The source's name.
        boot_id: The boot id of the running system; read from the kernel by default.
    """

    def __init__(self, folder: Path, source: str, boot_id: str | None = None) -> None:
        self._path = folder / FOLDER / f"{source}.json"
        self._boot_id = _boot_id() if boot_id is None else boot_id
        self._descriptor: int | None = None
        self.standing = self._load()

    @property
    @override
    def place(self) -> str:
        return str(self._path)

    def _load(self) -> SourceRecord:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            is_sound = found["is_closed"] or (bool(self._boot_id) and found["boot_id"] == self._boot_id)
            return SourceRecord(
                system_id=found["system_id"], timeline=int(found["timeline"]),
                history=int(found.get("history", 0)),
                confirmed_lsn=lsn.parse(found["confirmed"]) if is_sound else 0,
                started_us=int(found.get("started_us", 0)), proved_lsn=lsn.parse(found.get("proved", "0/0")),
                witness=Applied(*map(int, found.get("witness", NONE))),
                looked_lsn=lsn.parse(found.get("looked", "0/0")),
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError):
            return SourceRecord()

    @override
    def update(self, standing: SourceRecord) -> None:
        """Take a standing over, and write it without waiting for the disk."""
        if standing == self.standing and self._descriptor is not None:
            return
        self.standing = standing
        self._write(is_closed=False)

    @override
    def close(self) -> None:
        """Have the disk keep it: it then counts even after the machine lost power."""
        if self._descriptor is None:
            return
        self._write(is_closed=True)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            _log.tell(Event.STANDING_FAILED, file=str(self._path), error=str(error))
        os.close(self._descriptor)
        self._descriptor = None

    def _write(self, *, is_closed: bool) -> None:
        standing = self.standing
        record = json.dumps({
            "system_id": standing.system_id, "timeline": standing.timeline, "history": standing.history,
            "confirmed": lsn.render(standing.confirmed_lsn), "boot_id": self._boot_id, "is_closed": is_closed,
            "started_us": standing.started_us, "proved": lsn.render(standing.proved_lsn),
            "witness": list(standing.witness), "looked": lsn.render(standing.looked_lsn),
        })  # fmt: skip
        try:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
                os.ftruncate(self._descriptor, _RECORD_BYTES)
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES).encode(), 0)
        except OSError as error:
            # A record that is too old would cry wolf; and the stream is worth more than the file.
            _log.tell(Event.STANDING_FAILED, file=str(self._path), error=str(error))
            with contextlib.suppress(OSError):
                self._path.unlink()


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


__all__ = ["FOLDER", "SourceRecordFile"]
