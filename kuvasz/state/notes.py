"""All notes of tables as they are now; each change is kept before it counts.

A table's position, and that it lacks one and is to be copied, stand in the lake with its rows. Here is the rest: what
a person wanted (paused, to be copied again) and since when a table fails. It is not a property of the lake's table,
because the lake may be what fails, and a table that was never made can be paused or fail too.
"""

from __future__ import annotations

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog
from kuvasz.state.ports import Note, NoteStore, TableKey

_log = EventLog(__name__)


class TableNotes:
    """The notes. Whoever uses them has a lock of his own.

    Args:
        store: Where they are kept over restarts.

    Raises:
        StateError: They cannot be read.
    """

    def __init__(self, store: NoteStore) -> None:
        self._store = store
        self._notes = store.all()
        self._unkept: dict[TableKey, Note] = {}

    def get(self, target: str, source: str) -> Note | None:
        """Return what is noted of a table; None if nothing ever was."""
        return self._notes.get((target, source))

    def read_again(self) -> None:
        """Go by what other processes have noted since; what could not be kept stays.

        Raises:
            StateError: They cannot be read.
        """
        self._notes = {**self._store.all(), **self._unkept}

    def put(self, target: str, source: str, note: Note) -> None:
        """Note something of a table in place of what was.

        Raises:
            StateError: It cannot be written: all is as before.
        """
        key = target, source
        if not self._says_else(key, note):
            return
        before, unkept = self._notes.get(key), self._unkept.get(key)
        try:
            self._keep(key, note)
        except StateError:
            _restore(self._notes, key, before)
            _restore(self._unkept, key, unkept)
            raise

    def put_failure(self, target: str, source: str, note: Note) -> None:
        """Note since when a table fails, or no more: not worth anything's end where the disk has no room.

        What cannot be kept is kept with the next that can.
        """
        try:
            if self._says_else((target, source), note):
                self._keep((target, source), note)
        except StateError as error:
            _log.tell(Event.NOTE_FAILED, table=target, source=source, error=str(error))

    def let_go(self, target: str, source: str) -> None:
        """Forget what could not be kept of a table: another process may have it next, and note of it."""
        self._unkept.pop((target, source), None)

    def remove(self, target: str, source: str) -> None:
        """Forget a table.

        Raises:
            StateError: It cannot be written.
        """
        if (target, source) in self._notes:
            self._keep((target, source), Note())
            del self._notes[target, source]

    def _says_else(self, key: TableKey, note: Note) -> bool:
        """Whether a note differs from what is kept."""
        return key in self._unkept or self._notes.get(key, Note()) != note

    def _keep(self, key: TableKey, note: Note) -> None:
        self._notes[key] = self._unkept[key] = note
        self._store.put(self._unkept)
        self._unkept.clear()


def _restore(notes: dict[TableKey, Note], key: TableKey, before: Note | None) -> None:
    if before is None:
        notes.pop(key, None)
    else:
        notes[key] = before


__all__ = ["TableNotes"]
