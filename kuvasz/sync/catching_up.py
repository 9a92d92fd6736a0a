"""When a table, and when everything, has caught up with what its source held when it began to."""

from __future__ import annotations

from collections.abc import Collection

from kuvasz.errors import Retry
from kuvasz.parking.logs import ParkingLogs
from kuvasz.source.reading.facts import ReaderState
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableState, TableStates
from kuvasz.sync.source_sync import SourceSync
from kuvasz.sync.sources import Sources


class CatchingUp:
    """All tables of all sources.

    Args:
        sources: Asked what they have received.
        states: Where tables are called streaming that have caught up.
        progress: Asked what is in the lake.
        lot: Asked which tables lack what is parked of them.
    """

    def __init__(self, sources: Sources, states: TableStates, progress: Progress, lot: ParkingLogs) -> None:
        self._sources = sources
        self._states = states
        self._progress = progress
        self._lot = lot
        self._goals: dict[tuple[str, str, float], int] = {}  #: (target, source, since when) -> LSN

    def promote(self) -> None:
        """Call tables streaming that have what their source held when they began to catch up."""
        goals: dict[tuple[str, str, float], int] = {}
        for state in self._states.catching_up():
            if not self._lot.has(state.target, state.source):
                key, sync = (state.target, state.source, state.since), self._sources.of(state.database)
                received = 0 if sync.reader is None else sync.reader.received_lsn
                goals[key] = self._goals.get(key) or max(received, sync.target_lsn or 0)
                if self._hears(state) and self._has_reached(sync, goals[key]):
                    self._states.promote(state)
        self._goals = goals

    def _hears(self, state: TableState) -> bool:
        """Whether what has come of a source came for a table that follows it, or for others alone.

        One that is taken up again follows from the next connection on, before the one before has ended.
        """
        return self._states.is_active(state.target, state.source, self._progress.epoch(state.database))

    def _has_reached(self, sync: SourceSync, goal: int) -> bool:
        # Under steady load something is pending at every look, and while another table holds the source the
        # confirmable LSN stands still: either of the two will do.
        if sync.reader is None or sync.reader.facts.state is not ReaderState.STREAMING:
            return False
        name = sync.source.name
        is_empty = self._progress.received_lsn(name) >= goal and not self._progress.pending(name)
        return is_empty or self._progress.confirmable(name) >= goal

    @property
    def is_done(self) -> bool:
        """Whether all is in the lake that the sources had at the start, but for what waits for a person.

        A source that has ended, or did not pass its checks, is not waited for, nor a table that is paused, or in an
        error that does not pass.
        """
        return all(self._has_all(sync) for sync in self._sources.all if not self._sources.is_hopeless(sync))

    def _has_all(self, sync: SourceSync) -> bool:
        # Before any state: a look that has a table begin anew says so first, then that nobody has to wait for it.
        put_off = frozenset().union(*sync.tables.put_off.values())
        if sync.target_lsn is None or not sync.is_streaming or sync.reader is None:
            return False
        name = sync.source.name
        if self._progress.received_lsn(name) < sync.target_lsn or self._progress.pending(name):
            return False
        return not any(self._is_to_come(state, put_off) for state in self._states.snapshot(name))

    def _is_to_come(self, state: TableState, put_off: Collection[str]) -> bool:
        """Whether a table lacks what comes by itself.

        Its error passes, what it follows is yet to begin, what is parked of it is being applied, or the next look
        says what became of its file, or of its partitions.
        """
        if state.state is State.ERROR:
            return state.error is not None and state.error.retry is Retry.TIMED
        if state.state is State.PAUSED:
            return False
        if state.state is State.CATCHING_UP and not self._hears(state):
            return True
        return state.key in put_off or self._lot.has(state.target, state.source)


__all__ = ["CatchingUp"]
