"""The deliveries that wait for a worker's next mini-transaction."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection

from kuvasz.model import Delivery
from kuvasz.worker.flush import FlushPolicy, Waiting
from kuvasz.worker.gather import TargetsOf
from kuvasz.worker.shares import portion


class Backlog:
    """The backlog of one worker. `put` from any thread; the rest for whoever has `changed`.

    Large because what waits is counted as it comes: who asks when to begin must not go through it.

    Args:
        policy: When to begin a mini-transaction, and how large.
        changed: Told of every delivery.
        targets_of: Finds the targets of a relation. Commits are counted by targets: the tables of many sources,
            schemas or partitions are one commit where they feed one target.
    """

    def __init__(self, policy: FlushPolicy, changed: threading.Condition, targets_of: TargetsOf) -> None:
        self._policy = policy
        self._changed = changed
        self._targets_of = targets_of
        self._waiting: list[Delivery] = []
        self._bytes = 0
        self._since = 0.0  #: when the first of it came
        self.came = 0.0  #: when the first came of what `pop` returned last
        self._last = 0.0  #: when the last of it came
        self._seen: set[tuple[str, int]] = set()  #: the relations it is of: source, OID
        self._dirty: set[str] = set()  #: the targets of those
        self._behind_cut: frozenset[str] = frozenset()  #: sources of which nothing more is taken until `go_on`
        self._held: list[Delivery] = []  #: what has come of them since
        self._is_asked = False  #: a mini-transaction is to begin at once, whatever waits

    def put(self, *deliveries: Delivery) -> None:
        """Take deliveries."""
        with self._changed:
            taken = [one for one in deliveries if one.source not in self._behind_cut]
            if len(taken) < len(deliveries):
                self._held += [one for one in deliveries if one.source in self._behind_cut]
            if not taken:
                return
            self._last = time.monotonic()
            if not self._waiting:
                self._since = self._last
            self._waiting += taken
            for delivery in taken:
                self._bytes += delivery.bytes
                self._note(delivery)
            self._changed.notify_all()

    def cut(self, sources: Collection[str]) -> None:
        """Let mini-transactions end at what has come of some sources, until `go_on`, and begin at once till then."""
        with self._changed:
            self._behind_cut = frozenset(sources)
            self._changed.notify_all()

    def hurry(self) -> None:
        """Let nothing wait for more that comes, but for a second."""
        with self._changed:
            self._policy = self._policy.hurried()
            self._changed.notify_all()

    def pace(self, interval_s: float) -> None:
        """Let what waits, and what comes, wait for another interval; whoever is in a hurry stays so."""
        with self._changed:
            self._policy = self._policy.at(interval_s)
            self._changed.notify_all()

    def limit(self, most_bytes: int) -> None:
        """Let mini-transactions begin where so much waits."""
        with self._changed:
            self._policy = dataclasses.replace(self._policy, bytes=most_bytes)
            self._changed.notify_all()

    def ask(self) -> None:
        """Let a mini-transaction begin at once, whatever waits, and also if nothing does."""
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()

    def go_on(self) -> None:
        """Take what came behind the cut."""
        with self._changed:
            self._behind_cut, held, self._held = frozenset(), self._held, []
            self.put(*held)

    def lacks(self, sources: Collection[str]) -> bool:
        """Whether nothing waits of some sources but what came behind the cut."""
        with self._changed:
            return not any(delivery.source in sources for delivery in self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and nobody has asked for a mini-transaction."""
        return not self._waiting and not self._is_asked

    def wait_s(self, last_begin: float) -> float:
        """Return the seconds to wait before a mini-transaction is begun, 0 or less for now.

        Args:
            last_begin: When the last one began, monotonic seconds.
        """
        if self._behind_cut or self._is_asked:
            return 0.0
        waiting = Waiting(
            bytes=self._bytes, tables=len(self._dirty), since=self._since, last=self._last, last_begin=last_begin
        )
        return self._policy.wait(waiting, time.monotonic())

    def pop(self) -> list[Delivery]:
        """Return as much as one mini-transaction takes; see `kuvasz.worker.shares`."""
        self._is_asked = False
        taken, self._waiting = portion(self._waiting, self._policy.most(len(self._dirty)))
        self._bytes -= sum(delivery.bytes for delivery in taken)
        self.came, self._since = self._since, time.monotonic()
        self._seen, self._dirty = set(), set()
        for delivery in self._waiting:
            self._note(delivery)
        return taken

    def _note(self, delivery: Delivery) -> None:
        """Count the targets of a delivery, looking up each relation once in a mini-transaction."""
        source = delivery.source
        for change in delivery.changes:
            relation = change.relation
            if (source, relation.oid) not in self._seen:
                self._seen.add((source, relation.oid))
                self._dirty.update(target for target, _ in self._targets_of(source, relation))


__all__ = ["Backlog"]
