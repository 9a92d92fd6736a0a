"""What may be confirmed to each source: the LSN below which everything is durable in the lake.

In: what the readers received and routed, what the workers made durable. Out: one LSN per source. It never passes a
transaction any part of which is not durable (invariant 1 in ARCHITECTURE.md), never falls while the stream is
the same (`begin_anew`), and follows the keepalives when nothing is pending, so that a quiet database holds no WAL
(invariant 7).

The reader's side of the bargain: it calls `routed` for every delivery a gulp completed and only then `received`.
An entry therefore remembers how far the source had been received when it was routed: all that ended before is
either durable or has an entry of its own. After a reconnect everything from the confirmable LSN on comes again and is
counted again from nothing, under a new *epoch*: a table may follow now that did not before, so what an earlier epoch
made durable proves nothing about this one. Safe from any thread; no input or output.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Iterable, Mapping

from kuvasz.config import names


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """How far one source is in the lake at one moment, table by table.

    Look at it before the states of the tables: what it says is true of each table that follows the stream *then*.
    """

    confirmable: int = 0  #: the LSN before which all tables have everything
    received: int = 0  #: the LSN up to which everything was received and routed
    floors: Mapping[int, int] = dataclasses.field(default_factory=dict)  #: worker that has something to do -> LSN
    aside: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: table whose commits are slow -> LSN
    held: frozenset[str] = frozenset()  #: tables that hold the source: some of what was routed was not for them

    @property
    def is_pending(self) -> bool:
        """Whether a worker was given something that is not durable yet."""
        return bool(self.floors or self.aside)

    @property
    def is_even(self) -> bool:
        """Whether every table that follows has everything before the same LSN."""
        return not (self.floors or self.aside or self.held)

    def through(self, key: str, worker: int) -> int:
        """Return the LSN before which a table that follows has everything; 0 while nothing is known.

        Other tables do not count: what holds the source, or takes its time, may be theirs.

        Args:
            key: The table, as it holds the source (`kuvasz.state.tables.TableState.key`).
            worker: The number of its worker.
        """
        return self.confirmable if key in self.held else max(self.confirmable, self.applied(key, worker))

    def applied(self, key: str, worker: int) -> int:
        """Return the LSN before which the lake has all that came over this connection, and was to be applied.

        Of a table that holds its source, too; see `through`.
        """
        floor = self.floors.get(worker, self.received)
        return min(floor, self.aside.get(key, floor))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Undurable:
    """A delivery that is not durable yet."""

    floor: int  #: everything for this worker that ended at or before this LSN came in earlier deliveries
    through: int


class _WorkerShare:
    """One worker's share of one source."""

    __slots__ = ("durable", "routed", "undurable")

    def __init__(self) -> None:
        self.routed = 0
        self.durable = 0
        self.undurable: collections.deque[_Undurable] = collections.deque()


class _Source:
    __slots__ = ("confirmable", "epoch", "even", "holds", "lanes", "numbers", "pending", "received", "routed")

    def __init__(self) -> None:
        self.epoch = 0
        self.received = 0
        self.routed = 0
        self.confirmable = 0
        self.lanes: dict[int, _WorkerShare] = {}
        self.holds: dict[str, int] = {}  # name -> number of the hold
        self.numbers = itertools.count(1)
        self.pending: dict[str, dict[int, int]] = {}  # what stepped aside -> number -> what is durable before it
        self.even = Durable()  # what `durable` returned last where nothing was pending

    def durable(self) -> Durable:
        """Return how far it is; the same object while a quiet source stands where it stood."""
        floors = {number: lane.undurable[0].floor for number, lane in self.lanes.items() if lane.undurable}
        if floors or self.pending or self.holds:
            aside = {name: min(pending.values()) for name, pending in self.pending.items()}
            return Durable(
                confirmable=self.confirmable, received=self.received, floors=floors, aside=aside,
                held=frozenset(self.holds),
            )  # fmt: skip
        if self.even.received != self.received or self.even.confirmable != self.confirmable:
            self.even = Durable(confirmable=self.confirmable, received=self.received)
        return self.even

    def lane(self, worker: int) -> _WorkerShare:
        return self.lanes.setdefault(worker, _WorkerShare())

    def give(self, worker: int, through: int) -> None:
        """Note that a worker was given what ends at an LSN."""
        lane = self.lane(worker)
        self.routed = max(self.routed, through)
        if through > lane.routed:
            # Only a caller that did not say `restarted` can route what was received: then nothing is assumed.
            floor = max(self.received, lane.routed) if through > self.received else self.confirmable
            lane.undurable.append(_Undurable(floor=floor, through=through))
            lane.routed = through

    def advance(self) -> None:
        """Move `confirmable` to where it may stand now."""
        if not self.holds:
            aside = [min(pending.values()) for pending in self.pending.values()]
            self.confirmable = max(self.confirmable, min([self.floor(), *aside]))

    def floor(self) -> int:
        """Return the LSN before which workers call everything durable, but for what stepped aside."""
        floors = [lane.undurable[0].floor for lane in self.lanes.values() if lane.undurable]
        return min(floors, default=self.received)


class Progress:
    """The progress map of all sources."""

    def __init__(self) -> None:
        self._sources: collections.defaultdict[str, _Source] = collections.defaultdict(_Source)
        self._lock = threading.Lock()

    def received(self, source: str, lsn: int) -> None:
        """Note that everything which ended at or before `lsn` has been received and, where due, routed."""
        with self._lock:
            entry = self._sources[source]
            entry.received = max(entry.received, lsn)
            entry.advance()

    def routed(self, source: str, worker: int, through: int) -> None:
        """Note that a worker was given a delivery which ends at `through`.

        An open part of a transaction may be registered with the end of what precedes it.
        """
        with self._lock:
            self._sources[source].give(worker, through)

    def heard(self, routed: Iterable[tuple[str, int, int]], received: Iterable[tuple[str, int]]) -> None:
        """Note what `routed` and then `received` are told, of many sources at once.

        Args:
            routed: Source, worker, and where a delivery ends.
            received: Source, and the LSN.
        """
        with self._lock:
            for source, worker, through in routed:
                self._sources[source].give(worker, through)
            for source, lsn in received:
                entry = self._sources[source]
                if lsn > entry.received:
                    entry.received = lsn
                    entry.advance()

    def restarted(self, source: str, epoch: int) -> None:
        """Note that the source's stream is read again from the confirmable LSN on, over connection `epoch`."""
        with self._lock:
            entry = self._sources[source]
            entry.epoch = epoch
            entry.received = entry.confirmable
            entry.lanes.clear()

    def begin_anew(self, source: str, lsn: int) -> None:
        """Note that a source's stream begins at an LSN, whatever was received, routed or confirmed of it before.

        Its slot is another one, or its WAL was cut off. Only while nothing reads it; who holds it goes on to.
        """
        with self._lock:
            entry = self._sources[source]
            entry.received = entry.confirmable = lsn
            entry.routed = 0
            entry.lanes.clear()

    def durable(self, source: str, worker: int, through: int, epoch: int) -> None:
        """Note that all of a worker's deliveries of this epoch up to `through` are in committed snapshots.

        Of an earlier epoch it changes nothing: the same transactions are on their way again.
        """
        with self._lock:
            entry = self._sources[source]
            if epoch != entry.epoch:
                return
            lane = entry.lane(worker)
            lane.durable = max(lane.durable, through)
            while lane.undurable and lane.undurable[0].through <= lane.durable:
                lane.undurable.popleft()
            if lane.undurable and lane.undurable[0].floor < lane.durable:
                lane.undurable[0] = _Undurable(floor=lane.durable, through=lane.undurable[0].through)
            entry.advance()

    def hold(self, source: str, name: str) -> int:
        """Keep the confirmable LSN where it is until `name` is released: a table is copying, paused, in error.

        One of several tables that are one target holds under a name of its own (`names.member_name`).

        Returns:
            The hold's number, for `release`.
        """
        with self._lock:
            entry = self._sources[names.source_of(source)]
            entry.holds[_hold(source, name)] = number = next(entry.numbers)
            return number

    def release(self, source: str, name: str, number: int | None = None) -> None:
        """Undo `hold`; without effect if it was not held.

        Args:
            source: The source, or a member of it.
            name: What holds it.
            number: The hold to be undone; it stays if another thread has held anew since. None: whichever it is.
        """
        with self._lock:
            entry = self._sources[names.source_of(source)]
            if number is None or entry.holds.get(_hold(source, name)) == number:
                entry.holds.pop(_hold(source, name), None)
            entry.advance()

    def is_held(self, source: str, name: str) -> bool:
        """Whether a table keeps the confirmable LSN where it is; see `hold`."""
        with self._lock:
            return _hold(source, name) in self._sources[names.source_of(source)].holds

    def held(self, source: str) -> frozenset[str]:
        """Return the names that keep the confirmable LSN where it is."""
        with self._lock:
            return frozenset(self._sources[source].holds)

    def confirmable(self, source: str) -> int:
        """Return the LSN that may be confirmed; 0 while nothing is known of the source."""
        with self._lock:
            return self._sources[source].confirmable

    def durable_in(self, source: str) -> Durable:
        """Return how far a source is in the lake now, table by table."""
        with self._lock:
            return self._sources[source].durable()

    def received_lsn(self, source: str) -> int:
        """Return the LSN up to which everything has been received and routed."""
        with self._lock:
            return self._sources[source].received

    def routed_lsn(self, source: str) -> int:
        """Return the end of the last transaction that was ever given to a worker; 0 if there was none."""
        with self._lock:
            return self._sources[source].routed

    def pending(self, source: str) -> bool:
        """Tell whether any worker was given something that is not durable yet."""
        return self.durable_in(source).is_pending

    def step_aside(self, source: str, target: str) -> int:
        """Confirm nothing of what a worker is about to call durable until its part of a target `came_through`.

        So that all else may count as durable meanwhile.

        Returns:
            A number, for `came_through`.
        """
        with self._lock:
            entry, name = self._sources[names.source_of(source)], _hold(source, target)
            number = next(entry.numbers)
            entry.pending.setdefault(name, {})[number] = entry.floor()
            return number

    def came_through(self, source: str, target: str, number: int) -> None:
        """Undo one `step_aside`: those of one table may come through in any order."""
        with self._lock:
            entry, name = self._sources[names.source_of(source)], _hold(source, target)
            pending = entry.pending.get(name, {})
            pending.pop(number, None)
            if not pending:
                entry.pending.pop(name, None)
            entry.advance()

    def forget(self, source: str) -> None:
        """Drop everything known of a source, as at a start; only when its reader has stopped.

        Numbers are never used twice: whatever of it is still on its way to the lake proves nothing any more.
        """
        with self._lock:
            before, entry = self._sources[source], _Source()
            entry.epoch, entry.numbers = before.epoch + 1, before.numbers
            self._sources[source] = entry

    def epoch(self, source: str) -> int:
        """Return the number of a source's last connection."""
        with self._lock:
            return self._sources[source].epoch


def _hold(source: str, name: str) -> str:
    return names.member_name(name, names.member_of(source))


__all__ = ["Durable", "Progress"]
