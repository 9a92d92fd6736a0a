"""What state each table of each source is in, for the pipeline to obey and for observers to show. Thread-safe.

    new ──> copying ──> catching_up ──> streaming        error, paused <── any of these
     set by the source's task      set by workers         set by whoever finds out

After a restart most states are found again from the positions in the lake. What is not to be found there is noted in
the state folder: that a table is paused, that it is to be copied again, and since when it fails
(`kuvasz.state.ports.Note`).
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
import sys
import threading
import time
from collections.abc import Callable, Mapping

from kuvasz.config import names
from kuvasz.errors import EarlierError, KuvaszError, LakeRewound, ParkedLost, TableGone
from kuvasz.state.notes import TableNotes
from kuvasz.state.ports import Note, NoteStore


class State(enum.Enum):
    """State of one table of one source."""

    NEW = "new"
    COPYING = "copying"
    CATCHING_UP = "catching_up"
    STREAMING = "streaming"
    PAUSED = "paused"
    ERROR = "error"


_PLACE = operator.attrgetter("source", "target")
_FOLLOWING = frozenset({State.CATCHING_UP, State.STREAMING})
_STOPPED = frozenset({State.PAUSED, State.ERROR})

#: No connection has it.
_NO_EPOCH = 1 << 62

#: What a paused table shows as well, for waiting makes it no better.
_LASTING = (ParkedLost, LakeRewound, TableGone)


@dataclasses.dataclass(slots=True, kw_only=True)
class TableState:
    """What is known of one table of one source. Read it through `TableStates.snapshot`.

    Large because it is all that metrics and status show of a table, taken under one lock, so that it fits together.
    """

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
    why_copy: str = ""  #: why kuvasz copies it again by itself, until it follows
    waits_for: str = ""  #: whose transactions have to end before its copy has a snapshot
    rows: int = 0  #: row messages applied since the start
    bytes: int = 0  #: that these had on the wire
    inserts: int = 0  #: of them
    updates: int = 0
    deletes: int = 0
    rejected: int = 0  #: rows that did not fit and were written down, since the start
    copies: int = 0  #: that ended well since the start
    copied_rows: int = 0
    copy_done: int = 0  #: ranges
    copy_total: int = 0
    copy_resumes_at: float = 0.0  #: Unix seconds at which the hours begin that its copy waits for; 0: it does not
    copy_began: float = 0.0  #: monotonic seconds, as if it had not paused since; 0: nothing is said of its speed
    commits: int = 0
    last_commit_us: int = 0  #: newest source commit time applied, µs since 2000-01-01 UTC
    last_commit_seconds: float = 0.0  #: what the last Iceberg commit took
    #: the first epoch of its source's reader of which changes are applied
    epoch: int = dataclasses.field(default=0, repr=False, compare=False)
    is_shown: bool = dataclasses.field(default=False, repr=False, compare=False)  #: somebody has it: it stays so

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
_COUNTED = frozenset({"rows", "bytes", "inserts", "updates", "deletes", "rejected", "commits", "copies"})

#: Facts that stay when its source is begun anew in the same process.
_LASTING_COUNTS = (*sorted(_COUNTED), "copied_rows", "last_commit_us", "last_commit_seconds")


class TableStates:
    """All tables. The clocks are parameters so that tests can turn them.

    Large because every change is looked at, made and noted in one step, under one lock.

    Args:
        notes: Where they are kept over restarts.
        clock: Monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        notes: NoteStore,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._notes = TableNotes(notes)
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str], TableState] = {}
        # What is asked for all the time must not cost what all tables of all sources do.
        self._of_source: dict[str, dict[tuple[str, str], TableState]] = {}
        self._catching_up: dict[tuple[str, str], TableState] = {}
        # An LSN where they stop, and the first epoch for which it does not count any more.
        self._ends: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, target: str, source: str, table: str) -> None:
        """Make a table known, in the state that was noted of it."""
        with self._lock:
            if (target, source) not in self._states:
                self._add(target, source, table)

    def _add(self, target: str, source: str, table: str) -> TableState:
        note = self._notes.get(target, source) or self._note_of_all(target, source)
        # Of thousands of sources that are alike these are the same texts.
        target, table = sys.intern(target), sys.intern(table)
        made = TableState(target=target, source=source, table=table, since=self._clock())
        made.is_resync_due, made.is_repair = note.is_resync_due, note.is_repair
        if note.failed_at is not None:
            made.state, made.error = State.ERROR, EarlierError(note.message, hint=note.hint)
            made.since = self._monotonic(note.failed_at)
        if note.paused_at is not None:
            made.state, made.is_paused = State.PAUSED, True
            made.since = self._monotonic(note.paused_at)
        key = target, source
        self._states[key] = made
        self._of_source.setdefault(made.database, {})[key] = made
        return made

    def read_notes_again(self) -> None:
        """Go by what is noted of tables by now, for those of sources that come from another process.

        Raises:
            StateError: The notes cannot be read.
        """
        with self._lock:
            self._notes.read_again()

    def begin_anew(self, source: str, tables: Mapping[str, str]) -> None:
        """Have the tables of a source be as at a start, but for what was counted of them.

        Those that the map has no more, and members of collapses, are let go of; what was noted of them stays, for the
        day they come back.

        Args:
            source: The name of the source, of which nothing may be applied any more.
            tables: Target -> the table that the map has for it; none where the source is nobody's, or another's.
        """
        with self._lock:
            for (target, name), found in tuple(self._of_source.get(source, {}).items()):
                self._drop(target, name)
                table = tables.get(target)
                if name == source and table is not None and table == (found.mapped or found.table):
                    made = self._add(target, name, table)
                    for fact in _LASTING_COUNTS:
                        setattr(made, fact, getattr(found, fact))
                elif not tables:
                    self._notes.let_go(target, name)

    def _note_of_all(self, target: str, source: str) -> Note:
        """Return what was noted of all tables that are one target, while nobody knew them one by one."""
        note = self._notes.get(target, names.source_of(source)) or Note()
        if names.member_of(source):
            self._notes.put(target, source, note)
        return note

    def spread(self, source: str) -> None:
        """Forget what was noted of all tables that are one target: each of them was added with it."""
        with self._lock:
            known = {target for target, name in self._of_source.get(source, {}) if name != source}
            for target in known:
                self._notes.put(target, source, Note())

    def remove(self, target: str, source: str) -> None:
        """Forget a table that is no longer at its source, and what was noted of it."""
        with self._lock:
            self._drop(target, source)
            self._notes.remove(target, source)

    def _drop(self, target: str, source: str) -> None:
        self._of_source.get(names.source_of(source), {}).pop((target, source), None)
        for known in (self._states, self._catching_up, self._ends):
            known.pop((target, source), None)

    def rename(self, target: str, source: str, table: str, mapped: str = "") -> None:
        """Note that a table has another name at its source, and perhaps not the one in the map."""
        with self._lock:
            found = self._changed(self._states[target, source])
            found.table, found.mapped = table, mapped

    def set(
        self,
        target: str,
        source: str,
        state: State,
        error: KuvaszError | None = None,
        *,
        hold: Callable[[], object] | None = None,
    ) -> None:
        """Change a table's state, unless it was removed meanwhile; one that followed is held in the same moment.

        A paused table stays paused, but for the copy that is under way. Whatever else is wrong with it is looked at
        when it is resumed; what waiting makes no better is shown, as that its parked changes are lost.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is not None:
                if hold is not None and found.state in _FOLLOWING and state not in _FOLLOWING:
                    hold()
                self._set(found, state, error)

    def fail(
        self,
        target: str,
        error: KuvaszError,
        *,
        hold: Callable[[str], object],
        is_due: Callable[[], bool] = lambda: True,
        source: str | None = None,
    ) -> bool:
        """Put a target into error for all of its sources that follow, or for one; each is held in the same moment.

        Those that are paused show what waiting makes no better.

        Args:
            target: The name of the target.
            error: Why.
            hold: Given a source, keeps it where it is.
            is_due: Asked in that moment: whoever has the failure behind him lets sources follow again.
            source: The only one that it is of; None: it is of all.

        Returns:
            Whether that is news of any.
        """
        with self._lock:
            keys = [key for key in self._states if key[0] == target] if source is None else [(target, source)]
            mine = [self._states[key] for key in keys if key in self._states]
            following = [found for found in mine if found.state in _FOLLOWING]
            showing = [found for found in mine if _is_to_show(found, error)]
            if not (following or showing) or not is_due():
                return False
            for found in following:
                hold(found.source)
            for found in (*following, *showing):
                self._set(found, State.ERROR, error)
            return True

    def promote(self, seen: TableState) -> None:
        """Call a table streaming that was seen to catch up, and has; not if anything has happened to it since."""
        with self._lock:
            found = self._states.get((seen.target, seen.source))
            if found is not None and (found.state, found.since) == (State.CATCHING_UP, seen.since):
                self._set(found, State.STREAMING)

    def release(self, target: str, source: str, release: Callable[[], object]) -> bool:
        """Release a table's source if the table follows, and return whether it does.

        Whoever stops it meanwhile, in whatever thread, has held the source before this, or does so after it.
        """
        with self._lock:
            found = self._states.get((target, source))
            is_following = found is not None and found.state in _FOLLOWING
            if is_following:
                release()
            return is_following

    def _set(self, found: TableState, state: State, error: KuvaszError | None = None) -> TableState:
        if found.is_paused and state is not State.COPYING:
            state, error = State.PAUSED, error if isinstance(error, _LASTING) else None
        note = self._notes.get(found.target, found.source) or Note()
        found = self._changed(found)
        if found.state is not state:
            found.since = self._clock()
        found.state = state
        if state is State.CATCHING_UP:
            self._catching_up[found.target, found.source] = found
        else:
            self._catching_up.pop((found.target, found.source), None)
        found.error = error
        found.retry_at = None
        if state in _FOLLOWING:
            found.why_copy = ""
        if error is not None:
            failed_at = self._wall() if note.failed_at is None else note.failed_at
            found.since = self._monotonic(failed_at)
            note = dataclasses.replace(note, failed_at=failed_at, message=error.message, hint=error.hint)
            self._notes.put_failure(found.target, found.source, note)
        elif state in {State.STREAMING, State.PAUSED}:
            mended = dataclasses.replace(note, failed_at=None, message="", hint=None)
            self._notes.put_failure(found.target, found.source, mended)
        return found

    def _monotonic(self, unix_s: float) -> float:
        return self._clock() - (self._wall() - unix_s)

    def pause(self, target: str, source: str, *, hold: Callable[[], object] | None = None) -> None:
        """Have a table stay where it is until `unpause`, over restarts too; a copy under way is finished first.

        Its source is held in the same moment, before anybody sees that its changes are no longer applied.

        Raises:
            StateError: It cannot be noted; nothing has changed then.
        """
        with self._lock:
            found = self._states[target, source]
            note = self._notes.get(target, source) or Note()
            self._notes.put(target, source, dataclasses.replace(note, paused_at=self._wall()))
            if hold is not None:
                hold()
            found = self._changed(found)
            found.is_paused = True
            if found.state is not State.COPYING:
                self._set(found, State.PAUSED, found.error)

    def unpause(self, target: str, source: str) -> None:
        """Undo `pause`; the table is new until its source takes it up again."""
        with self._lock:
            found = self._states[target, source]
            note = self._notes.get(target, source) or Note()
            self._notes.put(target, source, dataclasses.replace(note, paused_at=None))
            found = self._changed(found)
            found.is_paused = False
            if found.state is State.PAUSED:
                self._set(found, State.NEW)

    def resync(self, target: str, source: str, *, is_due: bool, is_repair: bool = False) -> None:
        """Note that a table is to be copied again, or that this now stands in the lake: it has no position there.

        With `is_repair` only what differs is to be copied, or was noted as to be: if a person wants all of it
        copied, it stays so.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is None or (is_repair and found.is_resync_due and not found.is_repair):
                return
            note = self._notes.get(target, source) or Note()
            self._notes.put(target, source, dataclasses.replace(note, is_resync_due=is_due, is_repair=is_repair))
            found = self._changed(found)
            found.is_resync_due, found.is_repair = is_due, is_repair

    def get(self, target: str, source: str) -> TableState:
        """Return a copy of a table's state; one that was removed meanwhile is in error."""
        with self._lock:
            found = self._states.get((target, source))
            return (
                TableState(target=target, source=source, table="", state=State.ERROR)
                if found is None
                else (dataclasses.replace(found))
            )

    def state(self, target: str, source: str) -> State:
        """Return the state alone, for less than a copy of all that is known."""
        with self._lock:
            found = self._states.get((target, source))
            return State.ERROR if found is None else found.state

    def activate(self, target: str, source: str, epoch: int, end: int | None = None) -> bool:
        """Let changes be applied that come with this epoch of the reader or a later one; returns whether they are.

        What an earlier connection left in the inbox begins behind a gap: it must never be applied. A table that was
        stopped, in whatever thread, stays so.

        Args:
            target: The name of the target.
            source: The name of the source.
            epoch: The first epoch.
            end: Only those whose transactions committed before this LSN, until it is activated again, or goes on.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is None or found.state in _STOPPED:
                return False
            found = self._begin(found, epoch)
            if end is not None:
                self._ends[target, source] = end, _NO_EPOCH
            return self._set(found, State.CATCHING_UP).state is State.CATCHING_UP

    def go_on(self, target: str, source: str, epoch: int) -> bool:
        """Let a table that follows do so from another epoch on; returns whether it does.

        One that was stopped, in whatever thread, stays so: what came for it meanwhile was left out.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is None or found.state not in _FOLLOWING:
                return False
            self._set(self._begin(found, epoch), State.CATCHING_UP)
            return True

    def _begin(self, found: TableState, epoch: int) -> TableState:
        found = self._changed(found)
        found.epoch = epoch
        end, before = self._ends.get((found.target, found.source), (0, 0))
        if before > epoch:  # whoever gathers what an earlier connection brought has to stop there still
            self._ends[found.target, found.source] = end, epoch
        return found

    def begin_copy(self, target: str, source: str, *, hold: Callable[[], object]) -> bool:
        """Take a table that follows out of the stream, for what needs it to stand still; returns whether it followed.

        Its source is held in the same moment.
        """
        with self._lock:
            found = self._states.get((target, source))
            if found is None or found.state not in _FOLLOWING:
                return False
            hold()
            self._set(found, State.COPYING)
            return True

    def end(self, target: str, source: str, epoch: int) -> int | None:
        """Return the LSN at which changes of this table that came with this epoch cease to be applied; None: none."""
        end, before = self._ends.get((target, source), (0, 0))
        return end if epoch < before else None

    def is_active(self, target: str, source: str, epoch: int) -> bool:
        """Whether streamed changes of this table that came with this epoch are to be applied."""
        with self._lock:
            found = self._states.get((target, source))
            return found is not None and found.state in _FOLLOWING and epoch >= found.epoch

    def is_streaming(self, target: str, source: str) -> bool:
        """Whether the table follows the stream."""
        with self._lock:
            found = self._states.get((target, source))
            return found is not None and found.state in _FOLLOWING

    def knows(self, target: str, source: str) -> bool:
        """Whether a source feeds a target."""
        with self._lock:
            return (target, source) in self._states

    def sources_of(self, target: str) -> list[str]:
        """Return the sources that feed a target."""
        with self._lock:
            return [source for name, source in self._states if name == target]

    def note(self, target: str, source: str, **facts: float | str | KuvaszError) -> None:
        """Set facts; rows, commits and copies are added, and the newest commit time stays."""
        with self._lock:
            found = self._states.get((target, source))
            if found is None:
                return
            found = self._changed(found)
            for name, value in facts.items():
                before = getattr(found, name)
                if name in _COUNTED:
                    value = before + value  # noqa: PLW2901
                elif name == "last_commit_us":
                    value = max(value, before)  # noqa: PLW2901 (a commit without rows has none)
                setattr(found, name, value)

    def snapshot(self, source: str | None = None) -> list[TableState]:
        """Return all states, or those of one source, by source and target; nobody may change them."""
        with self._lock:
            shown = _shown(self._states if source is None else self._of_source.get(source, {}))
        return _sorted(shown)

    def catching_up(self) -> list[TableState]:
        """Return the states of the tables that are catching up, by source and target."""
        with self._lock:
            shown = _shown(self._catching_up)
        return _sorted(shown)

    def _changed(self, found: TableState) -> TableState:
        """Return a state to be changed: another one if somebody was shown it, for whom it stays as it is."""
        if not found.is_shown:
            return found
        key = found.target, found.source
        self._states[key] = self._of_source[found.database][key] = found = copy.copy(found)
        if key in self._catching_up:
            self._catching_up[key] = found
        found.is_shown = False
        return found


def _shown(states: Mapping[tuple[str, str], TableState]) -> list[TableState]:
    """Return states as they are: one that changes later is another one then, for most of thousands never do."""
    for found in states.values():
        found.is_shown = True
    return list(states.values())


def _sorted(states: list[TableState]) -> list[TableState]:
    """Return states by source and target: without the lock, for there may be tens of thousands."""
    return sorted(states, key=_PLACE)


def _is_to_show(found: TableState, error: KuvaszError) -> bool:
    """Whether a table is paused and does not show yet what waiting makes no better."""
    is_paused = found.is_paused and found.state is State.PAUSED
    return is_paused and isinstance(error, _LASTING) and str(found.error) != str(error)
