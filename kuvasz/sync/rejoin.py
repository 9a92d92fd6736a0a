"""Brings tables of one source back beside its stream by what they lack: a copy, or the stream from their position on.

Commands (pause, resume, retry, resync) change what is wanted of a table and put it into one queue
(`kuvasz.sync.context.requests`). What is wanted survives a restart (`kuvasz.state.notes`, and for a table that is
to be copied again: the position that is gone from the lake).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import LakeError, SourceError, StateError
from kuvasz.events import Event, EventLog
from kuvasz.source.reading.reader import Reader
from kuvasz.state.tables import State
from kuvasz.sync.beside import Beside
from kuvasz.sync.context.requests import WaitingLine
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules import keyless
from kuvasz.sync.rules.few_keys import FewKeys
from kuvasz.sync.source_setup import SourceSetup
from kuvasz.sync.stream import Stream
from kuvasz.sync.tables.approach import Approach
from kuvasz.sync.tables.copies import Copies
from kuvasz.sync.tables.parking import Parking
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.replays import Replays

_log = EventLog(__name__)

#: Seconds between two looks whether no copy is torn any more, and whether the hours of one have begun.
_LOOK_S = 1.0


class Rejoin:
    """The way back for tables of one source. Methods are called on the loop.

    Args:
        context: The context of the source.
        preparation: Knows of which tables nobody can tell whether the lake has rows.
        setup: Looks at the tables.
        copies: Copies the tables.
        parking: Moves tables, too: never both at once.
        stream: The stream that the tables follow.
        replays: Give the tables what is parked of them first.
        approach: Knows which tables are to be compared, and follow until then.
    """

    def __init__(
        self,
        context: SourceContext,
        preparation: Preparation,
        setup: SourceSetup,
        copies: Copies,
        parking: Parking,
        stream: Stream,
        replays: Replays,
        approach: Approach,
    ) -> None:
        self._context = context
        self._source_tables = context.source_tables
        self._requests = context.requests
        self._preparation = preparation
        self._setup = setup
        self._copies = copies
        self._moving = parking.moving
        self._stream = stream
        self._replays = replays
        self._approach = approach
        self._due: WaitingLine[SourceTableSpec] = WaitingLine()  #: to be copied beside the stream
        self._postponed: FewKeys[str] = FewKeys()  #: the tables that come into it again by themselves

    def begin(self, new: Iterable[SourceTableSpec]) -> None:
        """Begin with the tables that a new connection finds without rows."""
        self._replays.begin()
        self._due, self._postponed = WaitingLine(), FewKeys()
        for spec in new:
            self._due.put(spec)
        for spec in self._source_tables.source.tables:
            if self._approach.is_due(spec):
                self._requests.add(spec.key)

    def attend(self, reader: Reader, system_id: str, beside: Beside) -> None:
        """Bring back what is to be, for as long as the reader reads."""
        self._due.serve(beside.whenever("copy", functools.partial(self._copy, reader, system_id)))
        self._requests.serve(beside.whenever("readmit", functools.partial(self._readmit_all, reader)))
        self._replays.attend(reader, beside)

    async def _copy(self, reader: Reader, system_id: str) -> None:
        """Copy the tables that are due, one after another."""
        source_tables = self._source_tables
        while self._due:
            spec = self._due.take()
            self._postponed.discard(spec.key)
            if await self._copies.postpone(spec):
                self._postponed.add(spec.key)
                self._context.lifetime.call_later(_LOOK_S, self._due.put, spec)
            elif self._approach.is_due(spec):
                await self._compare(spec, reader, system_id)
            elif await self._copies.beside(spec, system_id):
                self._due.put(spec)
            elif source_tables.look(spec).is_resync_due:
                if source_tables.state(spec) is State.COPYING:
                    source_tables.set(spec, State.NEW)
                self._requests.add(spec.key)
            elif source_tables.is_paused(spec):
                source_tables.set(spec, State.PAUSED)
            elif source_tables.position(spec) is not None and source_tables.state(spec) is not State.ERROR:
                await self._rejoin([spec], reader)
                if source_tables.look(spec).is_resync_due:  # asked for when it counted as copying
                    self._requests.add(spec.key)

    async def _compare(self, spec: SourceTableSpec, reader: Reader, system_id: str) -> None:
        """Have a table compared that follows until then, and goes on behind it.

        One that has stopped meanwhile is compared when it follows again.
        """
        source_tables = self._source_tables
        await self._copies.compare(spec, system_id)
        if source_tables.state(spec) is State.COPYING:
            if source_tables.is_paused(spec):
                source_tables.set(spec, State.PAUSED)
            elif source_tables.look(spec).is_resync_due:  # asked for meanwhile
                source_tables.set(spec, State.NEW)
                self._requests.add(spec.key)
            else:
                await self._rejoin([spec], reader)
        if self._approach.is_due(spec) and source_tables.is_streaming(spec):
            self._requests.send_later(spec)

    async def _readmit_all(self, reader: Reader) -> None:
        """Bring tables back that were paused, in error, or are to be copied again."""
        while asked := self._requests.rest():
            ready = []
            for spec in self._source_tables.known(asked):
                async with self._moving:
                    if not self._approaches(spec) and await self._readmit(spec):
                        ready.append(spec)
            if ready:
                await self._rejoin(ready, reader)
            for spec in ready:
                if self._approach.is_due(spec):
                    self._requests.add(spec.key)

    async def _rejoin(self, specs: Sequence[SourceTableSpec], reader: Reader) -> None:
        """Let tables follow the stream again; what is parked of a table comes first, beside the others."""
        for spec in specs:
            await self._stream.prepare(spec)
            if self._stream.is_parked(spec):
                self._replays.send(spec)
        following = [spec for spec in specs if not self._stream.is_parked(spec)]
        if following:
            await self._stream.rejoin(following, reader)

    async def _readmit(self, spec: SourceTableSpec) -> bool:
        """Look at a table anew and have it copied if need be; returns whether it can follow the stream as it is."""
        source_tables, target = self._source_tables, spec.identifier
        state = source_tables.look(spec)
        is_following = state.state in {State.CATCHING_UP, State.STREAMING}
        if state.is_paused or state.state is State.COPYING or (is_following and not state.is_resync_due):
            return False  # what copies looks itself whether there is more to be done
        _log.tell(Event.READMITTED, source=source_tables.name(spec), table=target, resync=state.is_resync_due)
        source_tables.hold(spec)
        if is_following:
            source_tables.set(spec, State.NEW)
        try:
            await self._context.shared.settle(target)
            is_usable = await self._context.ask(self._setup.look, spec)
        except (SourceError, LakeError, StateError) as error:
            self._context.troubles.refuse(spec, error)
            return False
        if not is_usable:
            if spec.member and source_tables.position(spec) is None and not self._preparation.is_unknown(spec):
                source_tables.release(spec)  # a newcomer that is refused holds nobody up
            return False
        if keyless.has_only_inserts(source_tables.tables[spec.key]):
            self._begin_again()  # whether the stream may name its publication is found out there
            return False
        if source_tables.position(spec) is None:
            if spec.key not in self._postponed:
                self._due.put(spec)
            return False
        return True

    def _approaches(self, spec: SourceTableSpec) -> bool:
        """Whether a table is on its way to a comparison; one that follows is sent there if it is to be compared."""
        source_tables = self._source_tables
        is_under_way, is_due = self._approach.is_under_way(spec), self._approach.is_due(spec)
        is_ready = is_due and source_tables.is_streaming(spec) and not source_tables.look(spec).is_resync_due
        if is_under_way or (is_ready and self._stream.is_parked(spec)):
            self._context.lifetime.call_later(_LOOK_S, self._requests.add, spec.key)
        elif is_ready and spec.key not in self._postponed:
            self._postponed.add(spec.key)
            self._due.put(spec)
        return is_under_way or is_ready

    def _begin_again(self) -> None:
        """Leave the stream and look at everything anew, when no copy is torn by that."""
        if self._source_tables.is_copying:
            self._context.lifetime.call_later(_LOOK_S, self._begin_again)
        else:
            self._context.current.stop()


__all__ = ["Rejoin"]
