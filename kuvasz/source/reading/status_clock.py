"""The status clock of a reader: the server hears what is durable, and that we live, whatever the stream waits for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kuvasz import errors, failpoints, lsn
from kuvasz.events import Event, EventLog
from kuvasz.source.reading.shutdown import ShutdownWatch

if TYPE_CHECKING:
    from kuvasz.source.reading.ends import Durability, StatusSink, StreamProof
    from kuvasz.source.reading.facts import ReaderFacts
    from kuvasz.source.reading.options import ReaderOptions
    from kuvasz.source.reading.wake_up import WakeUp
    from kuvasz.state.ports import StoredRecord

_log = EventLog(__name__)


class StatusClock:
    """The status clock of one reader. Called on the loop.

    Args:
        source: Name of the source.
        options: How often.
        facts: When the server was heard last, and what it was told.
        progress: What may be confirmed.
        assembler: What was received.
        record: Where what is confirmed stands before it is told; None: nowhere.
        wake: Told when the connection is dead.
    """

    def __init__(
        self,
        source: str,
        options: ReaderOptions,
        facts: ReaderFacts,
        progress: Durability,
        assembler: StreamProof,
        record: StoredRecord | None,
        wake: WakeUp,
    ) -> None:
        self._source = source
        self._options = options
        self._facts = facts
        self._progress = progress
        self._assembler = assembler
        self._record = record
        self._wake = wake
        self._shutdown = ShutdownWatch()
        self._interval_s = options.status_interval_s
        self._connection: StatusSink | None = None
        self._timer: asyncio.TimerHandle | None = None

    def keep_within(self, timeout_s: float) -> None:
        """Be heard often enough for a server's wal_sender_timeout; 0: it has none."""
        wanted_s = self._options.status_interval_s
        # The server drops who is silent for so long; while paused we do not hear it ask.
        self._interval_s = min(wanted_s, timeout_s / 3) if timeout_s > 0 else wanted_s

    def start(self, connection: StatusSink) -> None:
        """Tell the server from now on, until `stop`."""
        self._connection = connection
        self._shutdown = ShutdownWatch()
        self._tick()

    def stop(self) -> None:
        """Tell it nothing more."""
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + min(self._options.confirm_interval_s, self._interval_s)
        self._timer = loop.call_at(self._options.beat(due_s), self._tick)
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 (nobody else is told: the loop only prints it, each time)
            _log.tell(Event.SOURCE_UNFORESEEN, source=self._source, error=str(error))
            self._wake.fail(errors.mistake_at(self._source, error))

    def _look(self) -> None:
        """Tell the server, if that is due."""
        now = time.monotonic()
        since_status_s = now - (self._facts.last_status_at or 0.0)
        is_news = self._confirmable_lsn() > self._facts.confirmed_lsn
        silence_s = 0.0 if self._facts.is_paused else now - (self._facts.last_message_at or now)
        if silence_s > self._options.silence_timeout_s:
            message = f"{errors.place_of(self._source)}: nothing came from the server for {silence_s:.0f} s"
            self._wake.fail(errors.SourceError(message, hint="kuvasz reconnects by itself"))
        elif is_news or since_status_s >= self._interval_s:
            # A reply is wanted early enough to come before the silence is called death.
            self.send(is_reply_wanted=silence_s > min(10.0, self._options.silence_timeout_s / 3))

    def send(self, *, is_reply_wanted: bool = False) -> None:
        """Tell the server what is durable, if there is a connection."""
        connection = self._connection
        if connection is None:
            return
        confirmable = self._confirmable_lsn()
        try:
            failpoints.hit("before_status", errors.SourceError)
            if self._record is not None:
                self._record.confirming(confirmable)
            connection.send_status(
                written=self._assembler.received_lsn, flushed=confirmable, is_reply_wanted=is_reply_wanted
            )
            failpoints.hit("after_status", errors.SourceError)
        except errors.SourceError as error:
            self._wake.fail(error)
            return
        self._facts.last_status_at = time.monotonic()
        if confirmable > self._facts.confirmed_lsn:
            _log.tell(Event.STREAM_CONFIRMED, source=self._source, lsn=lsn.render(confirmable))
        self._facts.confirmed_lsn = confirmable

    def reply(self) -> None:
        """Answer a server that asks, unless it asks because it is shutting down and waits for this stream alone."""
        self.send()
        if self._shutdown.asked(time.monotonic(), self._assembler.received_lsn, self._facts.confirmed_lsn):
            what = "the server is shutting down, and waits for what is not in the lake yet"
            hint = "kuvasz reconnects, and what was not confirmed comes again"
            self._wake.fail(errors.SourceError(f"{errors.place_of(self._source)}: {what}", hint=hint))

    def _confirmable_lsn(self) -> int:
        """Return what may be confirmed: nothing behind a transaction by which the source has yet to prove itself."""
        confirmable, unproven = self._progress.confirmable(self._source), self._assembler.unproven_lsn
        return confirmable if unproven is None else min(confirmable, unproven)


__all__ = ["StatusClock"]
