"""What receives a source's stream for the staged log: it stages, whatever the lake, and whoever hears it, wait for.

    connection ─> gulps ─> cut where transactions end ─> memory ─┬─> objects of the log ─> confirmed to the source
                                                                 └─> the reader, from memory or from objects

Beside a reader, and for as long as that runs: the reader hears what comes here (`StagedStream`), and goes back to
where the lake is without the source being asked. What fails is tried again for ever; the reader is told, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from kuvasz import errors
from kuvasz.backoff import Backoff
from kuvasz.source.reading.connection import Connection
from kuvasz.source.reading.facts import ReaderFacts
from kuvasz.source.reading.handshake import Handshake
from kuvasz.source.reading.status_clock import StatusClock
from kuvasz.source.reading.wake_up import WakeUp
from kuvasz.staging.cutter import Cutter
from kuvasz.staging.proof import Proof
from kuvasz.staging.stream_messages import StreamMessages

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kuvasz.source.reading.ends import StreamStart, Upstream
    from kuvasz.source.reading.options import ReaderOptions
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.staging.staged_source import StagedSource
    from kuvasz.state.progress import Progress

T = TypeVar("T")

#: Seconds between two looks at a stream that flows; and for how long what comes gathers at most before it is cut, if
#: it is less than a look should find: each piece that is cut costs something, however large it is.
_LOOK_S: Final = 0.02
_GATHER_S: Final = 0.05

#: Between looks whether there is room again; the writer tells, too.
_ROOM_S: Final = 0.2


class StagedProgress:
    """What a handshake and a status clock ask of progress: here what is staged counts as durable.

    Args:
        log: The staged log.
        progress: How far sources are in the lake.
    """

    def __init__(self, log: StagedLog, progress: Progress) -> None:
        self._log = log
        self._progress = progress

    def confirmable(self, source: str) -> int:
        """Return the LSN before which everything is staged."""
        return self._log.source(source).known.lsn

    def routed_lsn(self, source: str) -> int:
        """Return the end of the last transaction that came."""
        return max(self._log.source(source).newest[1], self._progress.routed_lsn(source))

    def begin_anew(self, source: str, lsn: int) -> None:
        """Go on behind an LSN of another server, whatever the one before said it was without transactions.

        Whoever hears the stream may be at it, and begins anew when it notices: see `Staging.go_on`.
        """
        self._log.set_back(source, lsn)


class Staging:
    """The receiver of one source. Called on the loop.

    Large because it is a reader's connection and what is made of it, without whoever hears it.

    Args:
        upstream: Where changes come from.
        log: Where they go.
        progress: How far sources are in the lake.
        start: What proves that nothing is missing.
        options: What may be tuned.
    """

    answers = True  #: the server can be asked something through it

    def __init__(
        self,
        upstream: Upstream,
        log: StagedLog,
        progress: Progress,
        start: StreamStart,
        options: ReaderOptions,
    ) -> None:
        self.log = log
        self.source: StagedSource = log.source(upstream.source)
        self.error: errors.KuvaszError | None = None  #: why it receives nothing now
        self.is_receiving = asyncio.Event()
        self._upstream = upstream
        self._options = options
        self._facts = ReaderFacts()
        self._wake = WakeUp()
        self._proof = Proof(upstream.source)
        staged = StagedProgress(log, progress)
        self._handshake = Handshake(upstream, staged, self._proof, self._facts, start)
        self._clock = StatusClock(
            upstream.source, options, self._facts, staged, self._proof, start.record, self._wake
        )  # fmt: skip
        self._progress = progress
        self._past = self.source.past
        self._task: asyncio.Task[None] | None = None

    @property
    def source_error(self) -> errors.KuvaszError | None:
        """Why it receives nothing now, also while what was received is heard still."""
        return self.error

    async def arrange(self) -> None:
        """Nothing is to be arranged: it is received here."""

    def begin(self) -> None:
        """Begin to receive."""
        loop = asyncio.get_running_loop()

        def staged() -> None:
            loop.call_soon_threadsafe(self._wake.called.set)

        self.log.listen(self._upstream.source, staged)
        self._task = asyncio.create_task(self._run(), name=f"stage {self._upstream.slot}")

    async def end(self) -> None:
        """Tell the source what is staged, and end."""
        self._wake.stop()
        self.log.unlisten(self._upstream.source)
        if self._task is not None:
            await self._task

    def go_on(self) -> None:
        """Have nothing count that was heard of a server before: called when nobody hears the stream."""
        if self._past != self.source.past:
            self._past = self.source.past
            self._progress.begin_anew(self.source.name, self.source.applied)

    def ask(self) -> None:
        """Ask the server how much it has sent; the answer comes in the stream."""
        self._clock.send(is_reply_wanted=True)

    async def _run(self) -> None:
        backoff = Backoff(self._options.first_backoff_s, self._options.last_backoff_s)
        while not self._wake.is_stopping:
            begin = time.monotonic()
            self._wake.failure = None
            try:
                await self._receive()
            except errors.KuvaszError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 (told by whoever hears the stream)
                self._fail(errors.InternalError(f"{errors.place_of(self._upstream.source)}: {error!r}"))
            if time.monotonic() - begin > self._options.last_backoff_s:
                backoff.reset()
            if not self._wake.is_stopping:
                await self._wake.sleep_until(time.monotonic() + backoff.next_s(random.random()))  # noqa: S311 - jitter

    def _fail(self, error: errors.KuvaszError) -> None:
        self.error = error
        self.is_receiving.clear()
        self.source.on_added()

    async def _receive(self) -> None:
        """Receive over one connection, until told to stop.

        Raises:
            SourceError, StateError: It cannot go on.
        """
        source, options = self._upstream.source, self._options
        await self._unless_stopped(asyncio.to_thread(self.log.abandon_open, source))
        reached = await self._unless_stopped(asyncio.to_thread(self._upstream.conninfo))
        opening = Connection.open(reached, source, compiled=options.compiled)
        connection = await self._unless_stopped(opening)
        try:
            async with asyncio.timeout(options.silence_timeout_s):
                await self._unless_stopped(self._greet(connection))
            self._facts.last_message_at = time.monotonic()
            lsn, ended, number = self.source.newest
            self._clock.start(connection)
            self.error = None
            self.is_receiving.set()
            await self._pump(connection, Cutter(lsn, ended, number))
            self._clock.send()
            await connection.finish()
        except TimeoutError as error:
            message = f"{errors.place_of(source)}: the server does not answer within {options.silence_timeout_s:g} s"
            raise errors.SourceError(message, hint="kuvasz reconnects by itself") from error
        finally:
            self.is_receiving.clear()
            self._clock.stop()
            connection.close()

    async def _unless_stopped(self, step: Coroutine[object, object, T]) -> T:
        return await self._wake.unless_stopped(step, self._upstream.source)

    async def _greet(self, connection: Connection) -> None:
        await self._handshake.check(connection)
        self._clock.keep_within(await connection.wal_sender_timeout_s())
        upstream = self._upstream
        await connection.start_replication(upstream.slot, *upstream.publications, options=upstream.options)

    async def _pump(self, connection: Connection, cutter: Cutter) -> None:
        wake, facts, began_at = self._wake, self._facts, 0.0
        while not wake.is_leaving:
            if not self.log.room.is_there:
                await self._hold_off()
                continue
            added = connection.drain(self._options.gulp_bytes)
            if added:
                now = facts.last_message_at = time.monotonic()
                began_at = now if connection.gathered_bytes == added else began_at
                if self._is_due(connection.gathered_bytes, added, now - began_at):
                    self._take(connection, cutter)
                await asyncio.sleep(_LOOK_S)
            elif connection.gathered_bytes:
                self._take(connection, cutter)
            else:
                wake.called.clear()
                if not wake.is_leaving:
                    connection.watch(wake.called.set)
                    try:
                        await wake.called.wait()
                    finally:
                        connection.unwatch()
        if wake.failure is not None:
            raise wake.failure

    def _is_due(self, gathered: int, added: int, seconds: float) -> bool:
        return added < self._options.quiet_bytes or gathered >= self._options.look_bytes or seconds >= _GATHER_S

    def _take(self, connection: Connection, cutter: Cutter) -> None:
        gulp, lengths = connection.gulp()
        messages = StreamMessages(gulp, lengths)
        stretches = cutter.feed(messages)
        # What fails to prove itself is not staged.
        self._proof.meet(messages, cutter.received_lsn)
        self.source.add(stretches)
        if messages.wants_reply():
            self._clock.reply()
        del messages, gulp, lengths  # the memory is the next gulp's
        connection.clear()

    async def _hold_off(self) -> None:
        """Leave the socket alone until what waits is staged."""
        self._wake.called.clear()
        self._facts.is_paused = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ROOM_S):
                    await self._wake.called.wait()
        finally:
            self._facts.is_paused = False
            self._facts.last_message_at = time.monotonic()


__all__ = ["StagedProgress", "Staging"]
