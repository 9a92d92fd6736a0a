"""Which tables of one source are to be looked at anew: at once, or after a while."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from kuvasz.backoff import Backoff
from kuvasz.config.sources import SourceTableSpec
from kuvasz.sync.context.lifetime import Lifetime
from kuvasz.sync.context.source_tables import SourceTables

T = TypeVar("T")

#: Between attempts at a table whose error may be mended from outside, without a command.
_FIRST_RETRY_S = 15.0
_LAST_RETRY_S = 300.0


class WaitingLine(Generic[T]):
    """What waits for somebody, in the order in which it came. Called on the loop.

    A queue of asyncio takes 3 kB while it is empty, and of each of a thousand sources there were three.
    """

    __slots__ = ("_served", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[T] = []
        self._served: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def serve(self, call: Callable[[], object]) -> None:
        """Have who takes what waits called whenever something comes, and now for what has come already."""
        self._served = call
        if self._waiting:
            call()

    def put(self, item: T) -> None:
        """Have something wait."""
        self._waiting.append(item)
        if self._served is not None:
            self._served()

    def take(self) -> T:
        """Return what waits longest, which waits no more; only if anything does."""
        return self._waiting.pop(0)

    def rest(self) -> list[T]:
        """Return all that waits, which waits no more."""
        rest, self._waiting = self._waiting, []
        return rest


class Requests:
    """A queue of `SourceTableSpec.key`; what is asked for while the source does not stream waits in it.

    Args:
        source_tables: The source's tables, told when they are tried again.
        lifetime: The lifetime of the source.
    """

    def __init__(self, source_tables: SourceTables, lifetime: Lifetime) -> None:
        self._source_tables = source_tables
        self._lifetime = lifetime
        self._line: WaitingLine[str] = WaitingLine()
        self._backoffs: dict[str, Backoff] = {}  #: of tables that are tried again by themselves
        self._numbers = itertools.count(1)
        self._last: dict[str, int] = {}  #: key -> number of the wait that counts

    def serve(self, call: Callable[[], object]) -> None:
        """Have who looks at tables anew called whenever one is to be; what has come already waits for him."""
        self._line.serve(call)

    def rest(self) -> list[str]:
        """Return all that wait, which wait no more."""
        return self._line.rest()

    def add(self, key: str) -> None:
        """Have a table looked at anew; on the loop."""
        self._line.put(key)

    # From any thread

    def send(self, key: str) -> None:
        """Have a table looked at anew."""
        self._lifetime.call(self.add, key)

    def send_later(self, spec: SourceTableSpec) -> None:
        """Have a table looked at anew a while after its last attempt, whoever wanted that; longer each time."""
        wait = self._backoffs.setdefault(spec.key, Backoff(_FIRST_RETRY_S, _LAST_RETRY_S)).next_s()
        self._source_tables.note(spec, retry_at=time.monotonic() + wait)
        self._last[spec.key] = number = next(self._numbers)
        self._lifetime.call_later(wait, self._add_if_last, spec.key, number)

    def _add_if_last(self, key: str, number: int) -> None:
        if self._last.get(key) == number:
            self.add(key)

    def mended(self, key: str) -> None:
        """Begin with the shortest wait again."""
        self._backoffs.pop(key, None)


__all__ = ["Requests"]
