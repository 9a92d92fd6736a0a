"""A process that reads: it has the slots of its share of the sources, and stages what comes, as was ordered.

Without a JVM, and without the lake's catalog: it knows no table. Whoever applies orders, and all that read share the
sources among themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any, Final

from kuvasz import lsn
from kuvasz.config import load
from kuvasz.config import sources as config_sources
from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, KuvaszError, SourceError, StateError, StateTaken, place_of
from kuvasz.events import Event, EventLog
from kuvasz.lake.files import store_access
from kuvasz.lake.files.object_folder import ObjectFolder
from kuvasz.source import slots
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.ordered import OrderedReading
from kuvasz.staging.staged_log import StagedLog
from kuvasz.state.staged.orders import StreamAnswer, as_source_error, too_new
from kuvasz.state.staged.sharing import share_of
from kuvasz.state.store import log_index
from kuvasz.verbs.cluster.source_handover import SourceHandover

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.config.load import Loaded
    from kuvasz.config.sources import Source
    from kuvasz.state.staged.orders import GivenOrder

_log = EventLog(__name__)

#: Seconds between two looks at the orders.
_LOOK_S: Final = 0.2

#: Sources that are given back at a time: each of them is read by nobody for a moment.
_MOST_GIVEN: Final = 16

#: Looks between two readings of a map that lacks a source of the orders, or by which one is not reached.
_READ_EVERY: Final = 25


#: Looks between two answers that are given once more: one of all of them.
_SAY_AGAIN: Final = 5


class SourcesRead:
    """The reading of sources, of all or of a share of them.

    Args:
        loaded: What the process was started with.

    Raises:
        ConfigError: There is no log.
    """

    def __init__(self, loaded: Loaded) -> None:
        config, index = loaded.config, log_index(loaded.config)
        cluster = config.cluster
        if index is None or cluster.log_location is None:
            raise ConfigError("cluster.role: there is no cluster.log to read into")
        # For PyArrow, where the log is in a store: an upload then has no more in memory than was written of it.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        self._loaded = loaded
        self._sources = _by_name(loaded)
        self._index = index
        self.log = StagedLog(
            index, ObjectFolder(cluster.log_location, store_access.of_lake(config.lake)),
            interval_s=cluster.log_interval, object_bytes=cluster.log_bytes, sources=len(self._sources),
            role=ClusterRole.READ, secrets=config.pipeline.sealing_secrets,
        )  # fmt: skip
        count = len(self._sources)
        self._options = ReaderOptions(compiled=False).among(count, config.pipeline.share_bytes(count))
        self._readings: dict[str, OrderedReading] = {}
        self._refused: dict[str, StreamAnswer] = {}  #: what this process cannot read
        self._answered: dict[str, StreamAnswer] = {}
        self._looks = 0
        self._handover = SourceHandover(self.log, index)

    async def run(self, stop: asyncio.Event) -> int:
        """Read until told to stop; return the exit code.

        Raises:
            StateError: The coordinator does not answer at the start, or another process reads by now.
            LakeError: The store does not answer at the start.
        """
        await asyncio.to_thread(self.log.open)
        try:
            while not stop.is_set():
                if (error := self.log.writer.died) is not None:
                    raise error
                if await self._look():
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await stop.wait()
        finally:
            # What has come is staged first: each connection then says so as its last word.
            await asyncio.to_thread(self.log.close)
            self._handover.cut_off()
            await asyncio.gather(*(reading.end() for reading in self._readings.values()))
        return 0

    async def _look(self) -> bool:
        """Do what is to be done by now; return whether there is more to do at once."""
        self._looks += 1
        going = self._handover.sources  # what is given back meanwhile is not begun again
        try:
            shared = await asyncio.to_thread(self._index.shared)
            share = share_of(shared.node, shared.nodes, shared.holders)
            await self._leave(shared.orders)
            self._give(share.given)
            going |= self._handover.sources
            await self._begin({name: given for name, given in shared.orders.items() if name not in going})
            await asyncio.to_thread(self._answer, self._answers())
            return await self._take({name: shared.pasts[name] for name in share.taken})
        except StateTaken:
            raise
        except StateError:
            return False  # the heartbeat tells, and ends the process in time

    async def _take(self, pasts: Mapping[str, int]) -> bool:
        """Take what nobody holds of this process's share; return whether there was any of it left."""
        taken = await asyncio.to_thread(self._index.hold, pasts) if pasts else ()
        if taken:
            _log.tell(Event.SOURCES_TAKEN, sources=sorted(taken))
        return bool(taken)

    def _give(self, names: Iterable[str]) -> None:
        """Give back what is not of this process's share, some at a time; not within a transaction, if it can wait."""
        for name in itertools.islice(names, _MOST_GIVEN):
            reading = self._readings.get(name)
            is_within = reading is not None and reading.answer.is_receiving and self.log.source(name).is_open
            if not is_within:
                self._handover.begin(name, self._readings.pop(name, None))

    async def _leave(self, orders: Mapping[str, GivenOrder]) -> None:
        gone = {name: one for name, one in self._readings.items() if self._is_over(name, one, orders)}
        for name in gone:
            self.log.source(name).leave()
            self._readings.pop(name)
        await asyncio.gather(*(one.end() for one in gone.values()))
        for name, reading in self._readings.items():
            reading.given = orders[name]

    def _is_over(self, name: str, reading: OrderedReading, orders: Mapping[str, GivenOrder]) -> bool:
        """Whether a reading ends: its order is another one, or the index has the source elsewhere than here."""
        return _past(orders, name) != reading.given.past or self.log.source(name).is_left

    async def _begin(self, orders: Mapping[str, GivenOrder]) -> None:
        new = {name: given for name, given in orders.items() if name not in self._readings}
        if new.keys() - self._sources.keys() or any(one.answer.error is not None for one in self._readings.values()):
            await asyncio.to_thread(self._read_again)
        self._refused = {
            name: error for name, given in new.items() if (error := self._refusal(name, given)) is not None
        }
        ready = {name: given for name, given in new.items() if name not in self._refused}
        if not ready:
            return
        pasts = {name: given.past for name, given in ready.items()}
        for name in await asyncio.to_thread(self.log.take_over, pasts):
            given = ready[name]
            try:
                made = await asyncio.to_thread(self._made, name, given)
            except KuvaszError as error:  # a file of a part of its url; it is tried again
                self._refused[name] = _refused(given, as_source_error(error))
                continue
            made.begin()
            self._readings[name] = made
            _log.tell(Event.READING_BEGUN, source=name, slot=given.order.slot)

    def _refusal(self, name: str, given: GivenOrder) -> StreamAnswer | None:
        """Return why an order cannot be carried out here; None: it can be."""
        error = too_new(name, given.order)
        if error is None and name not in self._sources:
            error = SourceError(
                f"{place_of(name)}: the process that reads has another map, without it", hint="give it the same map"
            )
        return None if error is None else _refused(given, error)

    def _made(self, name: str, given: GivenOrder) -> OrderedReading:
        def url() -> str:
            return slots.url_of(self._sources[name])

        return OrderedReading(name, url, given, self.log, self._options)

    def _read_again(self) -> None:
        """Read the map anew, now and then: whoever applies has a source that this process lacks, or has otherwise."""
        if self._looks % _READ_EVERY == 1:
            with contextlib.suppress(ConfigError):
                self._loaded = load.again(self._loaded)
                self._sources |= _by_name(self._loaded)  # of one that has left, the order goes

    def _answers(self) -> dict[str, StreamAnswer]:
        known = {name: reading.answer for name, reading in self._readings.items()}
        return known | self._refused

    def _answer(self, answers: Mapping[str, StreamAnswer]) -> None:
        if self._looks % _SAY_AGAIN == 0 and self._answered:
            # A standby of the coordinator that took over a moment behind may not have it.
            self._answered.pop(next(iter(self._answered)))
        for name, answer in answers.items():
            if self._answered.get(name) != answer:
                self._index.answer(name, answer.past, answer)
                self._answered[name] = answer

    def status(self) -> dict[str, Any]:
        """Return what is to be seen of it."""
        staged, error = self.log.staged(), self.log.writer.error
        return {
            "phase": "reading",
            "waiting_bytes": self.log.room.bytes,
            "error": None if error is None else str(error),
            "sources": [
                {
                    "source": name, "is_receiving": answer.is_receiving,
                    "staged_lsn": lsn.render(staged[name]) if name in staged else None,
                    "error": None if answer.error is None else str(answer.error),
                }
                for name, answer in sorted(self._answers().items())
            ],
        }  # fmt: skip


def _refused(given: GivenOrder, error: SourceError | None) -> StreamAnswer:
    return StreamAnswer(is_receiving=False, error=error, standing=given.known.standing, past=given.past)


def _past(orders: Mapping[str, GivenOrder], name: str) -> int | None:
    return orders[name].past if name in orders else None


def _by_name(loaded: Loaded) -> dict[str, Source]:
    return {source.name: source for source in config_sources.resolve(loaded.config)}


__all__ = ["SourcesRead"]
