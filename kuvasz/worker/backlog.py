"""The deliveries that wait for a worker's next mini-transaction."""

from __future__ import annotations

import threading
import time

from kuvasz.model import Delivery, TableName
from kuvasz.worker.flush import FlushPolicy, Waiting
from kuvasz.worker.shares import portion


class Backlog:
    """The backlog of one worker. `put` from any thread; the rest for whoever has `changed`.

    Args:
        policy: When to begin a mini-transaction, and how large.
        changed: Told of every delivery.
    """

    def __init__(self, policy: FlushPolicy, changed: threading.Condition) -> None:
        self._policy = policy
        self._changed = changed
        self._waiting: list[Delivery] = []
        self._bytes = 0
        self._since = 0.0  #: when the first of it came
        self._last = 0.0  #: when the last of it came
        self._dirty: set[TableName] = set()  #: the tables it is of

    def put(self, delivery: Delivery) -> None:
        """Take a delivery."""
        with self._changed:
            self._last = time.monotonic()
            if not self._waiting:
                self._since = self._last
            self._waiting.append(delivery)
            self._bytes += delivery.bytes
            self._dirty.update(change.relation.table for change in delivery.changes)
            self._changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def wait_s(self, last_begin: float) -> float:
        """Return the seconds to wait before a mini-transaction is begun, 0 or less for now.

        Args:
            last_begin: When the last one began, monotonic seconds.
        """
        waiting = Waiting(
            bytes=self._bytes, tables=len(self._dirty), since=self._since, last=self._last, last_begin=last_begin
        )
        return self._policy.wait(waiting, time.monotonic())

    def pop(self) -> list[Delivery]:
        """Return as much as one mini-transaction takes; see `kuvasz.worker.shares`."""
        taken, self._waiting = portion(self._waiting, self._policy.most(len(self._dirty)))
        self._bytes -= sum(delivery.bytes for delivery in taken)
        self._since = time.monotonic()
        self._dirty = {change.relation.table for delivery in self._waiting for change in delivery.changes}
        return taken


__all__ = ["Backlog"]
