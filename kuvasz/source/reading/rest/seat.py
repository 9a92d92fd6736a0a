"""One source's seat among those that are looked at together: what a look brings reaches its assembler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz import errors
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.model import Delivery, Int64s, UInt8s, UInt32s
    from kuvasz.route.assembler import Assembler
    from kuvasz.route.many import FoundGulp
    from kuvasz.source.drain.plain import SharedDrain
    from kuvasz.source.reading.connection import Connection
    from kuvasz.source.reading.facts import ReaderFacts
    from kuvasz.source.reading.gulps import Gulps
    from kuvasz.source.reading.status_clock import StatusClock
    from kuvasz.source.reading.wake_up import WakeUp

_log = EventLog(__name__)

_NOTHING: Sequence[tuple[int, Delivery]] = ()


class Seat:
    """The seat of one connection. Called on the loop, while the reader itself leaves the connection alone.

    Args:
        source: Name of the source.
        connection: Its connection.
        drain: What takes messages from that.
        assembler: Routes them.
        gulps: Goes on with what is no small gulp.
        facts: Told what came.
        clock: Told when the server wants an answer.
        wake: Told when the reader itself has to look.
    """

    def __init__(
        self,
        source: str,
        connection: Connection,
        drain: SharedDrain,
        assembler: Assembler,
        gulps: Gulps,
        facts: ReaderFacts,
        clock: StatusClock,
        wake: WakeUp,
    ) -> None:
        self.source = source
        self.fileno = connection.fileno
        self.drain = drain
        self._connection = connection
        self._assembler = assembler
        self._gulps = gulps
        self._facts = facts
        self._clock = clock
        self._wake = wake

    def take(self, found: FoundGulp, size: int, now: float) -> Sequence[tuple[int, Delivery]] | None:
        """Take a small gulp; None if that cannot be, and it is to be handed to the reader.

        Args:
            found: What it holds.
            size: Its bytes.
            now: Monotonic seconds.
        """
        try:
            self._connection.took(size)
            deliveries = self._assembler.take(found)
        except Exception as error:  # noqa: BLE001 (it is of this source: others are looked at with it)
            self.fail(error)
            return _NOTHING
        if deliveries is None:
            return None
        facts = self._facts
        facts.last_message_at, facts.error = now, None
        facts.bytes += size
        if not found.transactions:
            facts.keepalive_bytes += size
        return deliveries

    def hand_over(self, payloads: UInt8s, lengths: UInt32s, pending: Int64s) -> None:
        """Have the reader itself go on with what was taken from the connection."""
        self.drain.hold(payloads, lengths, pending)
        if len(lengths):
            self._gulps.hear(self._connection, len(payloads))
        self.wake()

    def wake(self) -> None:
        """Have the reader itself look."""
        self._wake.called.set()

    def fail(self, error: Exception) -> None:
        """Have the connection end with an error."""
        if not isinstance(error, errors.KuvaszError):
            _log.tell(Event.SOURCE_UNFORESEEN, source=self.source, error=str(error))
            error = errors.mistake_at(self.source, error)
        self._wake.fail(error)

    @property
    def is_called(self) -> bool:
        """Whether the reader itself is to look, or does."""
        return self._wake.called.is_set()

    @property
    def received_lsn(self) -> int:
        """Up to where the source has been heard out."""
        return self._assembler.received_lsn

    def reply(self) -> bool:
        """Answer the server if it asked; returns whether it did."""
        if not self._assembler.take_reply_wanted():
            return False
        self._clock.reply()
        return True


__all__ = ["Seat"]
