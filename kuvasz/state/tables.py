"""What state each table of each source is in, for the pipeline to obey and for observers to show. Thread-safe.

    new ──> copying ──> catching_up ──> streaming        error, paused <── any of these
     set by the source's task      set by workers         set by whoever finds out

Only the positions in the lake are stored; after a restart every state is found again from them.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
from collections.abc import Callable

from kuvasz.errors import KuvaszError


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
    source: str
    table: str
    state: State = State.NEW
    error: KuvaszError | None = None
    since: float = 0.0  #: monotonic seconds of the last change of state
    rows: int = 0  #: row messages applied since the start
    copied_rows: int = 0
    copy_done: int = 0  #: ranges
    copy_total: int = 0
    commits: int = 0
    last_commit_us: int = 0  #: newest source commit time applied, µs since 2000-01-01 UTC
    last_commit_seconds: float = 0.0  #: what the last Iceberg commit took


class TableStates:
    """All tables. The clock is a parameter so that tests can turn it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str], TableState] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def add(self, target: str, source: str, table: str) -> None:
        """Make a table known."""
        with self._lock:
            self._states.setdefault(
                (target, source), TableState(target=target, source=source, table=table, since=self._clock())
            )

    def set(self, target: str, source: str, state: State, error: KuvaszError | None = None) -> None:
        """Change a table's state."""
        with self._lock:
            found = self._states[target, source]
            if found.state is not state:
                found.since = self._clock()
            found.state = state
            found.error = error

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

    def note(self, target: str, source: str, **facts: float) -> None:
        """Set facts; rows and commits are added, and the newest commit time stays."""
        with self._lock:
            found = self._states.get((target, source))
            if found is None:
                return
            for name, value in facts.items():
                if name in {"rows", "commits"}:
                    value += getattr(found, name)  # noqa: PLW2901
                elif name == "last_commit_us":
                    value = max(value, found.last_commit_us)  # noqa: PLW2901 (a commit without rows has none)
                setattr(found, name, value)

    def snapshot(self) -> list[TableState]:
        """Return copies of all states, by source and target."""
        with self._lock:
            found = [dataclasses.replace(state) for state in self._states.values()]
        return sorted(found, key=lambda state: (state.source, state.target))
