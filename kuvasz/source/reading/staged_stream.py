"""A source's stream as the staged log tells it: to a reader, in place of a connection to the source.

It begins where the lake is. What memory still has of it comes from there, and what came before that from objects.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Final

import numpy as np

from kuvasz import errors
from kuvasz.staging.retelling import Retelling
from kuvasz.staging.stream_messages import heard_at_most, keepalive

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.model import UInt32s
    from kuvasz.source.reading.following import Following
    from kuvasz.source.reading.staging import Staging

#: Slices that are fetched before the reader has heard those before them.
_AHEAD: Final = 2

_WAIT_S: Final = 0.05


class StagedStream:
    """The stream, as one connection of a reader hears it. Called on the loop.

    Large because it is a connection, which two ways lead to: what memory has, and what has to be fetched.

    Args:
        staging: What receives it.
    """

    is_local = False  #: no small buffer of a socket fills up between two looks

    def __init__(self, staging: Staging | Following) -> None:
        self._staging = staging
        self._source = staging.source
        self._from_lsn = self._source.applied
        self._retelling = Retelling(self._from_lsn)
        self._generation = self._source.generation
        self._past = self._source.past
        self._is_open = False  #: what was heard last goes on
        self._ended = 0  #: end LSN of the last transaction that was heard from memory
        self._number = 0  #: of the last stretch that was heard, or is fetched
        self._gulp: list[tuple[bytes, UInt32s]] = []
        self._fetched: collections.deque[tuple[bytes, UInt32s]] = collections.deque()
        self._fetching: asyncio.Task[None] | None = None
        self._called: Callable[[], None] = _nobody
        self._failure: errors.KuvaszError | None = None

    @classmethod
    async def open(cls, staging: Staging | Following) -> StagedStream:
        """Return the stream, as soon as its source is connected.

        Raises:
            KuvaszError: Its source is not, and why.
        """
        while not staging.is_receiving.is_set():
            if staging.error is not None:
                raise staging.error
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await staging.is_receiving.wait()
        staging.go_on()
        made = cls(staging)
        found = made._source.cursor(made._from_lsn)
        made._source.on_added = made._added
        if found is None:
            made._fetch()
        else:
            made._number = found
        return made

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the current gulp."""
        return sum(len(data) for data, _ in self._gulp)

    def drain(self, limit: int) -> int:
        """Add what is there to the gulp, until it has about `limit` bytes; return the bytes added.

        Raises:
            KuvaszError: The source is not received any more, or what was told of a transaction begins again.
        """
        if self._past != self._source.past:
            told = f"{errors.place_of(self._source.name)}: another server took over, or the coordinator was set back"
            raise errors.SourceError(told, hint="kuvasz goes on from where the lake is")
        added = 0
        while self.gathered_bytes < limit and (found := self._next()) is not None:
            if len(found[1]):
                self._gulp.append(found)
                added += len(found[0])
        if not added and not self._fetched:
            self._refuse()
        return added

    def _refuse(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_void(self._source.generation):
            place = errors.place_of(self._source.name)
            raise errors.SourceError(f"{place}: the source begins a transaction again", hint="so does kuvasz")
        if self._fetching is None and self._staging.error is not None:
            raise self._staging.error

    def _is_void(self, generation: int) -> bool:
        """Whether the parts that were heard of a transaction are given up."""
        return self._is_open and self._generation != generation

    def _next(self) -> tuple[bytes, UInt32s] | None:
        if self._fetched:
            return self._fetched.popleft()
        generation = self._source.generation  # before it is taken: it may be given up at once
        if self._fetching is not None or self._is_void(generation):
            return None
        found = self._source.after(self._number)
        if found is None:
            if self._number < self._source.dropped:
                self._fall_behind()
            return None
        self._number, self._is_open, self._ended = found.number, bool(found.open_lsn), found.ended
        self._generation = generation
        return self._retelling.tell(
            found.data, found.lengths, found.needs, describes=found.describes, open_lsn=found.open_lsn
        )  # fmt: skip

    def _fall_behind(self) -> None:
        """Go on with objects: the first of them may begin with what was heard from memory."""
        self._retelling.go_on(max(self._from_lsn, self._ended))
        self._fetch()

    def _fetch(self) -> None:
        self._fetching = asyncio.create_task(self._fetch_all(), name=f"fetch {self._source.name}")

    async def _fetch_all(self) -> None:
        """Fetch what memory has no more, until it goes on from there."""
        log, name = self._staging.log, self._source.name
        try:
            while self._number < (dropped := self._source.dropped):
                if not self._is_open:
                    self._generation = self._source.generation
                found = await asyncio.to_thread(log.slices, name, self._number, self._from_lsn)
                if self._is_void(self._source.generation):
                    break  # what was found may be of the same transaction, which begins again
                wanted = [one for one in found if one.first <= dropped]
                if wanted and self._is_open and wanted[0].first <= self._number:
                    place = errors.place_of(name)
                    raise errors.SourceError(f"{place}: it fell behind within a transaction", hint="it begins again")
                if not wanted:
                    self._number = dropped  # there was nothing of ours behind it
                for one in wanted:
                    content = await asyncio.to_thread(log.read, one)
                    while len(self._fetched) >= _AHEAD:  # noqa: ASYNC110 (told by nobody, and seldom)
                        await asyncio.sleep(_WAIT_S)
                    self._number, self._is_open = one.last, one.is_open
                    # How far its server had been heard then may be behind where another has gone on since.
                    data = heard_at_most(content.data, content.lengths, 0)
                    told = self._retelling.tell(
                        data, content.lengths, content.needs, open_lsn=one.through - 1 if one.is_open else 0
                    )
                    self._fetched.append(told)
                    self._called()
            self._hear_out()
        except errors.KuvaszError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 (told by whoever hears the stream)
            self._failure = errors.InternalError(f"{errors.place_of(name)}: {error!r}")
        else:
            self._fetching = None
        self._called()

    def _hear_out(self) -> None:
        """Have it said how far the server was heard, where no message of it says so: another process keeps those."""
        known = self._source.known
        if self._staging.log.follower is not None and not self._is_open and known.number == self._number:
            said = keepalive(known.lsn)
            self._fetched.append((said, np.array([len(said)], np.uint32)))

    def _added(self) -> None:
        self._called()

    def gulp(self) -> tuple[bytes, UInt32s]:
        """Return the payloads gathered and their lengths; valid until `clear`."""
        if len(self._gulp) != 1:
            lengths = [lengths for _, lengths in self._gulp] or [np.zeros(0, np.uint32)]
            self._gulp = [(b"".join(data for data, _ in self._gulp), np.concatenate(lengths))]
        return self._gulp[0]

    def clear(self) -> None:
        """Start a new gulp."""
        self._gulp = []

    def watch(self, told: Callable[[], None]) -> None:
        """Have a function called as soon as there is more to drain, until `unwatch`."""
        self._called = told

    def unwatch(self) -> None:
        """Have it called no more."""
        self._called = _nobody

    def send_status(self, *, written: int, flushed: int, is_reply_wanted: bool = False) -> None:  # noqa: ARG002
        """Take note of what the lake has: it is needed no more."""
        self._source.has(flushed, self._past)
        if is_reply_wanted:
            self._staging.ask()

    async def finish(self, timeout_s: float = 2.0) -> None:  # noqa: ARG002 (as a connection's)
        """See `close`."""
        self.close()

    def close(self) -> None:
        """Hear no more."""
        if self._fetching is not None:
            self._fetching.cancel()
        if self._source.on_added == self._added:
            self._source.on_added = _nobody


def _nobody() -> None: ...


__all__ = ["StagedStream"]
