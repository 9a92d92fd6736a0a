"""The stream of one source: its connections one after another, and which tables follow it.

A table that is copied while the stream runs is *held*: nothing beyond the stream's place at that time is confirmed.
When its copy is committed, the reader goes back to the confirmed LSN; every other table skips what it has by its
position (invariant 3 in ARCHITECTURE.md), this one begins at the position of its snapshot.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from kuvasz.config.sources import SourceTableSpec
from kuvasz.route.assembler import Follow, OnTruncate
from kuvasz.source import conninfo
from kuvasz.source.catalog.type_catalog import TypeCatalog
from kuvasz.source.reader import Downstream, Reader, ReaderOptions, Upstream
from kuvasz.state.source_record import SourceRecordFile
from kuvasz.state.tables import State
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.parked_tables import ParkedTables


class Stream:
    """One source's stream. Methods are called on the loop.

    Args:
        context: Of the source.
        parking: Of the tables that do not follow.
        slot: That the stream comes from.
        standing: What was confirmed.
        follow: Numbers the columns of what comes.
        on_truncate: Told of TRUNCATEs that come.
        is_unknown: Whether nobody knows if the lake has rows of a table.
    """

    def __init__(
        self,
        context: SourceContext,
        parking: ParkedTables,
        slot: Slot,
        standing: SourceRecordFile,
        *,
        follow: Follow,
        on_truncate: OnTruncate,
        is_unknown: Callable[[SourceTableSpec], bool],
    ) -> None:
        self.reader: Reader | None = None
        self.replay: Callable[[SourceTableSpec], None] = lambda _: None  #: has `catch_up` run as a task
        self._source = context.source.name
        self._url = context.url
        self._shared = context.shared
        self._source_tables = context.source_tables
        self._lifetime = context.lifetime
        self._requests = context.requests
        self._parking = parking
        self._slot = slot
        self._standing = standing
        self._follow = follow
        self._on_truncate = on_truncate
        self._is_unknown = is_unknown
        self._epoch = 0  #: of the last connection: numbers are never used twice

    async def leave(self) -> None:
        """Cut what an earlier connection delivered off: the next one brings it again, and tables may change hands."""
        # Before a hold is released: until the next connection nothing counts as received beyond the confirmable LSN.
        self._epoch += 1
        self._shared.progress.restarted(self._source, self._epoch)
        for spec in self._source_tables.source.tables:
            if self._source_tables.is_streaming(spec):
                if self._is_parked(spec):  # it is to be replayed first, from where it is then
                    self._source_tables.set(spec, State.NEW)
                else:
                    self._shared.states.activate(spec.identifier, self._source_tables.name(spec), self._epoch + 1)
            await self._shared.settle(spec.identifier)

    def begin(self, spec: SourceTableSpec, *, is_streamed: bool) -> None:
        """Let a table follow the stream that is about to begin, or hold the source if it is needed later.

        Args:
            spec: The table.
            is_streamed: Whether the stream names its publication.
        """
        source_tables = self._source_tables
        is_stopped = source_tables.state(spec) in {State.PAUSED, State.ERROR}
        if source_tables.position(spec) is not None and self._is_parked(spec):
            source_tables.hold(spec)
            self._parking.begin(spec.identifier, self._epoch + 1)
            if is_streamed and not is_stopped:
                self._requests.add(spec.identifier)
        elif source_tables.position(spec) is not None and is_streamed and not is_stopped:
            source_tables.hold(spec)
            if self._activate(spec, self._epoch + 1):
                source_tables.release(spec)
        elif source_tables.position(spec) is not None or self._is_unknown(spec) or (is_streamed and not is_stopped):
            # Also for a table that is still to be copied: what is confirmed is in the lake, in every table. One that
            # waits for its publication is not published yet: nothing that comes now is needed for it.
            source_tables.hold(spec)
        else:
            source_tables.release(spec)

    def _is_parked(self, spec: SourceTableSpec) -> bool:
        """Whether a table lacks what is parked of it; the changes of members wait at the source."""
        return not spec.member and self._parking.has(spec.identifier)

    def _activate(self, spec: SourceTableSpec, epoch: int) -> bool:
        """Let a table follow from a connection on; returns whether it does.

        Meanwhile it may have failed by another source's changes. Such a failure reaches the sources that follow, so
        it is asked for when this one does: else its changes would be ignored and count as durable.
        """
        states, target, name = self._shared.states, spec.identifier, self._source_tables.name(spec)
        states.activate(target, name, epoch)
        error = self._shared.lake.failure(target)
        if error is not None:
            states.set(target, name, State.ERROR, error)
            self._requests.send_later(spec)
        return states.is_streaming(target, name)

    def open(self, publications: Sequence[str], system_id: str) -> Reader:
        """Return the reader of the next connection; it does not read yet."""
        shared = self._shared
        types = TypeCatalog(self._url)
        reader = Reader(
            Upstream(
                source=self._source,
                conninfo=conninfo.replication_conninfo(self._url),
                slot=self._slot.name,
                publications=publications,
                system_id=system_id,
            ),
            Downstream(routes=shared.routes, inboxes=shared.inboxes, progress=shared.progress, budget=shared.budget),
            types,
            follow=self._follow,
            on_truncate=self._on_truncate,
            on_described=types.close,
            standing=self._standing,
            applied_lsn=self._slot.applied_lsn,
            applied=functools.partial(self._slot.applied, with_inserts=len(publications) > 1),
            options=ReaderOptions(spill_bytes=shared.spill_bytes, gulp_bytes=shared.gulp_bytes),
        )
        reader.epoch = self._epoch
        self.reader = reader
        return reader

    def close(self, reader: Reader) -> None:
        """Take note that a reader has ended."""
        self.reader = None
        self._epoch = reader.epoch

    async def rejoin(self, specs: Sequence[SourceTableSpec], reader: Reader) -> None:
        """Let tables follow the stream again from their positions on: the reader goes back to the confirmed LSN.

        What is parked of a table comes first, in a task of its own.
        """
        for spec in specs:
            await self._prepare(spec)
        specs = [spec for spec in specs if not self._is_parked(spec)]
        if not specs:
            return
        epoch = reader.epoch + 1
        for spec in specs:
            self._activate(spec, epoch)
        reader.rewind()
        while reader.epoch < epoch and reader is self.reader and not self._lifetime.is_ending:
            await self._lifetime.sleep(0.05)
        if reader is not self.reader:
            return  # the source begins anew: it looks at all of its tables
        for spec in specs:
            # Else it was paused again or has failed: its changes are still needed.
            if self._source_tables.is_streaming(spec):
                self._requests.mended(spec.key)
                self._source_tables.release(spec)

    async def _prepare(self, spec: SourceTableSpec) -> None:
        """Hold the source for a table that is to follow, and have its failure behind it."""
        lake, target = self._shared.lake, spec.identifier
        self._source_tables.hold(spec)
        if lake.failure(target) is not None:
            await self._shared.settle(target)
            await asyncio.to_thread(lake.resume, target)
        if self._is_parked(spec):
            self.replay(spec)

    async def catch_up(self, spec: SourceTableSpec, reader: Reader) -> None:
        """Give a table what is parked of it, then let it follow."""
        if await self._parking.replay(spec, reader, lambda _, epoch: self._activate(spec, epoch)):
            self._requests.mended(spec.key)


__all__ = ["Stream"]
