"""Parks the tables of one source that do not follow.

    in error, paused ──> log made ──> its id noted in the lake ──> reader goes back to the confirmed LSN, and what
    comes is parked ──> source released … retry, resume ──> the log goes to the worker, while more is parked ──>
    little is left: source held, log ended, its rest goes to the worker, reader goes back, table follows ──> all
    of it is in the lake: the note goes, then the log

Both ends of a log are made of what brings a table back anyway (`Stream.rejoin`): the source is held, and the
reader goes back to the confirmed LSN. So the log needs no exact place to begin or to end; what comes twice is told by
its commit LSN, in the log as in the lake. Everything else is level-triggered: `watch` looks again and again at the
tables that hold the source, so that no way into an error or a pause has to know of parking. The way out of the log is
`kuvasz.sync.tables.replays`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import KuvaszError, LakeError, ParkedLost, StateError, TableError
from kuvasz.events import Event, EventLog
from kuvasz.source.reading.reader import Reader
from kuvasz.state.tables import State
from kuvasz.sync.beside import Beside
from kuvasz.sync.context.current_reader import reached
from kuvasz.sync.context.lifetime import finished
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.tables.source_logs import SourceLogs

_log = EventLog(__name__)

#: Seconds between two looks at the tables, of a source that is not one of many.
_LOOK_S = 0.5

#: Between attempts to note in the lake that a table is parked.
_RETRY_S = 10.0


class Parking:
    """The way into the logs of one source. Methods are called on the loop.

    Args:
        context: The context of the source.
        logs: Its logs.
        resets: Has tables copied again whose changes do not find room.
    """

    def __init__(self, context: SourceContext, logs: SourceLogs, resets: PositionReset) -> None:
        self.moving = asyncio.Lock()  #: held while tables are taken out of the stream or brought back
        self._source = context.source
        self._shared = context.shared
        self._troubles = context.troubles
        self._logs = logs
        self._resets = resets
        self._again_at: dict[str, float] = {}

    def watch(self, reader: Reader, beside: Beside) -> None:
        """Park tables that do not follow, for as long as the reader reads."""
        beside.now_and_then("park", functools.partial(self._watch, reader), self._pause_s, self._is_due)

    def _pause_s(self) -> float:
        return self._shared.reading.pause_s(_LOOK_S, asyncio.get_running_loop().time())

    def _is_due(self) -> bool:
        """Whether any table does not follow, or has just come back; of most sources none at most moments."""
        return bool(self._shared.progress.held(self._source.name) or self._logs.targets())

    async def _watch(self, reader: Reader) -> None:
        async with self.moving:
            await self._check_logs()
            await self._look(reader)

    async def _check_logs(self) -> None:
        parked = self._logs.targets()
        for spec in [spec for spec in self._source.tables if spec.identifier in parked]:
            if self._is_stopped(spec.identifier):
                await finished(self._logs.check, spec)

    async def _look(self, reader: Reader) -> None:
        lot, progress, name = self._shared.lot, self._shared.progress, self._source.name
        ready = []
        held = progress.held(name)  # whoever stops a table holds its source first
        for spec in [spec for spec in self._source.tables if spec.identifier in held] if held else ():
            target = spec.identifier
            is_lost = self._logs.is_lost(target)
            if not is_lost:
                lot.let_go(target, name, reader.epoch)
            if not self._is_stopped(target) or self._shared.lake.position(target, name) is None:
                continue
            if is_lost:
                await self._give_up(spec)
            elif lot.is_parking(target, name):
                pass
            elif lot.is_full(target, name):
                await self._make_room(spec)
            elif await self._opened(spec):
                ready.append(spec)
        # Meanwhile one of them may have been taken up again.
        ready = [spec for spec in ready if self._is_stopped(spec.identifier) and self._logs.has(spec.identifier)]
        if ready:
            await self._begin(ready, reader)

    def _is_stopped(self, target: str) -> bool:
        state = self._shared.states.get(target, self._source.name).state
        return self._shared.lot.most_bytes > 0 and state in {State.ERROR, State.PAUSED}

    async def _give_up(self, spec: SourceTableSpec) -> None:
        """Release a table's source that nothing can be saved of, once the lake knows."""
        if await self._done(spec, self._logs.abandon):
            self._shared.progress.release(self._source.name, spec.identifier)

    async def _opened(self, spec: SourceTableSpec) -> bool:
        return await self._done(spec, self._logs.open)

    async def _done(self, spec: SourceTableSpec, step: Callable[[SourceTableSpec], None]) -> bool:
        """Take a step in a thread, and tell whether it was taken; one that fails is tried again after a while."""
        target = spec.identifier
        if self._again_at.get(target, 0.0) > time.monotonic():
            return False
        try:
            await finished(step, spec)
        except ParkedLost as error:
            self._troubles.fail(spec, error)
        except (LakeError, TableError, StateError) as error:
            if target not in self._again_at:
                _log.tell(Event.PARKING_FAILED, source=self._source.name, table=target, error=str(error))
            self._again_at[target] = time.monotonic() + _RETRY_S
        else:
            self._again_at.pop(target, None)
            return True
        return False

    async def _begin(self, specs: Sequence[SourceTableSpec], reader: Reader) -> None:
        name, epoch = self._source.name, reader.epoch + 1
        for spec in specs:
            self._shared.progress.hold(name, spec.identifier)
            self._logs.begin(spec, epoch)
            _log.tell(Event.PARKED, source=name, table=spec.identifier)
        reader.rewind()
        await reached(reader, epoch)
        for spec in specs:
            self._shared.lot.let_go(spec.identifier, name, epoch)

    async def _make_room(self, spec: SourceTableSpec) -> None:
        try:
            await finished(self._resets.make_room, spec)
        except KuvaszError as error:  # the source stays held, and it is tried again
            _log.tell(Event.PARKING_FAILED_AT_DROP, source=self._source.name, table=spec.identifier, error=str(error))


__all__ = ["Parking"]
