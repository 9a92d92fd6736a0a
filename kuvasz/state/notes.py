"""What must be known of tables after a restart and stands nowhere else: a file in the state folder.

A table's position, and that it lacks one and is to be copied, stand in the lake with its rows. Here is the rest: what
a person wanted (paused, to be copied again) and since when a table fails. It is a file, not a property of the lake's
table, because the lake may be what fails, and a table that was never made can be paused or fail too. Without the
file nothing is lost or wrong: paused tables follow again, and errors are new.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from kuvasz.errors import StateError

FILE = "tables.json"

#: (target, source) -> note.
Notes = Mapping[tuple[str, str], "Note"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is noted of one table of one source; the times are unix seconds."""

    paused_at: float | None = None
    is_resync_due: bool = False  #: it is to be copied again, and its position may not be gone from the lake yet
    is_repair: bool = False  #: what differs is to be copied, not all of it
    failed_at: float | None = None  #: of the first of a row of errors
    message: str = ""
    hint: str | None = None


class NoteFile:
    """The file.

    Args:
        folder: The state folder; made when there is something to note.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def load(self) -> dict[tuple[str, str], Note]:
        """Return all notes; none if there is no file.

        Raises:
            StateError: The file cannot be read.
        """
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return {(entry.pop("target"), entry.pop("source")): Note(**entry) for entry in found["tables"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"{self._file} cannot be read: {error}",
                hint="restore it, or remove it: paused tables then follow again",
            ) from error

    def save(self, notes: Notes) -> None:
        """Replace the file; after a crash it is the old one or the new one.

        Raises:
            StateError: It cannot be written.
        """
        tables = [
            {"target": target, "source": source, **dataclasses.asdict(note)}
            for (target, source), note in sorted(notes.items())
            if note != Note()
        ]
        fresh = self._file.with_suffix(".new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as stream:
                json.dump({"tables": tables}, stream, indent=1)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
        except OSError as error:
            raise StateError(
                f"{self._file} cannot be written: {(error.strerror or str(error)).lower()}",
                hint="make room, or choose another folder for `pipeline.state`",
            ) from error


__all__ = ["FILE", "Note", "NoteFile", "Notes"]
