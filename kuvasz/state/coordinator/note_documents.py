"""The notes of all tables, a document each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from kuvasz.errors import StateError
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import Note, NoteStore, TableKey


class NoteDocuments(NoteStore):
    """The notes.

    Args:
        documents: Where they are, by target and source as a JSON array.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    @override
    def all(self) -> dict[TableKey, Note]:
        """See `NoteStore.all`."""
        found = self._documents.all()
        try:
            return {_key(name): Note(**fields) for name, fields in found.items()}
        except (ValueError, TypeError) as error:
            raise StateError(
                f"{self._documents.place}: cannot be read: {error}",
                hint="another version of kuvasz wrote them: run that one; without them paused tables follow again",
            ) from error

    @override
    def put(self, notes: Mapping[TableKey, Note]) -> None:
        """See `NoteStore.put`."""
        self._documents.put({_name(key): _fields(note) for key, note in notes.items()})


def _name(key: TableKey) -> str:
    return json.dumps(key)


def _key(name: str) -> TableKey:
    target, source = json.loads(name)
    return target, source


def _fields(note: Note) -> dict[str, Any] | None:
    return None if note == Note() else dataclasses.asdict(note)


__all__ = ["NoteDocuments"]
