"""All parking logs of a process: who parks, from which connection on, and up to what size.

A table that does not follow *parks*: its worker appends what comes for it, before that counts as durable. Three
parties meet here, and the lock of each log keeps them apart: the worker's thread appends, the source's task begins
and ends, a thread of its own reads for the replay. Whether a table's log belongs to what the lake has of the table
is told by the log's id, which the lake's table holds, too (`kuvasz.ports.SourceNotes.park`).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from kuvasz import lsn
from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog
from kuvasz.modes.veil import Veil
from kuvasz.parking.ports import LogDamaged, LogStore, TableLog, TransactionGroup
from kuvasz.parking.replay_offsets import ReplayOffsets
from kuvasz.route.parts import Change

_log = EventLog(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParkedView:
    """What an observer sees of a parked table."""

    bytes: int
    since: float  #: unix seconds
    first_lsn: int  #: commit LSN of the oldest transaction; 0: there is none
    is_full: bool


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Parked:
    """One table of one source."""

    log: TableLog
    veil: Veil | None = None  #: takes out of changes what the lake is not to show; None: nothing is taken out
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    from_epoch: int | None = None  #: deliveries of this connection and later ones are parked; None: none are
    epoch: int = 0  #: of the last delivery
    is_full: bool = False


class ParkingLogs:
    """The logs.

    Large because three parties meet in it, each with calls of its own.

    Args:
        store: Where they are.
        most_bytes: The largest size of one log; 0: nothing is parked.
        hold: Keeps a source from being confirmed any further for a table's sake: source, target.
        release: Undoes that.
    """

    def __init__(
        self,
        store: LogStore,
        most_bytes: int,
        hold: Callable[[str, str], object],
        release: Callable[[str, str], None],
    ) -> None:
        self.most_bytes = most_bytes
        self.replays = ReplayOffsets()
        self._store = store
        self._hold = hold
        self._release = release
        self._parked: dict[tuple[str, str], _Parked] = {}

    # Called by the source's task and its threads, one at a time per source

    def has(self, target: str, source: str) -> bool:
        """Whether there is a log, so that the table lacks what is in it."""
        return (target, source) in self._parked

    def id_of(self, target: str, source: str) -> str | None:
        """Return the id of a table's log; None if there is none."""
        found = self._parked.get((target, source))
        return None if found is None else found.log.id

    def create(self, target: str, source: str) -> str:
        """Make an empty log and return its id; nothing is parked before `begin`.

        Raises:
            StateError: It cannot be written.
        """
        made = self._store.create(target, source)
        self.replays.reset(target, source)
        self._parked[target, source] = _Parked(log=made)
        return made.id

    def load(self, target: str, source: str, log_id: str) -> None:
        """Take over the log of an earlier process; nothing is parked before `begin`.

        Raises:
            LogDamaged: It is not there, not whole, or another one.
            StateError: It cannot be had now.
        """
        found = self._store.load(target, source, log_id)
        self.replays.reset(target, source)
        self._parked[target, source] = _Parked(log=found)

    def unfinished_lsn(self, target: str, source: str) -> int:
        """Return that of a table's log, or of one that an earlier process left; see `LogStore`.

        Raises:
            LogDamaged: It is not whole.
            StateError: It cannot be had now.
        """
        found = self._parked.get((target, source))
        if found is None:
            return self._store.unfinished_lsn(target, source)
        return 0 if found.log.is_finished else found.log.last_lsn

    def finish(self, target: str, source: str) -> None:
        """Note that everything in a log is in the lake.

        Raises:
            StateError: It cannot be noted.
        """
        found = self._parked[target, source]
        with found.lock:
            found.log.finish()

    def drop(self, target: str, source: str) -> None:
        """Remove a log, if there is one: nothing in it is needed any more.

        Raises:
            StateError: It cannot be removed.
        """
        self.leave(target, source)
        self._store.remove(target, source)

    def leave(self, target: str, source: str) -> None:
        """Let go of a log, if there is one, and of nothing that is in it: an earlier process's from now on."""
        found = self._parked.pop((target, source), None)
        self.replays.forget(target, source)
        if found is not None:
            found.from_epoch = None
            with found.lock:
                found.log.close()

    def begin(self, target: str, source: str, epoch: int, veil: Veil | None = None) -> None:
        """Park what comes with this connection and later ones, under a veil. Whoever parks already goes on."""
        found = self._parked[target, source]
        found.is_full = False
        found.veil = veil
        if found.from_epoch is None:
            found.from_epoch = epoch

    def end(self, target: str, source: str) -> None:
        """Park nothing more; returns at once, `settled` tells when a group under way is written."""
        self._parked[target, source].from_epoch = None

    def settled(self, target: str, source: str) -> None:
        """Wait until nothing is being appended."""
        with self._parked[target, source].lock:
            pass

    def is_parking(self, target: str, source: str) -> bool:
        """Whether all that comes for the table is parked, so that nothing has to be held for it."""
        found = self._parked.get((target, source))
        return found is not None and found.from_epoch is not None

    def let_go(self, target: str, source: str, epoch: int) -> None:
        """Release the source, if all that comes for the table with this connection is parked.

        Never blocks: if a group is being written it does nothing, and may be called again.
        """
        found = self._parked.get((target, source))
        if found is None or not found.lock.acquire(blocking=False):
            return
        try:
            # Under the lock, or it might undo the hold of a worker that finds no room just now.
            if found.from_epoch is not None and epoch >= found.from_epoch:
                self._release(source, target)
        finally:
            found.lock.release()

    def last_lsn(self, target: str, source: str) -> int:
        """Return the commit LSN of the newest transaction that is parked; 0 for none."""
        found = self._parked.get((target, source))
        return 0 if found is None else found.log.last_lsn

    def is_full(self, target: str, source: str) -> bool:
        """Whether parking ended because there is no room."""
        found = self._parked.get((target, source))
        return found is not None and found.is_full

    def read(self, target: str, source: str, offset: int, most_bytes: int) -> list[TransactionGroup]:
        """Return what is parked from an offset on, some of it; nothing at the end.

        Raises:
            LogDamaged: The file is not what was written.
            StateError: It cannot be read now.
        """
        found = self._parked.get((target, source))
        if found is None:
            return []
        with found.lock:  # or the file might be closed meanwhile
            return found.log.read(offset, most_bytes)

    def check(self, target: str, source: str) -> None:
        """Find out whether someone removed a table's log, or replaced it.

        Raises:
            LogDamaged: The log was removed or replaced.
        """
        found = self._parked.get((target, source))
        if found is not None and not found.log.is_there:
            raise LogDamaged(f"{found.log.place} is gone")

    def views(self) -> dict[tuple[str, str], ParkedView]:
        """Return what is parked: (target, source) -> it. From any thread."""
        return {
            key: ParkedView(
                bytes=found.log.size, since=found.log.since, first_lsn=found.log.first_lsn, is_full=found.is_full
            )
            for key, found in tuple(self._parked.items())
        }

    def close(self) -> None:
        """Let go of all files."""
        for found in self._parked.values():
            found.from_epoch = None
            with found.lock:
                found.log.close()

    # Called by workers

    def takes(self, target: str, source: str, epoch: int) -> bool:
        """Whether changes that came with this connection are to be parked."""
        found = self._parked.get((target, source))
        return found is not None and found.from_epoch is not None and epoch >= found.from_epoch

    def park(
        self, target: str, source: str, epoch: int, changes: Sequence[Change], through: int, *, is_open: bool
    ) -> None:
        """Park what a delivery held for a table. If that cannot be, its source is held from here on."""
        found = self._parked.get((target, source))
        if found is None:
            return
        with found.lock:
            if found.from_epoch is None or epoch < found.from_epoch:
                return  # it was told to end, and perhaps began anew since: whoever did that holds the source
            try:
                if epoch != found.epoch:
                    found.epoch = epoch
                    found.log.abandon_open()
                if found.veil is not None:
                    changes = [found.veil.over(change) for change in changes]
                if not found.log.append(changes, through, is_open=is_open, most_bytes=self.most_bytes):
                    reason = f"there is no room in {self.most_bytes} bytes"
                    self._stop(found, target, source, reason)
            except StateError as error:
                self._stop(found, target, source, error.message)
            except Exception as error:  # noqa: BLE001 (it is of this table: the worker has those of all sources)
                # Its text may quote what is to be taken out.
                self._stop(found, target, source, f"a mistake in kuvasz: {type(error).__name__}")

    def _stop(self, found: _Parked, target: str, source: str, reason: str) -> None:
        # The hold first: what follows is neither parked nor applied, and must not be confirmed.
        self._hold(source, target)
        found.from_epoch, found.is_full = None, True
        _log.tell(
            Event.PARKING_FULL, source=source, table=target, reason=reason, since_lsn=lsn.render(found.log.last_lsn)
        )


__all__ = ["ParkedView", "ParkingLogs"]
