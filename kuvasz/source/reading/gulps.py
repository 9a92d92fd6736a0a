"""The gulps of a reader: when one is large or old enough to be routed, and how it reaches the workers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kuvasz.own_thread import in_thread
from kuvasz.route import scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.model import Delivery, UInt8s, UInt32s
    from kuvasz.route.assembler import Assembler
    from kuvasz.source.reading.connection import Connection
    from kuvasz.source.reading.ends import Downstream, StreamWatch
    from kuvasz.source.reading.facts import ReaderFacts
    from kuvasz.source.reading.options import ReaderOptions
    from kuvasz.source.reading.staged_stream import StagedStream
    from kuvasz.source.reading.status_clock import StatusClock


class Gulps:
    """The gulps of one reader. Called on the loop.

    Args:
        source: Name of the source.
        options: How large, and how old.
        assembler: Routes them.
        downstream: Where what it makes of them goes.
        facts: Told what came.
        clock: Told when the server wants an answer.
        watch: Told in a thread of the Relation messages of a gulp, before it is routed and behind that.
        on_left: Told of the thread that routes a gulp when its task was cancelled: it goes on to its end.
    """

    def __init__(
        self,
        source: str,
        options: ReaderOptions,
        assembler: Assembler,
        downstream: Downstream,
        facts: ReaderFacts,
        clock: StatusClock,
        *,
        watch: StreamWatch,
        on_left: Callable[[asyncio.Future[Any]], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._options = options
        self._assembler = assembler
        self._inboxes = downstream.inboxes
        self._progress = downstream.progress
        self._budget = downstream.budget
        self._facts = facts
        self._clock = clock
        self._watch = watch
        self._on_left = on_left
        self._began_at = 0.0
        self._gather_s = options.gulp_s

    def hear(self, connection: Connection | StagedStream, added: int) -> None:
        """Take note of bytes that came."""
        facts = self._facts
        now = facts.last_message_at = time.monotonic()
        if connection.gathered_bytes == added:
            self._began_at = now
        facts.bytes += added
        facts.error = None

    def is_due(self, connection: Connection | StagedStream, added: int) -> bool:
        """Whether to route the gulp now: it is large, it is old, or nothing more is coming."""
        gathered = connection.gathered_bytes
        if gathered == 0:
            return False
        is_old = time.monotonic() - self._began_at >= self._gather_s
        return added < self._options.quiet_bytes or gathered >= self._options.gulp_bytes or is_old

    async def route(self, connection: Connection | StagedStream) -> None:
        """Route what has gathered, and hand it to the workers."""
        gulp, lengths = connection.gulp()
        keepalives = scan.keepalives(gulp, lengths)
        if keepalives and self._assembler.hear(keepalives):
            self._facts.keepalive_bytes += connection.gathered_bytes
            del gulp, lengths
            connection.clear()
            self._heard()
            return
        view = scan.frozen_view(gulp)
        if scan.has_relation(view, lengths):
            # Its types may have to be asked for. A cancellation in here leaves a half-routed gulp behind: the
            # assembler is reset before the next connection.
            deliveries = await self._routed_in_thread(view, lengths)
        else:
            begin = time.monotonic()
            deliveries = self._assembler.feed(view, lengths)
            self._gather_s = self._options.gather_s(time.monotonic() - begin)
        del view, gulp, lengths
        connection.clear()
        for worker, delivery in deliveries:
            self._progress.routed(self._source, worker, delivery.through)
        for worker, delivery in deliveries:
            self._budget.add(self._source, delivery.bytes)
            self._inboxes[worker].put(delivery)
        self._heard()

    def _heard(self) -> None:
        """Let it be known how far the source has been heard out, and answer if it asked."""
        self._progress.received(self._source, self._assembler.received_lsn)
        if self._assembler.take_reply_wanted():
            self._clock.reply()

    async def _routed_in_thread(self, gulp: UInt8s, lengths: UInt32s) -> list[tuple[int, Delivery]]:
        job = asyncio.wrap_future(in_thread(lambda: self._feed_described(gulp, lengths)))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            self._on_left(job)
            raise

    def _feed_described(self, gulp: UInt8s, lengths: UInt32s) -> list[tuple[int, Delivery]]:
        try:
            self._watch.on_describing(scan.relation_oids(gulp, lengths))
            return self._assembler.feed(gulp, lengths)
        finally:
            self._watch.on_described()


__all__ = ["Gulps"]
