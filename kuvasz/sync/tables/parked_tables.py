"""Parks the tables of one source that do not follow, and brings them back.

    in error, paused ──> log made ──> its id noted in the lake ──> reader goes back to the confirmed LSN, and what
    comes is parked ──> source released … retry, resume ──> the log goes to the worker, while more is parked ──>
    little is left: source held, log ended, its rest goes to the worker, reader goes back, table follows ──> all
    of it is in the lake: the note goes, then the log

Both ends of a log are made of what brings a table back anyway (`Stream.rejoin`): the source is held, and the
reader goes back to the confirmed LSN. So the log needs no exact place to begin or to end; what comes twice is told by
its commit LSN, in the log as in the lake. Everything else is level-triggered: `watch` looks again and again at the
tables that hold the source, so that no way into an error or a pause has to know of parking.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kuvasz import failpoints, lsn
from kuvasz.backoff import Backoff
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import KuvaszError, LakeError, ParkedLost, SourceError, StateError, TableError
from kuvasz.model import Delivery, Relation, Replay, Segment, SourcePosition
from kuvasz.parking.log import Change, LogDamaged
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Inbox, Lake
from kuvasz.source.reader import Reader
from kuvasz.state.budget import Budget
from kuvasz.state.progress import Progress
from kuvasz.state.tables import State, TableStates

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds between two looks at the tables.
_LOOK_S = 0.5
_POLL_S = 0.02

#: Between attempts to note in the lake that a table is parked.
_RETRY_S = 10.0

#: Of one delivery of a replay.
_PORTION_BYTES = 16 << 20

#: An epoch that no connection reaches: a table that is replayed follows no connection yet.
NEVER = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What parking works with."""

    lot: ParkingLogs
    lake: Lake
    progress: Progress
    budget: Budget
    states: TableStates
    inbox_of: Callable[[str], Inbox]  #: target -> of its worker
    number: Callable[[Relation, int, int], Relation]  #: as `kuvasz.route.assembler.Follow`
    fail: Callable[[SourceTableSpec, KuvaszError], None]
    copy_again: Callable[[SourceTableSpec], None]  #: the parked changes did not find room; blocks
    confirmed_lsn: Callable[[], int]  #: what the source may have let go of


class ParkedTables:
    """The parked tables of one source. Methods are called on the loop unless they say otherwise.

    Args:
        source: From the map.
        beside: Its neighbours.
    """

    def __init__(self, source: Source, beside: Neighbours) -> None:
        self._source = source
        self._beside = beside
        self._again_at: dict[str, float] = {}
        self._lost: set[str] = set()
        # A thread whose task was cancelled may still be at it when the next stream begins.
        self._lock = threading.RLock()
        self.moving = asyncio.Lock()  #: held while tables are taken out of the stream or brought back

    def has(self, target: str) -> bool:
        """Whether a table lacks what is parked of it. From any thread."""
        return self._beside.lot.has(target, self._source.name)

    @property
    def is_replaying(self) -> bool:
        """Whether a table that follows lacks what is parked of it."""
        states, name = self._beside.states, self._source.name
        return any(
            source == name and states.is_streaming(target, name) for target, source in self._beside.lot.views()
        )

    # In threads

    def admit(self, spec: SourceTableSpec) -> None:
        """Find out whether a prepared table lacks anything that is parked, or should be.

        Raises:
            ParkedLost: It should be, and is not there.
            LakeError, StateError: That cannot be found out.
        """
        beside, target, name = self._beside, spec.identifier, self._source.name
        with self._lock:
            noted = beside.lake.parked(target, name)
            position = beside.lake.positions(target).get(name)
            if noted is None or position is None:
                # A copy brings all of it.
                if noted is not None:
                    beside.lake.park(target, name, None)
                self.drop(target)
            elif beside.lot.id_of(target, name) != noted:
                try:
                    beside.lot.load(target, name, noted)
                except LogDamaged as error:
                    self._lost.add(target)
                    raise self._why_lost(spec, position, error) from error

    def _why_lost(self, spec: SourceTableSpec, position: SourcePosition, error: LogDamaged) -> ParkedLost:
        begin, end = lsn.render(position.lsn), lsn.render(self._beside.confirmed_lsn())
        command = f"kuvasz resync --table {spec.identifier}"
        if self._beside.states.get(spec.identifier, self._source.name).is_paused:
            command += f", and then kuvasz resume --table {spec.identifier}"
        return ParkedLost(
            f"source {self._source.name}, table {spec.table}: changes between {begin} and {end} may be missing: they"
            f" were parked, and {error}",
            hint=f"restore the state folder, or copy the table again: {command}",
        )

    def _check(self, spec: SourceTableSpec) -> None:
        """Say so if a table's log is gone."""
        target, name = spec.identifier, self._source.name
        with self._lock:
            position = self._beside.lake.positions(target).get(name)
            try:
                self._beside.lot.check(target, name)
            except LogDamaged as error:
                self.drop(target)
                self._lost.add(target)
                if position is not None:
                    self._beside.fail(spec, self._why_lost(spec, position, error))

    def drop(self, target: str) -> None:
        """Let go of what is parked of a table: the lake has it, or a copy will."""
        with self._lock:
            self._lost.discard(target)
            self._beside.lot.drop(target, self._source.name)

    def open(self, spec: SourceTableSpec) -> None:
        """Make a table's log, if it has none yet, and have the lake know; nothing is parked yet.

        Raises:
            ParkedLost, LakeError, TableError, StateError: There is none.
        """
        beside, target, name = self._beside, spec.identifier, self._source.name
        with self._lock:
            self.admit(spec)
            if not self.has(target):
                log_id = beside.lot.create(target, name)
                try:
                    beside.lake.park(target, name, log_id)
                except BaseException:
                    self.drop(target)
                    raise
                failpoints.hit("park_noted", LakeError)

    # Into the log

    def begin(self, target: str, epoch: int) -> None:
        """Park what comes with this connection and later ones: the source is let go when it has begun."""
        self._beside.lot.begin(target, self._source.name, epoch)

    def last_lsn(self, target: str) -> int:
        """Return the commit LSN of the newest transaction of a table that is parked; 0 for none."""
        return self._beside.lot.last_lsn(target, self._source.name)

    async def watch(self, reader: Reader) -> None:
        """Park tables that do not follow, for as long as the reader reads."""
        while True:
            await asyncio.sleep(_LOOK_S)
            async with self.moving:
                await self._check_logs()
                await self._look(reader)

    async def _check_logs(self) -> None:
        parked = {target for target, source in self._beside.lot.views() if source == self._source.name}
        for spec in [spec for spec in self._source.tables if spec.identifier in parked]:
            if self._is_stopped(spec.identifier):
                await _finished(self._check, spec)

    async def _look(self, reader: Reader) -> None:
        beside, name = self._beside, self._source.name
        ready = []
        held = beside.progress.held(name)  # whoever stops a table holds its source first
        for spec in [spec for spec in self._source.tables if spec.identifier in held] if held else ():
            target = spec.identifier
            beside.lot.let_go(target, name, reader.epoch)
            if not self._is_stopped(target) or beside.lake.positions(target).get(name) is None:
                continue
            if target in self._lost:
                beside.progress.release(name, target)  # nothing can be saved
            elif beside.lot.is_parking(target, name):
                pass
            elif beside.lot.is_full(target, name):
                await self._make_room(spec)
            elif await self._opened(spec):
                ready.append(target)
        # Meanwhile one of them may have been taken up again.
        ready = [target for target in ready if self._is_stopped(target) and self.has(target)]
        if ready:
            await self._begin(ready, reader)

    def _is_stopped(self, target: str) -> bool:
        state = self._beside.states.get(target, self._source.name).state
        return self._beside.lot.most_bytes > 0 and state in {State.ERROR, State.PAUSED}

    async def _opened(self, spec: SourceTableSpec) -> bool:
        target = spec.identifier
        if self._again_at.get(target, 0.0) > time.monotonic():
            return False
        try:
            await _finished(self.open, spec)
        except ParkedLost as error:
            self._beside.fail(spec, error)
        except (LakeError, TableError, StateError) as error:
            if target not in self._again_at:
                _log.warning("a table cannot be parked: its source keeps its changes", extra={
                    "event": "parking_failed", "source": self._source.name, "table": target,
                    "error": str(error)})  # fmt: skip
            self._again_at[target] = time.monotonic() + _RETRY_S
        else:
            self._again_at.pop(target, None)
            return True
        return False

    async def _begin(self, targets: Sequence[str], reader: Reader) -> None:
        beside, name = self._beside, self._source.name
        epoch = reader.epoch + 1
        for target in targets:
            beside.progress.hold(name, target)
            self.begin(target, epoch)
            _log.info("a table is parked", extra={"event": "parked", "source": name, "table": target})
        reader.rewind()
        await _reached(reader, epoch)
        for target in targets:
            beside.lot.let_go(target, name, epoch)

    async def _make_room(self, spec: SourceTableSpec) -> None:
        try:
            await _finished(self._beside.copy_again, spec)
        except KuvaszError as error:  # the source stays held, and it is tried again
            _log.warning("a table's parked changes cannot be dropped", extra={
                "event": "parking_failed", "source": self._source.name, "table": spec.identifier,
                "error": str(error)})  # fmt: skip

    # Out of the log

    async def replay(self, spec: SourceTableSpec, reader: Reader, activate: Callable[[str, int], bool]) -> bool:
        """Give a table what is parked of it, then let it follow the stream; returns whether it does.

        Args:
            spec: The table; it must not follow yet.
            reader: Of its source.
            activate: Lets the table follow from a connection on; returns whether it does.
        """
        beside, target, name = self._beside, spec.identifier, self._source.name
        number, offset = beside.lot.begin_replay(target, name)
        if not activate(target, NEVER):
            return False
        beside.lot.let_go(target, name, reader.epoch)
        feed = _Replaying(spec=spec, number=number, offset=offset, sent=offset)
        _log.info("parked changes are applied", extra={"event": "replaying", "source": name, "table": target})
        try:
            while await self._send(feed) >= _PORTION_BYTES:
                pass
            async with self.moving:
                if not await self._join(feed, reader, activate):
                    return False
            return await self._finish(feed)
        except LogDamaged as error:
            position = beside.lake.positions(target)[name]
            self._lost.add(target)
            beside.fail(spec, self._why_lost(spec, position, error))
            return False

    async def _join(self, feed: _Replaying, reader: Reader, activate: Callable[[str, int], bool]) -> bool:
        """Send what is left and have the reader go back, so that the table follows behind it."""
        beside, target, name = self._beside, feed.spec.identifier, self._source.name
        if not self._is_on(feed):
            return False
        # The hold first: what is not parked any more must come again.
        beside.progress.hold(name, target)
        beside.lot.end(target, name)
        await _finished(beside.lot.settled, target, name)
        while await self._send(feed):
            pass
        # In one go, for a pause or an error in between would leave a gap.
        if not self._is_on(feed):
            return False
        epoch = reader.epoch + 1
        if not activate(target, epoch):
            return False
        reader.rewind()
        await _reached(reader, epoch)
        if beside.states.is_streaming(target, name):
            beside.progress.release(name, target)
        return True

    async def _finish(self, feed: _Replaying) -> bool:
        """Remove the log when everything in it is in the lake."""
        beside, target, name = self._beside, feed.spec.identifier, self._source.name
        wait = _POLL_S
        while self._is_on(feed):
            if beside.lot.replayed(target, name) >= feed.sent:
                async with self.moving:
                    if not self._is_on(feed) or beside.lot.is_parking(target, name):
                        return False
                    try:
                        await _finished(self._close, target)
                    except (LakeError, StateError) as error:
                        wait = _RETRY_S
                        _log.warning("parked changes were applied and cannot be removed yet", extra={
                            "event": "parking_failed", "source": name, "table": target,
                            "error": str(error)})  # fmt: skip
                    else:
                        return True
            await asyncio.sleep(wait)
        return False

    def _close(self, target: str) -> None:
        with self._lock:
            failpoints.hit("before_unpark", LakeError)
            self._beside.lake.park(target, self._source.name, None)
            failpoints.hit("after_unpark", LakeError)
            self.drop(target)
        _log.info("parked changes are applied and removed", extra={
            "event": "unparked", "source": self._source.name, "table": target})  # fmt: skip

    def _is_on(self, feed: _Replaying) -> bool:
        """Whether a replay goes on: the table was neither stopped nor begun again meanwhile."""
        target, name = feed.spec.identifier, self._source.name
        is_current = self._beside.lot.is_replaying(target, name, feed.number)
        return is_current and self._beside.states.is_streaming(target, name)

    async def _send(self, feed: _Replaying) -> int:
        """Give the worker a portion, once it has done with the one before the last.

        Returns:
            Its bytes; 0 at the end of the log, or of the replay.
        """
        beside, target, name = self._beside, feed.spec.identifier, self._source.name
        delivery = await self._next(feed)
        while self._is_on(feed):
            if beside.lot.replayed(target, name) >= feed.waits_for and not beside.budget.is_full:
                break
            await asyncio.sleep(_POLL_S)
        if delivery is None or delivery.replay is None or not self._is_on(feed):
            return 0
        beside.budget.add(delivery.bytes)
        beside.inbox_of(target).put(delivery)
        if not delivery.is_open:
            feed.waits_for, feed.sent = feed.sent, delivery.replay.end
        feed.offset = delivery.replay.end
        return delivery.bytes

    async def _next(self, feed: _Replaying) -> Delivery | None:
        backoff = Backoff(_LOOK_S, _RETRY_S)
        while self._is_on(feed):
            try:
                return await _finished(self._portion, feed)
            except (SourceError, LakeError) as error:
                _log.warning("parked changes cannot be applied now", extra={
                    "event": "replay_retry", "source": self._source.name, "table": feed.spec.identifier,
                    "error": str(error)})  # fmt: skip
                await asyncio.sleep(backoff.next_s())
        return None

    def _portion(self, feed: _Replaying) -> Delivery | None:
        """Read on, in a thread, and number the columns as the reader does for what comes live."""
        target, name = feed.spec.identifier, self._source.name
        groups = self._beside.lot.read(target, name, feed.offset, _PORTION_BYTES)
        if not groups:
            return None
        failpoints.hit("replay_read")
        changes = tuple(self._numbered(feed, change) for group in groups for change in group.changes)
        last = groups[-1]
        return Delivery(
            source=name, changes=changes, through=last.through, bytes=sum(group.bytes for group in groups),
            is_open=last.is_open, replay=Replay(target=target, number=feed.number, end=last.end),
        )  # fmt: skip

    def _numbered(self, feed: _Replaying, change: Change) -> Change:
        relation = feed.relations.get(change.relation)
        if relation is None:
            if isinstance(change, Segment):
                commit_lsn, xid = int(change.transactions.commit_lsn[-1]), int(change.transactions.xid[-1])
            else:
                commit_lsn, xid = change.commit_lsn, change.xid
            relation = self._beside.number(change.relation, commit_lsn, xid)
            if relation is not change.relation:  # else the lake has these rows; later ones may need the numbers
                feed.relations[change.relation] = relation
        return dataclasses.replace(change, relation=relation)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Replaying:
    """One replay on its way."""

    spec: SourceTableSpec
    number: int
    offset: int  #: in the log, up to which it was sent
    sent: int  #: the same, up to the end of a transaction
    waits_for: int = 0  #: offset that has to be in the lake before more is sent
    relations: dict[Relation, Relation] = dataclasses.field(default_factory=dict)  #: as parked -> numbered


async def _reached(reader: Reader, epoch: int) -> None:
    """Wait until the reader has begun anew; whoever waits is cancelled when it ends."""
    while True:
        if reader.epoch >= epoch:
            return
        await asyncio.sleep(_POLL_S)


async def _finished(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread, to its end also if the task is cancelled: it must not meet what comes after."""
    job = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([job])
        if not job.cancelled():
            job.exception()
        raise


__all__ = ["NEVER", "Neighbours", "ParkedTables"]
