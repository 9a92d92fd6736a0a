"""Brings a table of one source exactly to where a snapshot is, so that it can be compared with it.

A table whose rows of the past count has to be compared now and then: what became of its partitions is in no stream.
Were it taken out of the stream for that as any other, what came and went until the snapshot would be lost, for that
shows the last of it alone. So such a table follows until it is its turn. Then it stands still, for a snapshot's place
is not known before it is there; then the reader goes back, and the table is given what committed before the snapshot,
and nothing else. So both show the same moment, and what differs is what no stream has brought:

    following ──> standing still ──> snapshot ──> following up to it ──> standing still: compared ──> following

Nothing is noted of that anywhere: whatever ends it leaves a table that is right up to its position, and the look that
has found why it is to be compared finds that again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from kuvasz.config.sources import SourceTableSpec
from kuvasz.sync.context.current_reader import reached
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rules.few_keys import FewKeys

#: Seconds between two looks whether a table has come to its snapshot.
_LOOK_S = 0.05


class Approach:
    """The approach of one source's tables to snapshots. Methods are called on the loop unless they say otherwise.

    Args:
        context: The context of the source.
        activate: Lets a table follow from a connection on, and up to an LSN; returns whether it does.
        is_parked: Whether a table lacks what is parked of it.
    """

    def __init__(
        self,
        context: SourceContext,
        *,
        activate: Callable[[SourceTableSpec, int, int], bool],
        is_parked: Callable[[SourceTableSpec], bool],
    ) -> None:
        self._context = context
        self._shared = context.shared
        self._source_tables = context.source_tables
        self._activate = activate
        self._is_parked = is_parked
        self._under_way: FewKeys[str] = FewKeys()  #: by `SourceTableSpec.key`

    def is_due(self, spec: SourceTableSpec) -> bool:
        """Whether a table is to be compared, and follows until then; from any thread."""
        is_wanted = spec.key in self._source_tables.gap_starts.following
        return is_wanted and self._source_tables.position(spec) is not None

    def is_under_way(self, spec: SourceTableSpec) -> bool:
        """Whether a table is on its way to a snapshot, or is being compared with it; from any thread."""
        return spec.key in self._under_way

    @contextlib.contextmanager
    def begun(self, spec: SourceTableSpec) -> Iterator[bool]:
        """Have a table stand still that follows; yield whether it does. Until the end it is nobody else's to move.

        What is parked of a table no reader brings again: it has to have that first.
        """
        if self._is_parked(spec) or not self._begin_copy(spec):
            yield False
            return
        self._under_way.add(spec.key)
        try:
            yield True
        finally:
            self._under_way.discard(spec.key)

    async def up_to(self, spec: SourceTableSpec, lsn: int) -> bool:
        """Give a table that stands still what committed before an LSN.

        Args:
            spec: The table.
            lsn: The LSN; the table stands before it.

        Returns:
            Whether the lake has that, and the table stands still again; else it was stopped.

        Raises:
            SourceError: kuvasz stops.
        """
        shared, reader = self._shared, self._context.current.reader
        await shared.settle(spec.identifier)
        if reader is None:
            return False
        epoch = reader.epoch + 1
        if not self._activate(spec, epoch, lsn):
            return False
        reader.rewind()
        await reached(reader, epoch)
        while self._source_tables.is_streaming(spec):
            if self._has_applied(spec, lsn) and self._begin_copy(spec):
                await shared.settle(spec.identifier)
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    def _begin_copy(self, spec: SourceTableSpec) -> bool:
        name = self._source_tables.name(spec)
        return self._shared.states.begin_copy(spec.identifier, name, hold=lambda: self._source_tables.hold(spec))

    def _has_applied(self, spec: SourceTableSpec, lsn: int) -> bool:
        durable = self._shared.progress.durable_in(self._context.source.name)
        return durable.applied(spec.key, self._shared.routes.worker_of_target(spec.identifier)) >= lsn


__all__ = ["Approach"]
