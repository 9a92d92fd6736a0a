"""The reader of one source: its slot's stream, in gulps, to the workers' inboxes.

It owns the replication slot and the connection, and does as little as it can per message: the ceiling is
PostgreSQL's own walsender. What it owes the others:

- the server: a status update at least every `status_interval_s`, and every `confirm_interval_s` while there is
  something new to confirm, also while blocked by the memory budget (invariant 8); never an LSN that is not durable
  (invariant 1);
- the workers: whole transactions in commit order, each delivery registered with `Progress` before it is put;
- the loop: no blocking call. Types that are not built in are looked up in a thread.

Everything that passes is tried again for ever, with backoff; `SourceRefused` and `SlotLost` end `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

from kuvasz import errors
from kuvasz.backoff import Backoff
from kuvasz.events import Event, EventLog
from kuvasz.own_thread import in_thread
from kuvasz.route.assembler import Assembler, TypeLookup
from kuvasz.source.reading.connection import Connection
from kuvasz.source.reading.ends import Downstream, StreamStart, StreamWatch, Upstream
from kuvasz.source.reading.facts import ReaderFacts, ReaderState
from kuvasz.source.reading.following import Following
from kuvasz.source.reading.gulps import Gulps
from kuvasz.source.reading.handshake import Handshake
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.source.reading.rest.pause import Pause
from kuvasz.source.reading.rest.seat import Seat
from kuvasz.source.reading.staged_stream import StagedStream
from kuvasz.source.reading.staging import Staging
from kuvasz.source.reading.status_clock import StatusClock
from kuvasz.source.reading.wake_up import WakeUp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_log = EventLog(__name__)

#: Between looks whether the server has answered: it does at once, unless it is busy.
_ANSWER_PAUSES_S = (0.02, 0.1, 0.5, 1.5)


class Reader:
    """One source's reader. `run` is its task; everything else is called from the same loop.

    Large because it is a connection, who receives it where that is another, and what observers ask of both.

    Args:
        upstream: Where changes come from.
        downstream: Where they go.
        types: Resolves type oids; may block, a Relation message is routed in a thread.
        start: From where the stream goes on, and what proves that nothing is missing.
        watch: Looks at what the stream brings.
        on_left: Told of the routing thread when `run` was cancelled before that ended: it may still ask, and follow.
        options: What may be tuned.
    """

    def __init__(
        self,
        upstream: Upstream,
        downstream: Downstream,
        types: TypeLookup,
        *,
        start: StreamStart | None = None,
        watch: StreamWatch | None = None,
        on_left: Callable[[asyncio.Future[Any]], None] = lambda _: None,
        options: ReaderOptions | None = None,
    ) -> None:
        self.epoch = 0  #: number of the connection
        self.facts = facts = ReaderFacts()
        start, watch = start or StreamStart(), watch or StreamWatch()
        self._upstream = upstream
        staged, received = upstream.staged, options or ReaderOptions()
        # Whether the server lives is then another's to find out.
        self._options = options = received if staged is None else received.unhurried
        self._progress = progress = downstream.progress
        self._budget = downstream.budget
        self._rounds = downstream.rounds if options.rest_s else None
        self._wake = wake = WakeUp()
        self._assembler = assembler = Assembler(
            upstream.source,
            downstream.routes,
            types,
            options.spill_bytes,
            follow=watch.follow,
            on_truncate=watch.on_truncate,
            on_astray=watch.on_astray,
            row_limit=watch.row_limit,
        )
        record = start.record if staged is None else None
        self._clock = StatusClock(upstream.source, options, facts, progress, assembler, record, wake)
        self._gulps = Gulps(
            upstream.source,
            options,
            assembler,
            downstream,
            facts,
            self._clock,
            watch=watch,
            on_left=on_left,
        )
        self._handshake = Handshake(upstream, progress, assembler, facts, start)
        self._staging: Staging | Following | None = None
        if staged is not None:
            follower = staged.follower
            self._staging = (
                Staging(upstream, staged, progress, start, received)
                if follower is None
                else Following(upstream, staged, follower, start)
            )

    @property
    def rows(self) -> int:
        """Row messages handed to the workers."""
        return self._assembler.rows

    @property
    def dropped_rows(self) -> int:
        """Row messages of tables that the map does not want."""
        return self._assembler.dropped_rows

    @property
    def received_lsn(self) -> int:
        """How far the source has been heard out on this connection."""
        return self._assembler.received_lsn

    @property
    def commit_us(self) -> int | None:
        """Commit time of the last transaction delivered, µs since 2000-01-01 UTC."""
        return self._assembler.commit_us

    @property
    def error(self) -> errors.KuvaszError | None:
        """What is the matter: with the stream, or who receives it while this reader hears what was before."""
        return self.facts.error or (None if self._staging is None else self._staging.source_error)

    async def arrange(self) -> None:
        """Have another process receive the stream, where this one does not: before anything counts on what comes.

        Raises:
            StateError: The coordinator does not answer.
            SourceError: A group of the log hears it, and it is not received as this reader needs it.
        """
        if self._staging is not None:
            await self._staging.arrange()

    async def run(self) -> None:
        """Stream until `stop`; an `asyncio.CancelledError` leaves without the last status update.

        Raises:
            SourceRefused: The source needs SQL by a human.
            SlotLost: The stream cannot be continued; also when another cluster answers.
        """
        if self._staging is None:
            await self._run()
            return
        self._staging.begin()
        try:
            await self._run()
        finally:
            await self._staging.end()

    async def _run(self) -> None:
        backoff = Backoff(self._options.first_backoff_s, self._options.last_backoff_s)
        furthest = 0
        try:
            while not self._has_to_stop():
                self._wake.is_rewinding = False
                begin = time.monotonic()
                try:
                    async with self._streaming() as connection:
                        await self._stream(connection)
                except errors.KuvaszError as error:
                    if self._has_to_stop():
                        break
                    self._tell(error)
                    if error.retry is errors.Retry.HUMAN and isinstance(error, errors.SourceError):
                        raise
                    # A server that fails at one place of its log sends what is before it each time.
                    if self.received_lsn > furthest or time.monotonic() - begin > self._options.last_backoff_s:
                        backoff.reset()
                    furthest = max(furthest, self.received_lsn)
                    await self._wait(backoff.next_s(random.random()))  # noqa: S311 - jitter
        finally:
            self.facts.state = ReaderState.STOPPED

    def quiesce(self) -> None:
        """Stop reading but keep confirming: the first step of a shutdown."""
        self._wake.quiesce()

    def stop(self) -> None:
        """Send a last status update with what is durable, close, and end `run`."""
        self._wake.stop()

    def rewind(self) -> None:
        """Reconnect and read again from the confirmed LSN on."""
        self._wake.rewind()

    async def ask_sent_lsn(self) -> int | None:
        """Ask the server how much of its WAL it has sent; None if it does not answer soon, or nobody listens."""
        if self._staging is not None and not self._staging.answers:
            return None
        epoch, heard = self.epoch, self.facts.keepalive_bytes
        self._clock.send(is_reply_wanted=True)
        for pause_s in _ANSWER_PAUSES_S:
            await asyncio.sleep(pause_s)
            if self.facts.state is not ReaderState.STREAMING or self.epoch != epoch:
                break
            if self.facts.keepalive_bytes > heard:
                return self.received_lsn
        return None

    def _has_to_stop(self) -> bool:
        return self._wake.is_stopping

    def _tell(self, error: errors.KuvaszError) -> None:
        self.facts.error = error
        self.facts.state = ReaderState.WAITING
        _log.tell(Event.STREAM_FAILED, source=self._upstream.source, epoch=self.epoch, reason=str(error))

    async def _wait(self, delay_s: float) -> None:
        """Wait, or until stopped."""
        self.facts.retry_at = deadline = time.monotonic() + delay_s
        await self._wake.sleep_until(deadline)
        self.facts.retry_at = None

    @contextlib.asynccontextmanager
    async def _streaming(self) -> AsyncIterator[Connection | StagedStream]:
        """A connection in COPY_BOTH mode with its status clock running."""
        source, facts = self._upstream.source, self.facts
        facts.state = ReaderState.CONNECTING
        self.epoch += 1
        self._assembler.reset(self.epoch)
        self._progress.restarted(source, self.epoch)
        self._wake.failure = None
        connection = await self._wake.unless_stopped(self._opened(), source)
        try:
            if not isinstance(connection, StagedStream):
                async with asyncio.timeout(self._options.silence_timeout_s):
                    await self._wake.unless_stopped(self._greet(connection), source)
            facts.state, facts.last_message_at = ReaderState.STREAMING, time.monotonic()
            _log.tell(Event.STREAM_BEGUN, source=source, epoch=self.epoch)
            self._clock.start(connection)
            yield connection
            self._clock.send()
            await connection.finish()
        except TimeoutError as error:
            message = (
                f"{errors.place_of(source)}: the server does not answer within {self._options.silence_timeout_s:g} s"
            )
            raise errors.SourceError(message, hint="kuvasz reconnects by itself") from error
        finally:
            self._clock.stop()
            connection.close()

    async def _opened(self) -> Connection | StagedStream:
        if self._staging is not None:
            return await StagedStream.open(self._staging)
        reached = await asyncio.wrap_future(in_thread(self._upstream.conninfo))
        return await Connection.open(reached, self._upstream.source)

    async def _greet(self, connection: Connection) -> None:
        await self._handshake.check(connection)
        self._clock.keep_within(await connection.wal_sender_timeout_s())
        upstream = self._upstream
        await connection.start_replication(upstream.slot, *upstream.publications, options=upstream.options)

    async def _stream(self, connection: Connection | StagedStream) -> None:
        pause, gulps, wake = Pause(self._options, is_local=connection.is_local), self._gulps, self._wake
        seat = self._seat(connection)
        while not wake.is_leaving:
            if wake.is_quiescing or self._budget.is_full_for(self._upstream.source):
                await self._hold_off()
                continue
            added = connection.drain(self._options.gulp_bytes)
            if added:
                gulps.hear(connection, added)
            if gulps.is_due(connection, added):
                await gulps.route(connection)
            pause_s = pause.after(added)
            if seat is not None and (pause_s is None or pause_s > self._options.longest_pause_s):
                await self._attended(seat)
            elif pause_s is None:
                await self._readable(connection)
            elif pause_s > self._options.longest_pause_s:
                await self._rest(pause_s)
            else:
                await asyncio.sleep(pause_s)
        if wake.failure is not None:
            raise wake.failure

    def _seat(self, connection: Connection | StagedStream) -> Seat | None:
        """Return the seat of a connection among those that are looked at together; None: it cannot be."""
        if self._rounds is None or isinstance(connection, StagedStream) or connection.shared_drain is None:
            return None
        drain = connection.shared_drain
        source, assembler, gulps = self._upstream.source, self._assembler, self._gulps
        return Seat(source, connection, drain, assembler, gulps, self.facts, self._clock, self._wake)

    async def _attended(self, seat: Seat) -> None:
        """Have the socket looked at together with others until it brings more than they do, or something changed."""
        called = self._wake.called
        called.clear()
        if self._wake.is_leaving or self._wake.is_quiescing or self._rounds is None:
            return
        with self._rounds.attended(seat, self._options):
            await called.wait()

    async def _readable(self, connection: Connection | StagedStream) -> None:
        """Wait until the socket has something to read, or something changed."""
        called = self._wake.called
        called.clear()
        if self._wake.is_leaving or self._wake.is_quiescing:
            return
        connection.watch(called.set)
        try:
            await called.wait()
        finally:
            connection.unwatch()

    async def _rest(self, rest_s: float) -> None:
        """Leave the socket alone for a while, or until something changed."""
        called = self._wake.called
        called.clear()
        if self._wake.is_leaving or self._wake.is_quiescing:
            return
        beat = asyncio.get_running_loop().call_later(rest_s, called.set)
        try:
            await called.wait()
        finally:
            beat.cancel()

    async def _hold_off(self) -> None:
        """Leave the socket alone until the budget has room or the reader is told to leave."""
        loop = asyncio.get_running_loop()
        called = self._wake.called
        called.clear()

        def wake() -> None:
            loop.call_soon_threadsafe(called.set)

        if not self._wake.is_quiescing:
            self._budget.when_room(self._upstream.source, wake)
        self.facts.is_paused = True
        try:
            if not self._wake.is_leaving:
                await called.wait()
        finally:
            self.facts.is_paused = False
            self._budget.forget(wake)
            self.facts.last_message_at = time.monotonic()  # silence while we did not listen is not the server's


__all__ = ["Reader"]
