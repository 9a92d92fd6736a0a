"""The thread of a worker that gathers mini-transactions and has the lake write them, before they are committed."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from kuvasz.backoff import Backoff
from kuvasz.errors import JobFailed, LakeError
from kuvasz.events import Event, EventLog
from kuvasz.model import Delivery
from kuvasz.parking.logs import ParkingLogs
from kuvasz.ports import Lake
from kuvasz.tracing.mini_transaction import Times
from kuvasz.worker.backlog import Backlog
from kuvasz.worker.gather import Gathered
from kuvasz.worker.handover import Handover, Item
from kuvasz.worker.signals import Signals
from kuvasz.worker.under_way import UnderWay

_log = EventLog(__name__)

#: Jobs that failed at the same changes, after which it is found out whether the rows of one source end them.
_APART_AFTER = 4


class WriteLoop:
    """The write loop of one worker; `run` is its thread.

    Args:
        number: The number of the worker.
        lake: Where changes go.
        gather: Sorts deliveries by target.
        lot: Takes the changes of tables that do not follow; None: they are dropped.
        signals: When to stop.
        is_traced: Whether times are noted.
    """

    def __init__(
        self,
        number: int,
        lake: Lake,
        gather: Callable[[Iterable[Delivery]], Gathered],
        lot: ParkingLogs | None,
        signals: Signals,
        *,
        is_traced: bool = False,
    ) -> None:
        self._is_traced = is_traced
        self._number = number
        self._lake = lake
        self._gather = gather
        self._lot = lot
        self._signals = signals

    def run(self, backlog: Backlog, under_way: UnderWay, handover: Handover) -> None:
        """Write what waits, one mini-transaction after another, until the worker stops."""
        last_begin = -math.inf  # a clock that begins with the machine may have run for less than an interval
        while (deliveries := self._take(last_begin, backlog, under_way, handover)) is not None:
            last_begin = time.monotonic()
            gathered = self._gather(deliveries)
            if self._is_traced:
                gathered = dataclasses.replace(gathered, times=Times(backlog.came, last_begin))
            self._park(gathered)
            written = self._write(gathered)
            if gathered.times is not None:
                gathered.times.written = time.monotonic()
            _log.tell(
                Event.WRITTEN,
                worker=self._number,
                bytes=gathered.bytes,
                tables=len(gathered.works),
                seconds=round(time.monotonic() - last_begin, 4),
            )
            if written is None:
                break
            self._hand_over(handover, (gathered, written))
        self._hand_over(handover, None)

    def _take(
        self, last_begin: float, backlog: Backlog, under_way: UnderWay, handover: Handover
    ) -> list[Delivery] | None:
        """Wait for the next mini-transaction's changes; None: the worker stops.

        Nothing is taken while the last one waits for its commit: this one would only wait behind it.
        """
        with self._signals.changed:
            while not self._signals.is_stopping:
                if not backlog.is_empty and handover.is_empty:
                    wait = backlog.wait_s(last_begin)
                    if wait <= 0:
                        under_way.begin()
                        return backlog.pop()
                    self._signals.changed.wait(wait)
                else:
                    self._signals.changed.wait()
            return None

    def _park(self, gathered: Gathered) -> None:
        """Give the parking logs their part, before any of it counts as durable."""
        for part in gathered.to_park:
            assert self._lot is not None
            self._lot.park(part.target, part.source, part.epoch, part.changes, part.through, is_open=part.is_open)

    def _write(self, gathered: Gathered) -> Any:  # noqa: ANN401
        backoff = Backoff()
        failed = 0
        while True:
            try:
                return self._lake.write(gathered.works, apart=failed >= _APART_AFTER)
            except LakeError as error:
                if self._signals.is_stopping:
                    return None
                failed += isinstance(error, JobFailed)
                wait = backoff.next_s(random.random())  # noqa: S311 (workers that fail together)
                _log.tell(Event.JOB_RETRY, worker=self._number, error=error.message, wait_s=wait)
                self._signals.sleep(wait)

    def _hand_over(self, handover: Handover, item: Item) -> None:
        if self._signals.died is None:
            handover.put(item)


__all__ = ["WriteLoop"]
