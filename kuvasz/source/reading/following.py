"""What another process stages of a source, for the reader of this one: an order says what it is to receive.

In the place of `Staging`, which receives it here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from kuvasz import errors
from kuvasz.state.staged.orders import GivenOrder, KnownPast, StreamOrder

if TYPE_CHECKING:
    from kuvasz.source.reading.ends import StreamStart, Upstream
    from kuvasz.staging.apart.follower import LogFollower
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.staging.staged_source import StagedSource
    from kuvasz.state.staged.orders import StreamAnswer


class Following:
    """The following of one source. Called on the loop.

    Args:
        upstream: Where changes come from.
        log: Where they are staged.
        follower: Says how far they are.
        start: What proves to who receives them that nothing is missing.
    """

    answers = False  #: the server can be asked something through it

    def __init__(self, upstream: Upstream, log: StagedLog, follower: LogFollower, start: StreamStart) -> None:
        self.log = log
        self.source: StagedSource = log.source(upstream.source)
        self.error: errors.KuvaszError | None = None  #: why nothing comes behind what is staged by now
        self.source_error: errors.KuvaszError | None = None  #: the same, also while what is staged is heard still
        self.is_receiving = asyncio.Event()  #: there is something to hear, or will be
        self._upstream = upstream
        self._follower = follower
        self._start = start
        self._answer: StreamAnswer | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_over = False  #: the source is to be looked at again before anything more is heard of it
        self._given: GivenOrder | None = None  #: the order, and of which past the source was when it stood last

    async def arrange(self) -> None:
        """Have it received as this reader needs it, before any table counts on that.

        Raises:
            StateError: The coordinator does not answer.
            SourceError: A group of the log hears it, and it is not received so.
        """
        order, known = self._order(), self._known()
        await asyncio.to_thread(self.log.give, self.source.name, order, known)
        position = await asyncio.to_thread(self.log.look, self.source.name)
        self._given = None if position is None else GivenOrder(past=position.past, order=order, known=known)

    def _order(self) -> StreamOrder:
        record, upstream = self._start.record, self._upstream
        return StreamOrder(
            slot=upstream.slot, publications=tuple(upstream.publications), system_id=upstream.system_id or "",
            timeline=0 if record is None else record.standing.timeline, is_own_alone=upstream.is_own_alone,
        )  # fmt: skip

    def _known(self) -> KnownPast:
        start = self._start
        known = KnownPast(
            applied_lsn=start.applied_lsn(), applied=tuple(start.applied()), copied=tuple(start.copied())
        )
        return known if start.record is None else dataclasses.replace(known, standing=start.record.standing)

    def begin(self) -> None:
        """Begin to look whether there is more."""
        loop = asyncio.get_running_loop()

        def staged() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._look)

        self.log.listen(self._upstream.source, staged)
        self._look()

    def _look(self) -> None:
        if self._is_over:
            return
        if self.source.is_left:
            self._end("its stream is another one by now")
            return
        if self._given is not None and self._given.past != self.source.known.past:
            # Another process reads it, or a standby of the coordinator took over that was a moment behind.
            self._given = dataclasses.replace(self._given, past=self.source.known.past)
            self.go_on()
        answer = self._follower.answers.get(self.source.name)
        if answer is not None and answer.past == self.source.known.past and answer != self._answer:
            self._answer = answer
            if answer.is_receiving and not self._note(answer):
                self._end("its server was started anew, or is another one")
                return
        # What is staged is heard first, whatever became of its source.
        is_behind = self.source.applied < self.source.known.ended
        self.source_error = None if self._answer is None else self._answer.error
        self.error = None if is_behind else self.source_error
        if self.error is None:
            self.is_receiving.set()
        else:
            self.is_receiving.clear()
        self.source.on_added()

    def _end(self, why: str, error: errors.SourceError | None = None) -> None:
        """Have the source looked at again: of a group's lake what the first one knows of it says nothing."""
        self._is_over = True
        self.error = self.source_error = error or errors.SourceRefused(
            f"{errors.place_of(self.source.name)}: {why}", hint="kuvasz looks at it again, and goes on with it"
        )
        self.is_receiving.clear()
        self.source.on_added()

    def _note(self, answer: StreamAnswer) -> bool:
        """Keep what was found out about the server, as a handshake of this process does.

        Returns:
            Whether it may be heard further: a group compares another server itself.
        """
        record, found = self._start.record, answer.standing
        if self.log.group is not None:
            known = found if record is None else record.standing
            return (known.system_id, known.timeline, known.started_us) == (
                found.system_id, found.timeline, found.started_us,
            )  # fmt: skip
        if record is not None:
            record.update_soon(
                dataclasses.replace(
                    record.standing, system_id=found.system_id, timeline=found.timeline, started_us=found.started_us,
                    proved_lsn=found.proved_lsn, witness=found.witness, rest_xid=0,
                )
            )  # fmt: skip
        return True

    async def end(self) -> None:
        """Look no more; who receives it goes on."""
        self.log.unlisten(self._upstream.source)
        if self._telling is not None:
            self._telling.cancel()

    def go_on(self) -> None:
        """Tell what the lake has by now, for the next connection; called when the stream is heard anew."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name=f"order {self._upstream.slot}")

    async def _tell(self) -> None:
        order, known, name = self._order(), self._known(), self.source.name
        with contextlib.suppress(errors.StateError):  # what was told before holds as well
            # Its thread outlives who began it: by then the order may be withdrawn, or another one given.
            if await asyncio.to_thread(self.log.give, name, order, known, is_again=True):
                return
            other = await asyncio.to_thread(self.log.standing_order, name)
            given = other if self._given is None else self._given.order
            if other is not None and given is not None and other != given:  # nobody else gives one meanwhile
                self._end("the coordinator was set back, and has another order", _unread(name, given, other))

    def ask(self) -> None:
        """Ask nothing: an answer would take the way of all that is staged."""


def _unread(source: str, order: StreamOrder, other: StreamOrder) -> errors.SlotLost | None:
    """Return the error of a source that was read by another order for a while, if that may have left changes out."""
    missing = [f"publication {name}" for name in order.publications if name not in other.publications]
    if other.is_own_alone and not order.is_own_alone:
        missing.append("what came there by replication")
    if not missing:
        return None
    return errors.SlotLost(
        f"{errors.place_of(source)}: the coordinator was set back to an earlier order, and it was read without"
        f" {' and '.join(missing)}: changes may be missing",
        hint=errors.start_over(source),
    )


__all__ = ["Following"]
