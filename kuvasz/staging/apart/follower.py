"""The thread that follows what another process stages: it looks how far that is, and removes what the lake has.

It stands where the writer stands in a process that stages itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kuvasz.errors import InternalError, KuvaszError, StateError, StateTaken
from kuvasz.events import Event, EventLog
from kuvasz.staging.ports import ObjectStore
from kuvasz.staging.staged_removal import StagedRemoval
from kuvasz.staging.staged_source import StagedSource
from kuvasz.state.staged.orders import StreamAnswer
from kuvasz.state.staged.ports import LogIndex, LogLease

_log = EventLog(__name__)

#: Seconds between two looks: one statement for all sources, whatever has come.
_LOOK_S: Final = 0.1

#: Looks between two at what the reader says, and at what the lake has by now.
_ANSWERS: Final = 5
_QUIET: Final = 10

#: Sources that an error names.
_NAMED: Final = 5

#: And at how many objects there are.
_COUNTS: Final = 100


class LogFollower:
    """The follower.

    Args:
        index: Where it is known what is staged.
        store: Where objects are.
        sources: Returns the sources.
        on_staged: Called in its thread when sources have come further, or something was answered.
    """

    def __init__(
        self,
        index: LogIndex,
        store: ObjectStore,
        sources: Callable[[], Iterable[StagedSource]],
        on_staged: Callable[[], None],
    ) -> None:
        self.turn = threading.Lock()  #: held while it looks: who begins a source anew takes it, too
        self.error: KuvaszError | OSError | None = None  #: why nothing comes just now
        self.answers: Mapping[str, StreamAnswer] = {}  #: of the process that reads
        self.removal = StagedRemoval(index, store)
        self.staged_at: float | None = None  #: monotonic seconds at which something was seen to have been staged last
        self._index = index
        self._unheld: frozenset[str] = frozenset()  #: sources that nobody held at the last look
        self._sources = sources
        self._on_staged = on_staged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self, lease: LogLease) -> None:  # noqa: ARG002 (it writes no objects)
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Say once more how far the lake is, if that can be done at once, and end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def died(self) -> KuvaszError | None:
        """Why the thread has ended: a mistake of ours, or another process applies; None while it is well."""
        return self.error if isinstance(self.error, (InternalError, StateTaken)) else None

    def _run(self) -> None:
        try:
            self._follow()
        except StateTaken as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 (the owner of the thread)
            self.error = InternalError(f"the staged log: {error!r}")
            _log.tell(Event.BUG_IN_STAGING)

    def _follow(self) -> None:
        looks = 0
        while not self._stop.wait(_LOOK_S):
            looks += 1
            try:
                is_news = self.look()
                if looks % _ANSWERS == 0:
                    is_news |= self._listen()
                if looks % _QUIET == 0:
                    self._shorten()
                    self._see(self._unread())
                if looks % _COUNTS == 1:
                    self.removal.objects = self._index.count()
            except StateTaken:
                raise
            except KuvaszError as error:
                self._see(error)
            else:
                if is_news:
                    self._on_staged()
        self._shorten()

    def look(self) -> bool:
        """Take over how far sources are staged by now; return whether any came further.

        Raises:
            StateError: The coordinator does not answer.
        """
        with self.turn:
            positions = self._index.positions()
            moved = [
                one
                for one in self._sources()
                if (one.follow(positions[one.name]) if one.name in positions else one.lose())
            ]
        if moved:
            self.staged_at = time.monotonic()
        return bool(moved)

    def _listen(self) -> bool:
        before, self.answers = self.answers, self._index.answers()
        return before != self.answers

    def _unread(self) -> KuvaszError | None:
        """Return the error of sources that nobody reads: of some, if that was so a look before as well."""
        before, self._unheld = self._unheld, frozenset(self._index.unread())
        holder = self._index.reader()
        if holder is None or holder.is_late:
            return StateError(
                f"{self._index.place}: no process reads the sources, which keep their changes",
                hint="start one with --role read, and the same map",
            )
        unread = sorted(before & self._unheld)
        if not unread:
            return None
        more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        return StateError(
            f"{self._index.place}: no process reads {', '.join(unread[:_NAMED])}{more}: changes stay at the source",
            hint="`kuvasz cluster nodes` shows who reads how many; one that is drained may take its share again",
        )

    def _see(self, error: KuvaszError | None) -> None:
        if (error is None) != (self.error is None):
            if error is None:
                _log.tell(Event.STAGING_GOES_ON)
            else:
                _log.tell(Event.STAGING_FAILED, error=str(error))
        self.error = error

    def _shorten(self) -> None:
        """Have the index know how far the lake is, and remove what nobody needs any more."""
        with self.turn:
            self.removal.look(self._sources())
        self.removal.remove()


__all__ = ["LogFollower"]
