"""The reader of one source: its slot's stream, in gulps, to the workers' inboxes.

It owns the replication slot and the connection, and does as little as it can per message: the ceiling is
PostgreSQL's own walsender. What it owes the others:

- the server: a status update at least every `status_interval_s`, and every second while there is something new to
  confirm, also while blocked by the memory budget (invariant 8); never an LSN that is not durable (invariant 1);
- the workers: whole transactions in commit order, each delivery registered with `Progress` before it is put;
- the loop: no blocking call. Types that are not built in are looked up in a thread.

Everything that passes is tried again for ever, with backoff; `SourceRefused` and `SlotLost` end `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import logging
import random
import time
from typing import TYPE_CHECKING, TypeVar

from kuvasz import errors, failpoints, lsn
from kuvasz.backoff import Backoff
from kuvasz.route import scan
from kuvasz.route.assembler import Assembler, Follow, OnTruncate, TypeLookup
from kuvasz.source import continuity
from kuvasz.source.connection import Connection, SystemIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from kuvasz.model import Applied, Delivery, UInt8s, UInt32s
    from kuvasz.ports import Inbox, Routes
    from kuvasz.state.budget import Budget
    from kuvasz.state.progress import Progress
    from kuvasz.state.source_record import SourceRecordFile

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Times as long as it took to route the last gulp, the next one gathers: each costs something for every table in it.
_GATHERING_TO_ROUTING = 10

#: Shorter than this the loop's own overhead is the pause.
_SHORTEST_PAUSE_S = 0.0001


class ReaderState(enum.Enum):
    """What a reader is doing."""

    CONNECTING = "connecting"
    STREAMING = "streaming"
    WAITING = "waiting"  #: after a failure, for the next attempt
    STOPPED = "stopped"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What may be tuned; the defaults are meant to stay.

    The pauses were measured with benchmarks/micro_reader.py. A walsender makes a system call for each row; while the
    receiver's window is open, each is a packet, and often a context switch. A reader that leaves the socket alone for
    longer than its buffer takes to fill lets the rows gather in the sender's, in large packets, at half the price.
    Pauses that are too short to get there (5 ms) are worth little more than none.
    """

    status_interval_s: float = 10.0  #: between status updates when nothing changed
    confirm_interval_s: float = 1.0  #: between status updates when the confirmable LSN moved
    silence_timeout_s: float = 60.0  #: without a byte from the server the connection is taken for dead
    spill_bytes: int = 32 << 20  #: of one open transaction, before it is handed on in parts
    gulp_bytes: int = 4 << 20  #: at which a gulp is routed
    gulp_s: float = 0.02  #: after which a gulp is routed while data flows
    longest_gulp_s: float = 0.2  #: the same where routing takes long, as it does over many tables
    longest_pause_s: float = 0.02  #: between two looks at the socket while data flows
    look_bytes: int = 1 << 20  #: what a look at a TCP socket should find: the pauses adapt to it
    local_look_bytes: int = 32 << 10  #: the same for a UNIX socket, whose buffers are small
    quiet_bytes: int = 4096  #: a look that finds less than this is routed at once and followed by no pause
    first_backoff_s: float = 0.5
    last_backoff_s: float = 30.0

    def gather_s(self, routing_s: float) -> float:
        """Return how long the next gulp gathers, by what routing the last one took."""
        return min(max(_GATHERING_TO_ROUTING * routing_s, self.gulp_s), self.longest_gulp_s)


class _Pause:
    """How long to leave the socket alone while data flows.

    Long enough that a look finds a good deal, and short enough that the server never waits for room in the socket's
    buffer: the pause follows from what the last look found.
    """

    def __init__(self, options: ReaderOptions, *, is_local: bool) -> None:
        self._longest_s = options.longest_pause_s
        self._aim_bytes = options.local_look_bytes if is_local else options.look_bytes
        self._pause_s = min(0.001, self._longest_s)

    def after(self, found_bytes: int) -> float:
        """Return the pause, in seconds, after a look that found so many bytes."""
        change = min(max(self._aim_bytes / found_bytes, 0.25), 2.0)
        self._pause_s = min(max(self._pause_s * change, _SHORTEST_PAUSE_S), self._longest_s)
        return self._pause_s if self._pause_s > _SHORTEST_PAUSE_S else 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where a reader's changes come from."""

    source: str  #: name of the source
    conninfo: str = dataclasses.field(repr=False)  #: libpq's, of a replication session (`kuvasz.source.conninfo`)
    slot: str
    publications: Sequence[str]
    system_id: str | None = None  #: the cluster the lake's positions belong to; None accepts any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """Where they go."""

    routes: Routes  #: says which worker applies a relation; may be called from a thread
    inboxes: Sequence[Inbox]  #: one per worker
    progress: Progress  #: where deliveries are registered and what may be confirmed is read
    budget: Budget  #: bytes in flight; the reader adds each delivery's bytes, the worker removes them


class Reader:
    """One source's reader. `run` is its task; everything else is called from the same loop.

    Args:
        upstream: Where changes come from.
        downstream: Where they go.
        types: Resolves type oids; may block, a Relation message is routed in a thread.
        follow: Told of every Relation message, in the same thread (`kuvasz.route.assembler.Assembler`).
        on_truncate: Told of every TRUNCATE, in the same thread.
        on_described: Called in the same thread when all Relation messages of a gulp were taken.
        standing: What is known of the source from earlier connections; None compares nothing.
        applied_lsn: Tells how far the source is in the lake.
        applied: Tells the last transaction that each of its tables has in the lake.
        options: What may be tuned.
    """

    def __init__(  # noqa: PLR0913 - the neighbours of a stage are its parameters
        self,
        upstream: Upstream,
        downstream: Downstream,
        types: TypeLookup,
        *,
        follow: Follow | None = None,
        on_truncate: OnTruncate | None = None,
        on_described: Callable[[], None] = lambda: None,
        standing: SourceRecordFile | None = None,
        applied_lsn: Callable[[], int] = lambda: 0,
        applied: Callable[[], Iterable[Applied]] = lambda: (),
        options: ReaderOptions | None = None,
    ) -> None:
        self.source = upstream.source
        self.state = ReaderState.CONNECTING
        self.error: errors.KuvaszError | None = None  #: the last one; None once the stream flows again
        self.bytes = 0  #: received, with the protocol's headers
        self.messages = 0  #: received
        self.confirmed_lsn = 0  #: last sent to the server
        self.last_message_at: float | None = None  #: monotonic time of the last bytes from the server
        self.last_status_at: float | None = None  #: monotonic time of the last status update
        self.epoch = 0  #: number of the connection
        self.timeline: int | None = None
        self.is_paused = False  #: blocked by the memory budget
        self.retry_at: float | None = None  #: monotonic time of the next attempt, while waiting for it
        self._upstream = upstream
        self._inboxes = downstream.inboxes
        self._progress = downstream.progress
        self._budget = downstream.budget
        self._on_described = on_described
        self._standing = standing
        self._applied_lsn = applied_lsn
        self._applied = applied
        self._options = options or ReaderOptions()
        self._random = random.Random()  # noqa: S311 - jitter
        self._assembler = Assembler(
            self.source, downstream.routes, types, self._options.spill_bytes, follow=follow, on_truncate=on_truncate
        )
        self._connection: Connection | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._patience: asyncio.Timeout | None = None
        self._failure: errors.SourceError | None = None
        self._status_interval_s = self._options.status_interval_s
        self._gulp_began_at = 0.0
        self._gulp_s = self._options.gulp_s
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_quiescing = False
        self._is_rewinding = False

    @property
    def rows(self) -> int:
        """Row messages handed to the workers."""
        return self._assembler.rows

    @property
    def dropped_rows(self) -> int:
        """Row messages of tables that the map does not want."""
        return self._assembler.dropped_rows

    @property
    def transactions(self) -> int:
        """Transactions received."""
        return self._assembler.transactions

    @property
    def received_lsn(self) -> int:
        """How far the source has been heard out on this connection."""
        return self._assembler.received_lsn

    @property
    def commit_us(self) -> int | None:
        """Commit time of the last transaction delivered, µs since 2000-01-01 UTC."""
        return self._assembler.commit_us

    async def run(self) -> None:
        """Stream until `stop`; an `asyncio.CancelledError` leaves without the last status update.

        Raises:
            SourceRefused: The source needs SQL by a human.
            SlotLost: The stream cannot be continued; also when another cluster answers.
        """
        backoff = Backoff(self._options.first_backoff_s, self._options.last_backoff_s)
        try:
            while not self._has_to_stop():
                self._is_rewinding = False
                heard = self.bytes
                try:
                    async with self._streaming() as connection:
                        await self._stream(connection)
                except errors.KuvaszError as error:
                    if self._has_to_stop():
                        break
                    self._tell(error)
                    if error.retry is errors.Retry.HUMAN and isinstance(error, errors.SourceError):
                        raise
                    if self.bytes > heard:
                        backoff.reset()
                    await self._wait(backoff.next_s(self._random.random()))
        finally:
            self.state = ReaderState.STOPPED

    def quiesce(self) -> None:
        """Stop reading but keep confirming: the first step of a shutdown."""
        self._is_quiescing = True
        self._wake.set()

    def stop(self) -> None:
        """Send a last status update with what is durable, close, and end `run`."""
        self._is_stopping = True
        self._wake.set()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def rewind(self) -> None:
        """Reconnect and read again from the confirmed LSN on."""
        self._is_rewinding = True
        self._wake.set()

    @property
    def _is_leaving(self) -> bool:
        return self._is_stopping or self._is_rewinding or self._failure is not None

    def _has_to_stop(self) -> bool:
        return self._is_stopping

    def _tell(self, error: errors.KuvaszError) -> None:
        self.error = error
        self.state = ReaderState.WAITING
        facts = {"event": "reader.failed", "source": self.source, "epoch": self.epoch, "reason": str(error)}
        _log.warning("stream of a source failed", extra=facts)

    async def _wait(self, delay_s: float) -> None:
        """Wait, or until stopped."""
        self.retry_at = deadline = time.monotonic() + delay_s
        while not self._is_stopping and (rest_s := deadline - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._wake.wait()
        self.retry_at = None

    @contextlib.asynccontextmanager
    async def _streaming(self) -> AsyncIterator[Connection]:
        """A connection in COPY_BOTH mode with its status clock running."""
        self.state = ReaderState.CONNECTING
        self.epoch += 1
        self._assembler.reset(self.epoch)
        self._progress.restarted(self.source, self.epoch)
        self._failure = None
        connection = await self._unless_stopped(Connection.open(self._upstream.conninfo, self.source))
        try:
            async with asyncio.timeout(self._options.silence_timeout_s):
                await self._unless_stopped(self._greet(connection))
            self._connection = connection
            self.state, self.last_message_at = ReaderState.STREAMING, time.monotonic()
            facts = {"event": "reader.streaming", "source": self.source, "epoch": self.epoch}
            _log.info("stream of a source begins", extra=facts)
            self._tick()
            yield connection
            self._send_status()
            await connection.finish()
        except TimeoutError as error:
            message = f"{self.source}: the server does not answer within {self._options.silence_timeout_s:g} s"
            raise errors.SourceError(message, hint="kuvasz reconnects by itself") from error
        finally:
            self._connection = None
            if self._clock is not None:
                self._clock.cancel()
            connection.close()

    async def _unless_stopped(self, step: Coroutine[object, object, T]) -> T:
        """Take a step of the connecting, which `stop` cuts short."""
        try:
            async with asyncio.timeout(0 if self._is_stopping else None) as self._patience:
                return await step
        except TimeoutError:
            if not self._is_stopping:
                raise
            raise errors.SourceError(f"{self.source}: stopped while connecting") from None
        finally:
            self._patience = None

    async def _greet(self, connection: Connection) -> None:
        identity = await connection.identify_system()
        expected = self._upstream.system_id
        if expected is not None and identity.system_id != expected:
            raise errors.SourceReplaced(
                f"{self.source}: cluster {identity.system_id} answers, not {expected}",
                hint="check the url; if the cluster was replaced, copy the source again (kuvasz resync)",
            )
        await self._compare(connection, identity)
        self.timeline = identity.timeline
        timeout_s = await connection.wal_sender_timeout_s()
        wanted_s = self._options.status_interval_s
        # The server drops who is silent for its wal_sender_timeout; while paused we do not hear it ask.
        self._status_interval_s = min(wanted_s, timeout_s / 3) if timeout_s > 0 else wanted_s
        await connection.start_replication(self._upstream.slot, *self._upstream.publications)

    async def _compare(self, connection: Connection, identity: SystemIdentity) -> None:
        """Make sure that the source goes on from where it was left.

        Raises:
            SlotLost: It does not.
        """
        if self._standing is None:
            return
        known = self._standing.standing
        # What is about to be confirmed counts as well.
        confirmable = max(known.confirmed_lsn, self._progress.confirmable(self.source))
        is_later = 0 < known.timeline < identity.timeline
        server = continuity.ServerState(
            system_id=identity.system_id,
            timeline=identity.timeline,
            wal_lsn=identity.flush_lsn,
            slot_name=self._upstream.slot,
            slot=await connection.slot(self._upstream.slot),
            switches=await connection.timeline_switches(identity.timeline) if is_later else None,
        )
        # What is on its way to the lake counts as there: it will be.
        applied_lsn = max(self._applied_lsn(), self._progress.routed_lsn(self.source))
        compared = dataclasses.replace(known, confirmed_lsn=confirmable)
        lost = continuity.lost(self.source, compared, applied_lsn, server, self._standing.path)
        if lost is not None:
            raise lost
        # What the slot was not told comes again, so the source can prove that it still has what the lake has.
        from_lsn = 0 if server.slot is None else server.slot.confirmed_flush_lsn or 0
        self._assembler.expect(one for one in self._applied() if one.commit_lsn >= from_lsn)
        if continuity.is_rewound(known, server) and server.slot is not None:
            # What was confirmed to the old primary may lie beyond the WAL of this one.
            known = dataclasses.replace(known, confirmed_lsn=from_lsn)
            self._progress.begin_anew(self.source, known.confirmed_lsn)
            self.confirmed_lsn = known.confirmed_lsn
        self._standing.update(dataclasses.replace(known, system_id=identity.system_id, timeline=identity.timeline))

    async def _stream(self, connection: Connection) -> None:
        pause = _Pause(self._options, is_local=connection.is_local)
        while not self._is_leaving:
            if self._is_quiescing or self._budget.is_full:
                await self._hold_off()
                continue
            added = connection.drain(self._options.gulp_bytes)
            if added:
                self._hear(connection, added)
            if self._is_due(connection, added):
                await self._route(connection)
            if added >= self._options.quiet_bytes:
                await asyncio.sleep(pause.after(added))
            elif added == 0:
                await self._readable(connection)
            else:
                await asyncio.sleep(0)
        if self._failure is not None:
            raise self._failure

    def _hear(self, connection: Connection, added: int) -> None:
        self.last_message_at = time.monotonic()
        if connection.gathered_bytes == added:
            self._gulp_began_at = self.last_message_at
        self.bytes += added
        self.error = None

    def _is_due(self, connection: Connection, added: int) -> bool:
        """Whether to route the gulp now: it is large, it is old, or nothing more is coming."""
        gathered = connection.gathered_bytes
        if gathered == 0:
            return False
        is_old = time.monotonic() - self._gulp_began_at >= self._gulp_s
        return added < self._options.quiet_bytes or gathered >= self._options.gulp_bytes or is_old

    async def _route(self, connection: Connection) -> None:
        gulp, lengths = connection.gulp()
        self.messages += len(lengths)
        view = scan.frozen_view(gulp)
        if scan.has_relation(view, lengths):
            # Its types may have to be asked for. A cancellation in here leaves a half-routed gulp behind: the
            # assembler is reset before the next connection.
            loop = asyncio.get_running_loop()
            deliveries = await loop.run_in_executor(None, self._feed_described, view, lengths)
        else:
            begin = time.monotonic()
            deliveries = self._assembler.feed(view, lengths)
            self._gulp_s = self._options.gather_s(time.monotonic() - begin)
        del view, gulp
        connection.clear()
        for worker, delivery in deliveries:
            self._progress.routed(self.source, worker, delivery.through)
        for worker, delivery in deliveries:
            self._budget.add(delivery.bytes)
            self._inboxes[worker].put(delivery)
        self._progress.received(self.source, self._assembler.received_lsn)
        if self._assembler.take_reply_wanted():
            self._send_status()

    def _feed_described(self, gulp: UInt8s, lengths: UInt32s) -> list[tuple[int, Delivery]]:
        try:
            return self._assembler.feed(gulp, lengths)
        finally:
            self._on_described()

    async def _readable(self, connection: Connection) -> None:
        """Wait until the socket has something to read, or something changed."""
        loop = asyncio.get_running_loop()
        self._wake.clear()
        if self._is_leaving or self._is_quiescing:
            return
        loop.add_reader(connection.fileno, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(connection.fileno)

    async def _hold_off(self) -> None:
        """Leave the socket alone until the budget has room or the reader is told to leave."""
        loop = asyncio.get_running_loop()
        self._wake.clear()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        if not self._is_quiescing:
            self._budget.when_room(wake)
        self.is_paused = True
        try:
            if not self._is_leaving:
                await self._wake.wait()
        finally:
            self.is_paused = False
            self._budget.forget(wake)
            self.last_message_at = time.monotonic()  # silence while we did not listen is not the server's

    def _tick(self) -> None:
        """The status clock: runs beside whatever the stream is waiting for."""
        loop = asyncio.get_running_loop()
        self._clock = loop.call_later(self._tick_interval_s, self._tick)
        now = time.monotonic()
        since_status_s = now - (self.last_status_at or 0.0)
        is_news = self._confirmable_lsn() > self.confirmed_lsn
        silence_s = 0.0 if self.is_paused else now - (self.last_message_at or now)
        if silence_s > self._options.silence_timeout_s:
            message = f"{self.source}: nothing came from the server for {silence_s:.0f} s"
            self._fail(errors.SourceError(message, hint="kuvasz reconnects by itself"))
        elif is_news or since_status_s >= self._status_interval_s:
            # A reply is wanted early enough to come before the silence is called death.
            self._send_status(is_reply_wanted=silence_s > min(10.0, self._options.silence_timeout_s / 3))

    @property
    def _tick_interval_s(self) -> float:
        return min(self._options.confirm_interval_s, self._status_interval_s)

    def _send_status(self, *, is_reply_wanted: bool = False) -> None:
        connection = self._connection
        if connection is None:
            return
        confirmable = self._confirmable_lsn()
        try:
            failpoints.hit("before_status", errors.SourceError)
            if self._standing is not None:
                self._standing.confirming(confirmable)
            connection.send_status(written=self.received_lsn, flushed=confirmable, is_reply_wanted=is_reply_wanted)
            failpoints.hit("after_status", errors.SourceError)
        except errors.SourceError as error:
            self._fail(error)
            return
        self.last_status_at = time.monotonic()
        if confirmable > self.confirmed_lsn:
            facts = {"event": "reader.confirmed", "source": self.source, "lsn": lsn.render(confirmable)}
            _log.debug("confirmed to a source", extra=facts)
        self.confirmed_lsn = confirmable

    def _confirmable_lsn(self) -> int:
        """Return what may be confirmed: nothing behind a transaction by which the source has yet to prove itself."""
        confirmable, unproven = self._progress.confirmable(self.source), self._assembler.unproven_lsn
        return confirmable if unproven is None else min(confirmable, unproven)

    def _fail(self, error: errors.SourceError) -> None:
        self._failure = error
        self._wake.set()


__all__ = ["Downstream", "Reader", "ReaderOptions", "ReaderState", "Upstream"]
