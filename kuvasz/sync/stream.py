"""The stream of one source: its connections one after another, and which tables follow it.

A table that is copied while the stream runs is *held*: nothing beyond the stream's place at that time is confirmed.
When its copy is committed, the reader goes back to the confirmed LSN; every other table skips what it has by its
position (invariant 3 in ARCHITECTURE.md), this one begins at the position of its snapshot.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kuvasz.config.model import Origin
from kuvasz.config.sources import SourceTableSpec
from kuvasz.route.row_limit import RowLimit
from kuvasz.source import conninfo
from kuvasz.source.catalog.type_catalog import TypeCatalog
from kuvasz.source.reading.ends import Downstream, StreamStart, StreamWatch, Upstream
from kuvasz.source.reading.reader import Reader
from kuvasz.state.ports import StoredRecord
from kuvasz.state.tables import State
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.source_logs import SourceLogs
from kuvasz.sync.watch.ancestor_rows import AncestorRows
from kuvasz.sync.watch.partition_messages import PartitionMessages


class Stream:
    """One source's stream. Methods are called on the loop.

    Args:
        context: The context of the source.
        logs: What is parked of tables that do not follow.
        slot: The slot that the stream comes from.
        record: What was confirmed.
        messages: Told of tables that are described, and of TRUNCATEs.
        ancestor_rows: Told of tables whose rows come as those of others.
        row_limit: How large a row of the stream may be.
        preparation: Knows of which tables nobody can tell whether the lake has rows.
    """

    def __init__(
        self,
        context: SourceContext,
        logs: SourceLogs,
        slot: Slot,
        record: StoredRecord,
        messages: PartitionMessages,
        ancestor_rows: AncestorRows,
        row_limit: RowLimit,
        preparation: Preparation,
    ) -> None:
        self._context = context
        self._shared = context.shared
        self._source_tables = context.source_tables
        self._logs = logs
        self._slot = slot
        self._record = record
        self._messages = messages
        self._ancestor_rows = ancestor_rows
        self._row_limit = row_limit
        self._preparation = preparation
        #: of the last connection, also of an earlier life: numbers are never used twice
        self._epoch = context.shared.progress.epoch(context.source.name)

    async def leave(self) -> None:
        """Cut what an earlier connection delivered off: the next one brings it again, and tables may change hands."""
        # Before a hold is released: until the next connection nothing counts as received beyond the confirmable LSN.
        self._epoch += 1
        self._shared.progress.restarted(self._context.source.name, self._epoch)
        for spec in self._source_tables.source.tables:
            if self._source_tables.is_streaming(spec):
                if self.is_parked(spec):  # it is to be replayed first, from where it is then
                    self._source_tables.set(spec, State.NEW)
                else:
                    self._shared.states.go_on(spec.identifier, self._source_tables.name(spec), self._epoch + 1)
            elif self._source_tables.state(spec) is State.COPYING:  # its copy ended with the connection
                self._source_tables.set(spec, State.NEW)
        for target in sorted({spec.identifier for spec in self._source_tables.source.tables}):
            await self._shared.settle(target)

    def begin(self, spec: SourceTableSpec, *, is_streamed: bool) -> None:
        """Let a table follow the stream that is about to begin, or hold the source if it is needed later.

        Args:
            spec: The table.
            is_streamed: Whether the stream names its publication.
        """
        source_tables = self._source_tables
        is_stopped = source_tables.state(spec) in {State.PAUSED, State.ERROR}
        if source_tables.position(spec) is not None and self.is_parked(spec):
            source_tables.hold(spec)
            self._logs.begin(spec, self._epoch + 1)
            if is_streamed and not is_stopped:
                self._context.requests.add(spec.identifier)
        elif source_tables.position(spec) is not None and is_streamed and not is_stopped:
            source_tables.hold(spec)
            self.activate(spec, self._epoch + 1)
            source_tables.release_following(spec, source_tables.hold(spec))
        elif self._has_rows(spec) or (is_streamed and not is_stopped):
            # Also for a table that is still to be copied: what is confirmed is in the lake, in every table. One that
            # waits for its publication is not published yet: nothing that comes now is needed for it.
            source_tables.hold(spec)
        else:
            source_tables.release(spec)

    def _has_rows(self, spec: SourceTableSpec) -> bool:
        """Whether the lake has rows of a table, or nobody knows."""
        return self._source_tables.position(spec) is not None or self._preparation.is_unknown(spec)

    def is_parked(self, spec: SourceTableSpec) -> bool:
        """Whether a table lacks what is parked of it; the changes of members wait at the source."""
        return not spec.member and self._logs.has(spec.identifier)

    def activate(self, spec: SourceTableSpec, epoch: int, end: int | None = None) -> bool:
        """Let a table follow from a connection on, perhaps to an LSN and no further; returns whether it does.

        Meanwhile its target may have failed. Such a failure reaches the sources that follow, so
        it is asked for when this one does: else its changes would be ignored and count as durable.
        """
        states, target, name = self._shared.states, spec.identifier, self._source_tables.name(spec)
        if not states.activate(target, name, epoch, end):
            return False
        error = self._shared.lake.failure(target, name)
        if error is not None:
            states.set(target, name, State.ERROR, error)
            self._context.requests.send_later(spec)
        return states.is_streaming(target, name)

    def open(self, publications: Sequence[str], system_id: str) -> Reader:
        """Return the reader of the next connection; it does not read yet."""
        shared, applied = self._shared, self._slot.applied
        types = TypeCatalog(self._context.url)
        reader = Reader(
            Upstream(
                source=self._context.source.name,
                conninfo=lambda: conninfo.replication_conninfo(self._context.replication_url()),
                slot=self._slot.name,
                publications=publications,
                system_id=system_id,
                staged=shared.staged,
                is_own_alone=self._context.source.origin is Origin.NONE,
            ),
            Downstream(
                routes=shared.routes,
                inboxes=shared.inboxes,
                progress=shared.progress,
                budget=shared.budget,
                rounds=shared.rounds,
            ),
            types,
            start=StreamStart(
                record=self._record,
                applied_lsn=self._slot.applied_lsn,
                copied=self._slot.copied,
                applied=functools.partial(applied, with_inserts=True) if len(publications) > 1 else applied,
                on_rewound=self._context.pasts.give_up,
            ),
            watch=StreamWatch(
                follow=self._messages.follow,
                on_truncate=self._messages.truncated,
                on_astray=self._ancestor_rows.missed,
                row_limit=self._row_limit,
                on_describing=self._messages.announce,
                on_described=types.close,
            ),
            on_left=self._context.lifetime.leave,
            options=shared.reading,
        )
        reader.epoch = self._epoch
        self._context.current.reader = reader
        return reader

    def close(self, reader: Reader) -> None:
        """Take note that a reader has ended."""
        self._context.current.reader = None
        self._epoch = reader.epoch

    async def rejoin(self, specs: Sequence[SourceTableSpec], reader: Reader) -> None:
        """Let tables follow the stream again from their positions on: the reader goes back to the confirmed LSN.

        Nothing may be parked of them, and `prepare` was called for each.
        """
        lifetime, current, epoch = self._context.lifetime, self._context.current, reader.epoch + 1
        for spec in specs:
            self.activate(spec, epoch)
        # Who stops one of them from now on holds anew, in whatever thread: that is not undone below. Who did before
        # is seen by its state; the hold of one that follows all the same would never be undone.
        holds = [(spec, self._source_tables.hold(spec)) for spec in specs]
        reader.rewind()
        while reader.epoch < epoch and reader is current.reader and not lifetime.is_ending:
            await lifetime.sleep(0.05)
        if reader is not current.reader or reader.epoch < epoch:
            return  # the source begins anew, and looks at all of its tables; or it ends, and holds what it has to
        for spec, hold in holds:
            # Else it was paused again or has failed: its changes are still needed.
            if self._source_tables.release_following(spec, hold):
                self._context.requests.mended(spec.key)

    async def prepare(self, spec: SourceTableSpec) -> None:
        """Hold the source for a table that is to follow, and have its failure behind it."""
        self._source_tables.hold(spec)
        await self._context.resume(spec.identifier, self._source_tables.name(spec))


__all__ = ["Stream"]
