"""What ends a reader's waiting: bytes that came, room in the budget, what it is told, and what fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, TypeVar

from kuvasz import errors

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

T = TypeVar("T")


class LoopEvent:
    """As `asyncio.Event`, which takes 900 bytes while nobody waits for it, in 48: there are thousands.

    Called on the loop; whether it is set can be seen from any thread.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: Sequence[asyncio.Future[None]] = ()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and have everybody go on who waits for it."""
        self._is_set = True
        waiting, self._waiting = self._waiting, ()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def clear(self) -> None:
        """Have the event be not set."""
        self._is_set = False

    def wait(self) -> asyncio.Future[None]:
        """Return what to await until it is set; it is done if it is set already."""
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_set:
            waits.set_result(None)
        else:
            self._waiting = (*(one for one in self._waiting if not one.done()), waits)
        return waits


class WakeUp:
    """The waiting of one reader, and what ends it. Called on the loop."""

    def __init__(self) -> None:
        self.called = LoopEvent()  #: something happened: clear it before looking, wait for it behind
        self.is_stopping = False
        self.is_quiescing = False
        self.is_rewinding = False
        self.failure: errors.KuvaszError | None = None  #: of the connection, found out beside the stream
        self._patience: asyncio.Timeout | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether the connection is to end."""
        return self.is_stopping or self.is_rewinding or self.failure is not None

    def quiesce(self) -> None:
        """Have nothing read any more."""
        self.is_quiescing = True
        self.called.set()

    def stop(self) -> None:
        """Have the connection end, or the connecting."""
        self.is_stopping = True
        self.called.set()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def rewind(self) -> None:
        """Have the connection end, and another one begin."""
        self.is_rewinding = True
        self.called.set()

    def fail(self, error: errors.KuvaszError) -> None:
        """Have the connection end with an error."""
        self.failure = error
        self.called.set()

    async def sleep_until(self, deadline: float) -> None:
        """Wait until a time, monotonic seconds, or until stopped."""
        while not self.is_stopping and (rest_s := deadline - time.monotonic()) > 0:
            self.called.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self.called.wait()

    async def unless_stopped(self, step: Coroutine[object, object, T], source: str) -> T:
        """Take a step of the connecting, which `stop` cuts short.

        Raises:
            SourceError: The step was cut short.
        """
        try:
            async with asyncio.timeout(0 if self.is_stopping else None) as self._patience:
                return await step
        except TimeoutError:
            if not self.is_stopping:
                raise
            raise errors.SourceError(f"{errors.place_of(source)}: stopped while connecting") from None
        finally:
            self._patience = None


__all__ = ["LoopEvent", "WakeUp"]
