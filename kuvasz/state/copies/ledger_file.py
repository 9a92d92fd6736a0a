"""The ledger of one copy in a file of the state folder: what it was begun as, then a line for each finished part.

It lies on this machine, also where a cluster's processes share a state: whoever finds none begins the copy again. A
line is on the disk before its session takes another part. One that is torn counts for nothing, and nor does a ledger
that nobody has written to for a week: the files that it names may be gone by then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import LedgerDocument, StoredLedger

_log = EventLog(__name__)

FOLDER: Final = "copies"

#: Of the file; what another version wrote counts for nothing.
VERSION: Final = 1

#: Seconds after its last line for which a ledger counts.
FRESH_S: Final = 7 * 86_400.0


class LedgerFile(StoredLedger):
    """The ledger of one table's copy. From any thread.

    Args:
        folder: The state folder.
        target: The table of the lake.
        source: What is copied.
    """

    def __init__(self, folder: Path, target: str, source: str) -> None:
        name = hashlib.sha256(f"{target}\0{source}".encode()).hexdigest()[:32]
        self._file = folder / FOLDER / f"{name}.jsonl"
        self._names = {"version": VERSION, "target": target, "source": source}
        self._lock = threading.Lock()
        self._is_open = False  #: this process has begun it, or goes on with it

    @property
    @override
    def is_there(self) -> bool:
        """See `StoredLedger.is_there`."""
        return _is_fresh(self._file)

    @override
    def read(self) -> LedgerDocument | None:
        """See `StoredLedger.read`."""
        found = _read(self._file) if self.is_there else None
        if found is None or any(found.head.get(name) != value for name, value in self._names.items()):
            return None
        return found

    @override
    def begin(self, head: Mapping[str, Any], parts: Mapping[int, str], seconds: float = 0.0) -> None:
        """See `StoredLedger.begin`."""
        self.remove()
        lines = [json.dumps({**head, **self._names}), *(_line(*part, seconds) for part in parts.items())]
        with self._lock:
            try:
                private_folder.exchange(self._file, "".join(f"{line}\n" for line in lines))
                self._is_open = True
            except OSError as error:
                self._failed(error)

    @override
    def go_on(self) -> None:
        """See `StoredLedger.go_on`."""
        with self._lock:
            self._is_open = True

    @override
    def note(self, number: int, made: str, seconds: float) -> None:
        """See `StoredLedger.note`."""
        with self._lock:
            if not self._is_open:
                return
            try:
                with self._file.open("r+", encoding="utf-8") as stream:  # one that was removed stays so
                    stream.seek(0, os.SEEK_END)
                    stream.write(f"{_line(number, made, seconds)}\n")
                    stream.flush()
                    os.fsync(stream.fileno())
            except FileNotFoundError:  # somebody wants the table copied from the beginning
                self._is_open = False
            except OSError as error:
                self._failed(error)

    @override
    def remove(self) -> None:
        """See `StoredLedger.remove`."""
        with self._lock:
            self._is_open = False
            try:
                self._file.unlink(missing_ok=True)
                private_folder.sync(self._file.parent)
            except OSError as error:
                message = f"{self._file} cannot be removed: {(error.strerror or str(error)).lower()}"
                hint = "see that kuvasz may write in the folder of `pipeline.state`"
                raise StateError(message, hint=hint) from error

    def _failed(self, error: OSError) -> None:
        self._is_open = False
        _log.tell(
            Event.LEDGER_FAILED, source=self._names["source"], table=self._names["target"], file=str(self._file),
            error=str(error),
        )  # fmt: skip


def parts_of(folder: Path, target: str) -> Iterator[str]:
    """Yield what was made of finished parts, by all ledgers of a table that count.

    Args:
        folder: The state folder.
        target: The table of the lake.
    """
    for file in sorted((folder / FOLDER).glob("*.jsonl")):
        found = _read(file) if _is_fresh(file) else None
        if found is not None and found.head.get("target") == target:
            yield from found.parts.values()


def remove_all(folder: Path, is_meant: Callable[[str, str], bool]) -> int:
    """Remove ledgers for good, whether they count or not; return how many.

    The files that one names stand in it with the smallest and greatest keys of their rows.

    Args:
        folder: The state folder.
        is_meant: Whether the ledger of a target and a source is; one that cannot be read is, whosever it was.

    Raises:
        OSError: One cannot be removed.
    """
    found = [file for file in sorted((folder / FOLDER).glob("*.jsonl")) if _is_meant(file, is_meant)]
    for file in found:
        file.unlink()
    if found:
        private_folder.sync(folder / FOLDER)
    return len(found)


def _is_meant(file: Path, is_meant: Callable[[str, str], bool]) -> bool:
    found = _read(file)
    return found is None or is_meant(str(found.head.get("target")), str(found.head.get("source")))


def _line(number: int, made: str, seconds: float) -> str:
    return json.dumps([number, made, round(seconds, 3)])


def _is_fresh(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < FRESH_S
    except OSError:
        return False


def _read(file: Path) -> LedgerDocument | None:
    try:
        head, *lines = file.read_text(encoding="utf-8").split("\n")
        found = json.loads(head)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    parts: dict[int, str] = {}
    seconds = 0.0
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):  # torn
            number, made, spent = json.loads(line)
            parts[int(number)], seconds = str(made), max(seconds, float(spent))
    return LedgerDocument(head=found, parts=parts, seconds=seconds)


__all__ = ["FOLDER", "FRESH_S", "VERSION", "LedgerFile", "parts_of", "remove_all"]
