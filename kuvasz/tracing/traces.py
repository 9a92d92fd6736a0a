"""One trace a mini-transaction: `wait`, `write`, `wait for commit`, `commit` and `confirm`, one behind the other.

It is made when all is over, from the times that were noted: nothing of it is in the way of the changes. A
mini-transaction is over when each of its sources was told that it may let go of it. One of which a source is not
told, because another worker or a failure is in the way, is left without its `confirm`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kuvasz import lsn
from kuvasz.events import Event

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from kuvasz.tracing.mini_transaction import MiniTransaction

#: Mini-transactions that wait for their sources to be told; each has some 500 bytes.
MOST_WAITING: Final = 2000

#: Names of sources, targets, LSNs and snapshots that a span has.
MOST_NAMES: Final = 100


class Traces:
    """Makes traces. Called in any thread.

    Args:
        tracer: Starts spans, and has them sent by somebody else.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._lock = threading.Lock()
        self._confirmed: dict[str, int] = {}
        #: source -> what waits for it, by number: each waits for one of its sources after the other, so that a source
        #: which is never told costs the others' confirmations nothing
        self._of_source: dict[str, dict[int, MiniTransaction]] = {}
        self._waits_for: dict[int, str] = {}  #: number -> source, the oldest first
        self._number = 0

    def durable(self, one: MiniTransaction) -> None:
        """Take a mini-transaction; see `kuvasz.tracing.mini_transaction.OnDurable`."""
        with self._lock:
            self._number += 1
            is_over = not self._wait(self._number, one)  # it was told in the moment in which it became durable
            late = self._oldest() if len(self._waits_for) > MOST_WAITING else None
        if is_over:
            self._make(one, time.monotonic())
        if late is not None:
            self._make(late, None)

    def hear(self, event: Event, facts: Mapping[str, object]) -> None:
        """Hear that a source was told what it may let go of; see `kuvasz.events.Listener`."""
        if event is not Event.STREAM_CONFIRMED:
            return
        now = time.monotonic()
        source = str(facts["source"])
        with self._lock:
            self._confirmed[source] = lsn.parse(str(facts["lsn"]))
            over = [one for number, one in self._of_source.pop(source, {}).items() if not self._wait(number, one)]
        for one in over:
            self._make(one, now)

    def _wait(self, number: int, one: MiniTransaction) -> bool:
        """Have a mini-transaction wait for one of its sources that was not told; whether there is one."""
        late = (source for source, through in one.through.items() if self._confirmed.get(source, 0) < through)
        source = next(late, None)
        if source is None:
            self._waits_for.pop(number, None)
            return False
        self._of_source.setdefault(source, {})[number] = one
        self._waits_for[number] = source
        return True

    def _oldest(self) -> MiniTransaction:
        number = next(iter(self._waits_for))
        return self._of_source[self._waits_for.pop(number)].pop(number)

    def end(self) -> None:
        """Make the traces of what still waits."""
        with self._lock:
            left = [self._oldest() for _ in range(len(self._waits_for))]
        for one in left:
            self._make(one, None)

    def _make(self, one: MiniTransaction, confirmed: float | None) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        # What was noted by the clock that never jumps, by the one that others go by.
        offset = time.time() - time.monotonic()
        times = one.times
        end = confirmed or times.durable
        root: Span = self._tracer.start_span(
            "mini-transaction", start_time=_ns(times.came + offset), attributes=_attributes(one)
        )
        if one.failed:
            root.set_status(Status(StatusCode.ERROR))
        within = set_span_in_context(root)
        steps = [
            ("wait", times.came, times.begun), ("write", times.begun, times.written),
            ("wait for commit", times.written, times.committing), ("commit", times.committing, times.durable),
            *([] if confirmed is None else [("confirm", times.durable, confirmed)]),
        ]  # fmt: skip
        for name, begun, ended in steps:
            span = self._tracer.start_span(name, context=within, start_time=_ns(begun + offset))
            span.end(_ns(ended + offset))
        root.end(_ns(end + offset))


def _ns(unix_s: float) -> int:
    return int(unix_s * 1e9)


def _attributes(one: MiniTransaction) -> dict[str, int | list[str]]:
    snapshots = {target: found for target, found in one.snapshots.items() if found is not None}
    names = {
        "kuvasz.targets": sorted(one.snapshots),
        "kuvasz.sources": sorted(one.through),
        "kuvasz.lsns": [f"{source}={lsn.render(through)}" for source, through in sorted(one.through.items())],
        "kuvasz.snapshots": [f"{target}={found}" for target, found in sorted(snapshots.items())],
        "kuvasz.failed": sorted(one.failed),
    }
    counts = {"kuvasz.worker": one.worker, "kuvasz.rows": one.rows, "kuvasz.bytes": one.bytes}
    return {**counts, **{name: found[:MOST_NAMES] for name, found in names.items() if found}}


__all__ = ["MOST_NAMES", "MOST_WAITING", "Traces"]
