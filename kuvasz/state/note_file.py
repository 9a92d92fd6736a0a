"""The notes of all tables in one file of the state folder, `tables.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError
from kuvasz.state.ports import Note, NoteStore, TableKey

FILE = "tables.json"


class NoteFile(NoteStore):
    """The file.

    Args:
        folder: The state folder; made when there is something to note.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._kept: dict[TableKey, Note] | None = None  #: what the file has; None: it was not read yet

    @override
    def all(self) -> dict[TableKey, Note]:
        """See `NoteStore.all`; none if there is no file."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            self._kept = {(entry.pop("target"), entry.pop("source")): Note(**entry) for entry in found["tables"]}
        except FileNotFoundError:
            self._kept = {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"{self._file} cannot be read: {error}",
                hint="restore it, or remove it: paused tables then follow again",
            ) from error
        return dict(self._kept)

    @override
    def put(self, notes: Mapping[TableKey, Note]) -> None:
        """See `NoteStore.put`. After a crash the file is the old one or the new one."""
        before = self.all() if self._kept is None else self._kept
        after = {key: note for key, note in {**before, **notes}.items() if note != Note()}
        self._write(after)
        self._kept = after

    def _write(self, notes: Mapping[TableKey, Note]) -> None:
        tables = [
            {"target": target, "source": source, **dataclasses.asdict(note)}
            for (target, source), note in sorted(notes.items())
        ]
        try:
            private_folder.exchange(self._file, json.dumps({"tables": tables}, indent=1))
        except OSError as error:
            raise StateError(
                f"{self._file} cannot be written: {(error.strerror or str(error)).lower()}",
                hint="make room, or choose another folder for `pipeline.state`",
            ) from error


__all__ = ["FILE", "NoteFile"]
