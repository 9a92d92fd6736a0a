"""Looks at the sockets of all sources that bring little, together.

One call tells which sockets have something, one takes what has arrived at these, one reads it, and one notes how far
each source was heard. What a source costs then is what it brings. A look at each of a hundred by itself, at the same
beat, was a task that woke, a timer, and some fifteen calls with arrays, for a keepalive of eighteen bytes.

Looks go by the beat of `ReaderOptions`. When some of them have found nothing, the sockets are asked to tell: what
comes to a fleet at rest is heard at once. Whatever is no small gulp (`kuvasz.route.many`) is handed to the source's
own reader, which waits meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import time
from typing import TYPE_CHECKING, Final, Protocol

from kuvasz.route import many
from kuvasz.source.drain import together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kuvasz.model import Delivery, Int64s, UInt8s, UInt32s
    from kuvasz.ports import Inbox
    from kuvasz.route.many import FoundGulp
    from kuvasz.source.drain.plain import SharedDrain
    from kuvasz.source.drain.together import TakenMessages
    from kuvasz.source.reading.options import ReaderOptions
    from kuvasz.state.budget import Budget
    from kuvasz.state.progress import Progress

#: Looks that find nothing, before the sockets are asked to tell.
_EMPTY_LOOKS: Final = 4

#: Seconds until a source is looked at again that wanted an answer: a server that is shutting down asks once more.
_ASKED_S: Final = 0.05


class RoundSeat(Protocol):
    """A source that is looked at together with others; see `kuvasz.source.reading.rest.seat.Seat`."""

    source: str
    fileno: int
    drain: SharedDrain

    def take(self, found: FoundGulp, size: int, now: float) -> Sequence[tuple[int, Delivery]] | None:
        """Take a small gulp of so many bytes; None if that cannot be, and it is to be handed over."""

    def hand_over(self, payloads: UInt8s, lengths: UInt32s, pending: Int64s) -> None:
        """Have the reader itself go on with what was taken from the connection; see `SharedDrain.hold`."""

    def wake(self) -> None:
        """Have the reader itself look."""

    def fail(self, error: Exception) -> None:
        """Have the connection end with an error."""

    @property
    def is_called(self) -> bool:
        """Whether the reader itself is to look, or does."""

    @property
    def received_lsn(self) -> int:
        """Up to where the source has been heard out."""

    def reply(self) -> bool:
        """Answer the server if it asked; returns whether it did."""


class Rounds:
    """The looks of one process, on one loop.

    Args:
        progress: Where deliveries are registered, and told how far sources are heard.
        budget: Counts the bytes of what is delivered.
        inboxes: One for each worker; may become more.
    """

    def __init__(self, progress: Progress, budget: Budget, inboxes: Sequence[Inbox]) -> None:
        self._progress = progress
        self._budget = budget
        self._inboxes = inboxes
        self._seats: dict[int, RoundSeat] = {}  # by the number of the socket
        self._selector: selectors.BaseSelector | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._is_told = False  # whether the loop watches the selector
        self._empty_looks = 0
        self._options: ReaderOptions | None = None

    @contextlib.contextmanager
    def attended(self, seat: RoundSeat, options: ReaderOptions) -> Iterator[None]:
        """Have a connection looked at.

        Args:
            seat: The seat of it.
            options: The beat.
        """
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
        self._options = options
        self._selector.register(seat.fileno, selectors.EVENT_READ, seat)
        self._seats[seat.fileno] = seat
        self._arrange()
        try:
            yield
        finally:
            self._let_go(seat)

    def _let_go(self, seat: RoundSeat) -> None:
        """Look at a connection no more, unless that is so: its reader does."""
        if self._seats.get(seat.fileno) is not seat or self._selector is None:
            return
        del self._seats[seat.fileno]
        self._selector.unregister(seat.fileno)
        if not self._seats:
            self._stop_waiting()
            self._selector.close()
            self._selector = None

    def _stop_waiting(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._is_told and self._selector is not None:
            asyncio.get_running_loop().remove_reader(self._selector)  # type: ignore[arg-type] # as below
            self._is_told = False

    def _arrange(self) -> None:
        """Have the next look come, if none is to."""
        if self._beat is not None or self._is_told or self._selector is None or self._options is None:
            return
        loop = asyncio.get_running_loop()
        if self._empty_looks < _EMPTY_LOOKS:
            self._beat = loop.call_at(self._options.beat(loop.time() + self._options.rest_s / 2), self._look)
        else:
            self._is_told = True
            loop.add_reader(self._selector, self._look)  # type: ignore[arg-type] # it has a number

    def _look(self) -> None:
        """Look at all of them."""
        self._stop_waiting()
        if self._selector is not None:
            ready = [key.data for key, _ in self._selector.select(0)]
            self._empty_looks = 0 if ready else self._empty_looks + 1
            self._look_on(ready)
        self._arrange()

    def _look_on(self, ready: Sequence[RoundSeat]) -> None:
        """Take what has arrived at some, so many at a time that nobody else waits long for the loop."""
        some, left = ready[: together.MOST_AT_ONCE], ready[together.MOST_AT_ONCE :]
        if left:
            asyncio.get_running_loop().call_soon(self._look_on, left)
        for seat in some:
            if self._budget.is_full_for(seat.source):
                seat.wake()
        # Not those whose readers look, or are about to.
        seats = [seat for seat in some if self._seats.get(seat.fileno) is seat and not seat.is_called]
        try:
            if seats:
                self._route(seats, together.take([seat.drain for seat in seats]))
        except Exception as error:  # noqa: BLE001 (what was taken is nowhere: it has to come again)
            for seat in seats:
                seat.fail(error)
        for seat in some:
            if seat.is_called:
                self._let_go(seat)

    def _route(self, seats: Sequence[RoundSeat], taken: TakenMessages) -> None:
        message_end, byte_end = int(taken.message_ends[-1]), int(taken.byte_ends[-1])
        payloads, lengths = taken.payloads[:byte_end], taken.lengths[:message_end]
        found = many.read(payloads, lengths, taken.message_ends)
        heard: list[RoundSeat] = []
        came: list[tuple[RoundSeat, Sequence[tuple[int, Delivery]]]] = []
        now = time.monotonic()
        ends = zip(taken.message_ends.tolist(), taken.byte_ends.tolist(), strict=True)
        message = byte = 0
        for number, (seat, gulp, (message_end, byte_end)) in enumerate(zip(seats, found, ends, strict=True)):
            size = byte_end - byte
            deliveries = None
            if gulp is not None and taken.is_all[number]:
                deliveries = seat.take(gulp, size, now) if size else ()
            if deliveries is None:
                parts = payloads[byte:byte_end], lengths[message:message_end], taken.pending[number]
                seat.hand_over(*parts)
            elif size and not seat.is_called:  # what failed on its way is not heard, however far it got
                heard.append(seat)
                if deliveries:
                    came.append((seat, deliveries))
            message, byte = message_end, byte_end
        self._deliver(heard, came)

    def _deliver(
        self, heard: Sequence[RoundSeat], came: Sequence[tuple[RoundSeat, Sequence[tuple[int, Delivery]]]]
    ) -> None:
        """Hand on what sources delivered, and let it be known how far they were heard."""
        routed = [(seat.source, worker, one.through) for seat, deliveries in came for worker, one in deliveries]
        self._progress.heard(routed, [(seat.source, seat.received_lsn) for seat in heard])
        by_worker: dict[int, list[Delivery]] = {}
        for seat, deliveries in came:
            for worker, one in deliveries:
                self._budget.add(seat.source, one.bytes)
                by_worker.setdefault(worker, []).append(one)
        for worker, delivered in by_worker.items():
            self._inboxes[worker].put(*delivered)
        asked = [seat for seat in heard if seat.reply()]
        if asked:
            asyncio.get_running_loop().call_later(_ASKED_S, self._look_on, asked)


__all__ = ["RoundSeat", "Rounds"]
