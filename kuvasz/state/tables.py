"""What state each table of each source is in, for the pipeline to obey and for observers to show. Thread-safe.

    new ──> copying ──> catching_up ──> streaming        error, paused <── any of these
     set by the source's task      set by workers         set by whoever finds out

After a restart most states are found again from the positions in the lake. What is not to be found there is noted in
the state folder: that a table is paused, that it is to be copied again, and since when it fails
(`kuvasz.state.notes`).
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import threading
import time
from collections.abc import Callable

from kuvasz.config import names
from kuvasz.errors import KuvaszError, ParkedLost, StateError, TableError
from kuvasz.state.notes import Note, NoteFile

_log = logging.getLogger(__name__)


class State(enum.Enum):
    """State of one table of one source."""

    NEW = "new"
    COPYING = "copying"
    CATCHING_UP = "catching_up"
    STREAMING = "streaming"
    PAUSED = "paused"
    ERROR = "error"


@dataclasses.dataclass(slots=True, kw_only=True)
class TableState:
    """What is known of one table of one source. Read it through `TableStates.snapshot`."""

    target: str
    source: str  #: or `names.member_name`, for one of several tables that are one target
    table: str
    mapped: str = ""  #: the name in the map, if the table has another one at its source
    state: State = State.NEW
    error: KuvaszError | None = None
    since: float = 0.0  #: monotonic seconds of the last change of state; of an error that comes again, of its first
    retry_at: float | None = None  #: monotonic seconds of the next attempt; None: none by itself
    is_paused: bool = False  #: a person wants it so, whatever else happens to it
    is_resync_due: bool = False  #: it is to be copied again
    is_repair: bool = False  #: or only what differs, because its source's stream was lost
    rows: int = 0  #: row messages applied since the start
    inserts: int = 0  #: of them
    updates: int = 0
    deletes: int = 0
    copies: int = 0  #: that ended well since the start
    copied_rows: int = 0
    copy_done: int = 0  #: ranges
    copy_total: int = 0
    commits: int = 0
    last_commit_us: int = 0  #: newest source commit time applied, µs since 2000-01-01 UTC
    last_commit_seconds: float = 0.0  #: what the last Iceberg commit took

    @property
    def database(self) -> str:
        """The name of its source."""
        return names.source_of(self.source)

    @property
    def key(self) -> str:
        """What tells it from the other tables of its source."""
        return names.member_name(self.target, names.member_of(self.source))

    @property
    def label(self) -> str:
        """The target, with the table's own name where several of a source are one target."""
        return f"{self.target}/{self.table}" if names.member_of(self.source) else self.target


#: Facts that are added to what is known, not put in its place.
_COUNTED = frozenset({"rows", "inserts", "updates", "deletes", "commits", "copies"})


class TableStates:
    """All tables. The clocks are parameters so that tests can turn them.

    Args:
        clock: Monotonic seconds.
        wall: Unix seconds.
        file: Where notes are kept over restarts; None for nowhere.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        file: NoteFile | None = None,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._file = file
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str], TableState] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._notes: dict[tuple[str, str], Note] = {} if file is None else file.load()

    def add(self, target: str, source: str, table: str) -> None:
        """Make a table known, in the state that was noted of it."""
        with self._lock:
            if (target, source) in self._states:
                return
            note = self._notes.get((target, source)) or self._note_of_all(target, source)
            made = TableState(target=target, source=source, table=table, since=self._clock())
            made.is_resync_due, made.is_repair = note.is_resync_due, note.is_repair
            if note.failed_at is not None:
                made.state, made.error = State.ERROR, TableError(note.message, hint=note.hint)
                made.since = self._monotonic(note.failed_at)
            if note.paused_at is not None:
                made.state, made.is_paused = State.PAUSED, True
                made.since = self._monotonic(note.paused_at)
            self._states[target, source] = made

    def _note_of_all(self, target: str, source: str) -> Note:
        """Return what was noted of all tables that are one target, while nobody knew them one by one."""
        note = self._notes.get((target, names.source_of(source)), Note())
        if names.member_of(source):
            self._note((target, source), note)
        return note

    def spread(self, source: str) -> None:
        """Forget what was noted of all tables that are one target: each of them was added with it."""
        with self._lock:
            known = {target for target, name in self._states if names.source_of(name) == source and name != source}
            for target in known:
                self._note((target, source), Note())

    def remove(self, target: str, source: str) -> None:
        """Forget a table that is no longer at its source, and what was noted of it."""
        with self._lock:
            self._states.pop((target, source), None)
            self._epochs.pop((target, source), None)
            if self._notes.pop((target, source), None) is not None and self._file is not None:
                self._file.save(self._notes)

    def rename(self, target: str, source: str, table: str, mapped: str = "") -> None:
        """Note that a table has another name at its source, and perhaps not the one in the map."""
        with self._lock:
            found = self._states[target, source]
            found.table, found.mapped = table, mapped

    def set(self, target: str, source: str, state: State, error: KuvaszError | None = None) -> None:
        """Change a table's state, unless it was removed meanwhile.

        A paused table stays paused, but for the copy that is under way. Whatever else is wrong with it is looked at
        when it is resumed; that its parked changes are lost is shown, for waiting makes it no better.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is not None:
                self._set(found, state, error)

    def _set(self, found: TableState, state: State, error: KuvaszError | None = None) -> None:
        if found.is_paused and state is not State.COPYING:
            state, error = State.PAUSED, error if isinstance(error, ParkedLost) else None
        key = (found.target, found.source)
        note = self._notes.get(key, Note())
        if found.state is not state:
            found.since = self._clock()
        found.state = state
        found.error = error
        found.retry_at = None
        if error is not None:
            failed_at = self._wall() if note.failed_at is None else note.failed_at
            found.since = self._monotonic(failed_at)
            note = dataclasses.replace(note, failed_at=failed_at, message=error.message, hint=error.hint)
            self._note_error(key, note)
        elif state in {State.STREAMING, State.PAUSED}:
            self._note_error(key, dataclasses.replace(note, failed_at=None, message="", hint=None))

    def _monotonic(self, unix_s: float) -> float:
        return self._clock() - (self._wall() - unix_s)

    def _note(self, key: tuple[str, str], note: Note) -> None:
        if self._notes.get(key, Note()) != note:
            self._notes[key] = note
            if self._file is not None:
                self._file.save(self._notes)

    def _note_error(self, key: tuple[str, str], note: Note) -> None:
        """Note since when a table fails, or no more: not worth anything's end where the disk has no room."""
        try:
            self._note(key, note)
        except StateError as error:
            _log.warning("the state of a table could not be kept", extra={
                "event": "note_failed", "table": key[0], "source": key[1], "error": str(error)})  # fmt: skip

    def pause(self, target: str, source: str) -> None:
        """Have a table stay where it is until `unpause`, over restarts too; a copy under way is finished first."""
        with self._lock:
            found = self._states[target, source]
            found.is_paused = True
            key = (target, source)
            self._note(key, dataclasses.replace(self._notes.get(key, Note()), paused_at=self._wall()))
            if found.state is not State.COPYING:
                self._set(found, State.PAUSED, found.error)

    def unpause(self, target: str, source: str) -> None:
        """Undo `pause`; the table is new until its source takes it up again."""
        with self._lock:
            found = self._states[target, source]
            found.is_paused = False
            key = (target, source)
            self._note(key, dataclasses.replace(self._notes.get(key, Note()), paused_at=None))
            if found.state is State.PAUSED:
                self._set(found, State.NEW)

    def resync(self, target: str, source: str, *, is_due: bool, is_repair: bool = False) -> None:
        """Note that a table is to be copied again, or that this now stands in the lake: it has no position there.

        With `is_repair` only what differs is to be copied.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is None:
                return
            found.is_resync_due, found.is_repair = is_due, is_repair
            key = (target, source)
            note = self._notes.get(key, Note())
            self._note(key, dataclasses.replace(note, is_resync_due=is_due, is_repair=is_repair))

    def get(self, target: str, source: str) -> TableState:
        """Return a copy of a table's state; one that was removed meanwhile is in error."""
        with self._lock:
            found = self._states.get((target, source))
            return (
                TableState(target=target, source=source, table="", state=State.ERROR)
                if found is None
                else (dataclasses.replace(found))
            )

    def activate(self, target: str, source: str, epoch: int) -> None:
        """Let changes be applied that come with this epoch of the reader or a later one.

        What an earlier connection left in the inbox begins behind a gap: it must never be applied.
        """
        with self._lock:
            self._epochs[target, source] = epoch
        self.set(target, source, State.CATCHING_UP)

    def is_active(self, target: str, source: str, epoch: int) -> bool:
        """Whether streamed changes of this table that came with this epoch are to be applied."""
        return self.is_streaming(target, source) and epoch >= self._epochs.get((target, source), 0)

    def is_streaming(self, target: str, source: str) -> bool:
        """Whether the table follows the stream."""
        with self._lock:
            found = self._states.get((target, source))
            return found is not None and found.state in {State.CATCHING_UP, State.STREAMING}

    def sources_of(self, target: str) -> list[str]:
        """Return the sources that feed a target."""
        with self._lock:
            return [source for name, source in self._states if name == target]

    def retry_at(self, target: str, source: str, at: float | None) -> None:
        """Set the time of the next attempt, monotonic seconds."""
        with self._lock:
            if (target, source) in self._states:
                self._states[target, source].retry_at = at

    def note(self, target: str, source: str, **facts: float) -> None:
        """Set facts; rows, commits and copies are added, and the newest commit time stays."""
        with self._lock:
            found = self._states.get((target, source))
            if found is None:
                return
            for name, value in facts.items():
                if name in _COUNTED:
                    value += getattr(found, name)  # noqa: PLW2901
                elif name == "last_commit_us":
                    value = max(value, found.last_commit_us)  # noqa: PLW2901 (a commit without rows has none)
                setattr(found, name, value)

    def snapshot(self) -> list[TableState]:
        """Return copies of all states, by source and target."""
        with self._lock:
            found = [dataclasses.replace(state) for state in self._states.values()]
        return sorted(found, key=lambda state: (state.source, state.target))
