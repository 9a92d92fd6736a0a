"""Brings parked tables of one source back: their logs go to the workers first, and then they follow the stream.

See `kuvasz.sync.tables.parking` for the whole way of a table into a log and out of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from kuvasz import failpoints
from kuvasz.backoff import Backoff
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, SourceError, StateError
from kuvasz.events import Event, EventLog
from kuvasz.model import Delivery, Relation, Replay, Segment
from kuvasz.parking.ports import LogDamaged
from kuvasz.route.assembler import Follow
from kuvasz.route.parts import Change
from kuvasz.route.row_limit import RowLimit
from kuvasz.source.reading.reader import Reader
from kuvasz.sync.beside import Beside
from kuvasz.sync.context.current_reader import reached
from kuvasz.sync.context.lifetime import finished
from kuvasz.sync.context.requests import WaitingLine
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.parking import Parking
from kuvasz.sync.tables.source_logs import SourceLogs

_log = EventLog(__name__)

_POLL_S = 0.02

#: Between attempts at what fails.
_FIRST_RETRY_S = 0.5
_RETRY_S = 10.0

#: Of one delivery of a replay.
_PORTION_BYTES = 16 << 20

#: An epoch that no connection reaches: a table that is replayed follows no connection yet.
NEVER = 1 << 62


@dataclasses.dataclass(slots=True, kw_only=True)
class _Replaying:
    """One replay on its way."""

    spec: SourceTableSpec
    number: int
    offset: int  #: in the log, up to which it was sent
    sent: int  #: the same, up to the end of a transaction
    waits_for: int = 0  #: offset that has to be in the lake before more is sent
    relations: dict[Relation, Relation] = dataclasses.field(default_factory=dict)  #: as parked -> numbered


class Replays:
    """The way out of the logs of one source. Methods are called on the loop unless they say otherwise.

    Args:
        context: The context of the source.
        logs: Its logs.
        parking: Moves tables, too: never both at once.
        number: Numbers the columns of what was parked, as of what comes live; in threads.
        row_limit: Looks at what was parked, as at what comes live; in threads.
        activate: Lets a table follow from a connection on; returns whether it does.
    """

    def __init__(
        self,
        context: SourceContext,
        logs: SourceLogs,
        parking: Parking,
        *,
        number: Follow,
        row_limit: RowLimit,
        activate: Callable[[SourceTableSpec, int], bool],
    ) -> None:
        self._name = context.source.name
        self._shared = context.shared
        self._requests = context.requests
        self._logs = logs
        self._moving = parking.moving
        self._number = number
        self._row_limit = row_limit
        self._activate = activate
        self._due: WaitingLine[SourceTableSpec] = WaitingLine()

    def begin(self) -> None:
        """Forget what an earlier connection was to bring back: the next one looks at all tables itself."""
        self._due = WaitingLine()

    def send(self, spec: SourceTableSpec) -> None:
        """Have a table given what is parked of it, beside the stream; it must not follow yet."""
        self._due.put(spec)

    def attend(self, reader: Reader, beside: Beside) -> None:
        """Bring back the tables that are due, side by side, for as long as the reader reads."""
        self._due.serve(functools.partial(self._bring_all_back, reader, beside))

    def _bring_all_back(self, reader: Reader, beside: Beside) -> None:
        for spec in self._due.rest():
            beside.start("replay", functools.partial(self._bring_back, spec, reader))

    async def _bring_back(self, spec: SourceTableSpec, reader: Reader) -> None:
        if await self.replay(spec, reader):
            self._requests.mended(spec.key)

    async def replay(self, spec: SourceTableSpec, reader: Reader) -> bool:
        """Give a table what is parked of it, then let it follow the stream; returns whether it does.

        Args:
            spec: The table; it must not follow yet.
            reader: The reader of its source.
        """
        lot, target, name = self._shared.lot, spec.identifier, self._name
        number, offset = lot.replays.begin(target, name)
        if not self._activate(spec, NEVER):
            return False
        lot.let_go(target, name, reader.epoch)
        feed = _Replaying(spec=spec, number=number, offset=offset, sent=offset)
        _log.tell(Event.REPLAYING, source=name, table=target)
        try:
            while await self._send(feed) >= _PORTION_BYTES:
                pass
            async with self._moving:
                if not await self._join(feed, reader):
                    return False
            return await self._finish(feed)
        except LogDamaged as error:
            self._logs.lose(spec, error)
            return False

    async def _join(self, feed: _Replaying, reader: Reader) -> bool:
        """Send what is left and have the reader go back, so that the table follows behind it."""
        lot, progress, target, name = self._shared.lot, self._shared.progress, feed.spec.identifier, self._name
        if not self._is_on(feed):
            return False
        # The hold first: what is not parked any more must come again.
        progress.hold(name, target)
        lot.end(target, name)
        await finished(lot.settled, target, name)
        while await self._send(feed):
            pass
        # In one go, for a pause or an error in between would leave a gap.
        if not self._is_on(feed):
            return False
        # Who stops it from now on holds anew, in whatever thread: that is not undone below.
        epoch, hold = reader.epoch + 1, progress.hold(name, target)
        if not self._shared.states.go_on(target, name, epoch):
            return False
        reader.rewind()
        await reached(reader, epoch)
        self._shared.states.release(target, name, lambda: progress.release(name, target, hold))
        return True

    async def _finish(self, feed: _Replaying) -> bool:
        """Remove the log when everything in it is in the lake."""
        lot, target, name = self._shared.lot, feed.spec.identifier, self._name
        wait = _POLL_S
        while self._is_on(feed):
            if lot.replays.offset(target, name) >= feed.sent:
                async with self._moving:
                    if not self._is_on(feed) or lot.is_parking(target, name):
                        return False
                    try:
                        await finished(self._close, target)
                    except (LakeError, StateError) as error:
                        wait = _RETRY_S
                        _log.tell(Event.PARKING_FAILED_AT_END, source=name, table=target, error=str(error))
                    else:
                        return True
            await asyncio.sleep(wait)
        return False

    def _close(self, target: str) -> None:
        self._logs.close(target)
        _log.tell(Event.UNPARKED, source=self._name, table=target)

    def _is_on(self, feed: _Replaying) -> bool:
        """Whether a replay goes on: the table was neither stopped nor begun again meanwhile."""
        target = feed.spec.identifier
        is_current = self._shared.lot.replays.is_on(target, self._name, feed.number)
        return is_current and self._shared.states.is_streaming(target, self._name)

    async def _send(self, feed: _Replaying) -> int:
        """Give the worker a portion, once it has done with the one before the last.

        Returns:
            Its bytes; 0 at the end of the log, or of the replay.
        """
        shared, target = self._shared, feed.spec.identifier
        delivery = await self._next(feed)
        while self._is_on(feed):
            if shared.lot.replays.offset(target, self._name) >= feed.waits_for and not shared.budget.is_full_for(
                self._name
            ):
                break
            await asyncio.sleep(_POLL_S)
        if delivery is None or delivery.replay is None or not self._is_on(feed):
            return 0
        shared.budget.add(delivery.source, delivery.bytes)
        shared.inboxes[shared.routes.worker_of_target(target)].put(delivery)
        if not delivery.is_open:
            feed.waits_for, feed.sent = feed.sent, delivery.replay.end
        feed.offset = delivery.replay.end
        return delivery.bytes

    async def _next(self, feed: _Replaying) -> Delivery | None:
        backoff = Backoff(_FIRST_RETRY_S, _RETRY_S)
        while self._is_on(feed):
            try:
                return await finished(self._portion, feed)
            except (SourceError, LakeError, StateError) as error:
                _log.tell(Event.REPLAY_RETRY, source=self._name, table=feed.spec.identifier, error=str(error))
                await asyncio.sleep(backoff.next_s())
        return None

    def _portion(self, feed: _Replaying) -> Delivery | None:
        """Read on, in a thread, and number the columns as the reader does for what comes live."""
        target = feed.spec.identifier
        groups = self._shared.lot.read(target, self._name, feed.offset, _PORTION_BYTES)
        if not groups:
            return None
        failpoints.hit("replay_read")
        changes = tuple(self._numbered(feed, change) for group in groups for change in group.changes)
        last = groups[-1]
        return Delivery(
            source=self._name, changes=changes, through=last.through, bytes=sum(group.bytes for group in groups),
            is_open=last.is_open, replay=Replay(target=target, number=feed.number, end=last.end),
        )  # fmt: skip

    def _numbered(self, feed: _Replaying, change: Change) -> Change:
        if isinstance(change, Segment):
            change = self._row_limit.check(change)
        relation = feed.relations.get(change.relation)
        if relation is None:
            relation = self._number(change.relation, *_described(change))
            if relation is not change.relation:  # else the lake has these rows; later ones may need the numbers
                feed.relations[change.relation] = relation
        return dataclasses.replace(change, relation=relation)


def _described(change: Change) -> tuple[int, int]:
    """Return commit LSN and xid of the transaction that a change's columns are of; else of its last one."""
    if not isinstance(change, Segment):
        return change.commit_lsn, change.xid
    runs = change.transactions
    (of_it,) = np.nonzero(runs.commit_lsn == change.relation.described_lsn)
    at = of_it[0] if of_it.size else -1
    return int(runs.commit_lsn[at]), int(runs.xid[at])


__all__ = ["NEVER", "Replays"]
