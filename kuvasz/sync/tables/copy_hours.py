"""The hours in which large tables of one source are copied, and the pace of a copy that keeps to them.

Nothing is read while they are over; what is read of a range is read to its end. The snapshot of a copy that waits for
its next hours stays, and so does what its server keeps for it; its place among the copies is another's meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kuvasz.config import units
from kuvasz.config.model import CopyLimits
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, TableError, place_of, retry_of
from kuvasz.events import Event, EventLog
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.context.source_threads import Turn
from kuvasz.sync.rules.copy_plan import is_large

_log = EventLog(__name__)

#: Between two looks whether they have begun.
_LOOK_S = 0.2

#: Seconds after which a copy lets those go first that wait: one of terabytes would keep them waiting for days.
_SLICE_S = 60.0


class CopyHours:
    """The hours of one source's copies. From any thread.

    Args:
        context: The context of the source.
        wall: Unix seconds.
    """

    def __init__(self, context: SourceContext, wall: Callable[[], float] = time.time) -> None:
        self._context = context
        self._wall = wall

    @property
    def limits(self) -> CopyLimits:
        """The limits of the source's server as the map that runs has them."""
        return self._context.shared.copy_limits(self._context.servers)

    def is_beside(self, spec: SourceTableSpec) -> bool:
        """Whether a table is copied beside the stream in any case, which waits for no hours, and with a snapshot."""
        limits = self.limits
        is_limited = limits.hours is not None or limits.max_snapshot_age is not None
        return is_limited and self._is_large(spec)

    def check_age(self, spec: SourceTableSpec, taken_at: float, *, gets_on: bool = False) -> None:
        """Make sure that a copy may have its snapshot for longer.

        Args:
            spec: The table.
            taken_at: When it was taken, in monotonic seconds.
            gets_on: Under another one it goes on from what is finished of it, which is more than under earlier ones.

        Raises:
            SourceError: It is too old, and another one is taken.
            TableError: It is too old, and the copy comes to no end.
        """
        oldest_s = self.limits.max_snapshot_age
        if oldest_s is None or time.monotonic() - taken_at <= oldest_s or not self._is_large(spec):
            return
        look, place = self._context.source_tables.look(spec), place_of(self._context.source.name, spec.table)
        read = f"{look.copy_done} of {look.copy_total} parts were read"
        age = f"when its snapshot was as old as copy.max_snapshot_age allows, {units.render_duration(oldest_s)}"
        if gets_on:
            raise SourceError(f"{place}: {read} {age}", hint="it is tried again by itself, and goes on from there")
        raise TableError(
            f"{place}: its copy was given up: {read} {age}",
            hint=f"give it longer, or a higher copy.rows_per_second; then {retry_of(spec.identifier)}",
        )

    def is_over(self, spec: SourceTableSpec) -> bool:
        """Whether a table is not to be copied now."""
        return not self.limits.is_open(self._wall()) and self._is_large(spec)

    def note(self, spec: SourceTableSpec, *, is_waiting: bool) -> None:
        """Show until when a table waits, if it does."""
        opens_at = self.limits.opens_at(self._wall()) if is_waiting else None
        self._context.source_tables.note(spec, copy_resumes_at=opens_at or 0.0)

    def _is_large(self, spec: SourceTableSpec) -> bool:
        table = self._context.source_tables.tables.get(spec.key)
        return table is None or is_large(table)

    def pace(
        self,
        spec: SourceTableSpec,
        taken_at: float,
        turn: Turn | None,
        check: Callable[[], None],
        *,
        gets_on: Callable[[], bool] = lambda: False,
    ) -> PaceOfHours:
        """Return the pace of one copy.

        Args:
            spec: The table.
            taken_at: When its snapshot was taken, in monotonic seconds.
            turn: Its place among the copies; None: it has none.
            check: Raises if the copy is to end.
            gets_on: Whether another snapshot would bring it on.
        """

        def check_all() -> None:
            check()
            self.check_age(spec, taken_at, gets_on=gets_on())

        return PaceOfHours(self._context, self, spec, turn, check_all)


class PaceOfHours:
    """A `kuvasz.ports.CopyPace` that pauses one copy while its hours are over."""

    def __init__(
        self,
        context: SourceContext,
        hours: CopyHours,
        spec: SourceTableSpec,
        turn: Turn | None,
        check: Callable[[], None],
    ) -> None:
        self._context = context
        self._hours = hours
        self._spec = spec
        self._turn = turn
        self._check = check
        self._lock = threading.Lock()
        self._since = time.monotonic()  #: it has its place among the copies
        self._is_slow = False

    @property
    def is_slow(self) -> bool:
        """See `kuvasz.ports.CopyPace.is_slow`."""
        return self._is_slow

    def note_slow(self, *, is_slow: bool) -> None:
        """See `kuvasz.ports.CopyPace.note_slow`."""
        with self._lock:
            if is_slow is not self._is_slow:
                self._is_slow = is_slow
                self._move()

    def limits(self) -> tuple[int | None, int | None]:
        """See `kuvasz.ports.CopyPace.limits`."""
        limits = self._hours.limits
        return limits.rows_per_second, limits.sessions

    def wait(self) -> None:
        """See `kuvasz.ports.CopyPace.wait`."""
        with self._lock:  # of the sessions of a copy one waits for all
            self._check()
            if self._hours.is_over(self._spec):
                self._pause()
            elif time.monotonic() - self._since > _SLICE_S:
                self._move()

    def _move(self) -> None:
        """Have the place among the copies that is its own by now, behind those that wait for one."""
        permits = self._context.shared.slow_copies if self._is_slow else None
        if self._turn is not None:
            self._context.lifetime.complete(self._turn.change(permits), self._check)
        self._since = time.monotonic()

    def _pause(self) -> None:
        context, spec = self._context, self._spec
        begin = time.monotonic()
        facts = {"source": context.source.name, "table": spec.identifier}
        _log.tell(Event.COPY_PAUSED, hours=self._hours.limits.hours, **facts)
        if self._turn is not None:
            context.lifetime.call(self._turn.give_back)
        try:
            while self._hours.is_over(spec):
                self._hours.note(spec, is_waiting=True)
                self._check()
                time.sleep(_LOOK_S)
        finally:
            self._hours.note(spec, is_waiting=False)
        if self._turn is not None:
            context.lifetime.complete(self._turn.keep(), self._check)
        if began := context.source_tables.look(spec).copy_began:
            context.source_tables.note(spec, copy_began=began + time.monotonic() - begin)
        _log.tell(Event.COPY_GOES_ON, seconds=round(time.monotonic() - begin, 3), **facts)


__all__ = ["CopyHours", "PaceOfHours"]
