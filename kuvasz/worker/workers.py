"""All workers of a process: each target belongs to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kuvasz.errors import SourceError
from kuvasz.ports import Failure
from kuvasz.route.hashing import owner_of
from kuvasz.worker.worker import Worker

#: Between looks at a worker that is to finish what it has begun.
_SETTLE_S = 0.02


class Workers:
    """The workers.

    Args:
        workers: By their numbers.
        routed_by: Target -> what routes it to its worker, if that is not its name; see `Targets`.
        own: What routes targets to a worker of their own: the last ones, in this order. Readers go by it, too.
    """

    def __init__(
        self,
        workers: Iterable[Worker],
        routed_by: Mapping[str, str] = MappingProxyType({}),
        own: list[str] | None = None,
    ) -> None:
        self.all = list(workers)  #: may become more, and never fewer
        self.routed_by = routed_by
        self.own = [] if own is None else own
        self._is_hurried = False

    def start(self) -> None:
        """Start their threads."""
        for worker in self.all:
            worker.start()

    async def stop(self, timeout_s: float) -> None:
        """Have all of them finish what is in hand, and end."""
        await asyncio.gather(*(asyncio.to_thread(worker.stop, timeout_s) for worker in self.all))

    def add(self, routed_by: str, worker: Worker, most_bytes: int) -> None:
        """Start one more, for what is routed to a worker of its own and had none.

        Args:
            routed_by: What its targets are routed by.
            worker: Its number is the next one.
            most_bytes: What a mini-transaction takes at most of each that has targets of its own.
        """
        worker.start()
        if self._is_hurried:
            worker.hurry()
        self.all.append(worker)
        self.own.append(routed_by)  # now readers find it
        for one in self.all[self.shared :]:
            one.limit(most_bytes)

    def hurry(self) -> None:
        """Have none wait longer than a second for more: whoever looks on waits for all of it."""
        self._is_hurried = True
        for worker in self.all:
            worker.hurry()

    def pace(self, interval_s: float) -> None:
        """Have targets without an interval of their own committed at another one from now on."""
        for worker in self.all[: self.shared]:
            worker.pace(interval_s)

    @property
    def shared(self) -> int:
        """The number of workers that share all targets without one of their own."""
        return len(self.all) - len(self.own)

    def fail(self, failure: Failure) -> None:
        """Stop a target that is not what its worker left, for all of its sources that follow."""
        self._of(failure.target).fail(failure)

    @property
    def died(self) -> BaseException | None:
        """Why one of them died; None while all are well."""
        return next((worker.died for worker in self.all if worker.died is not None), None)

    async def settle(self, target: str) -> None:
        """Return when no mini-transaction that has begun can touch a target any more.

        Nor is anything left of a transaction that came in parts and did not end: another worker may have it next.

        Raises:
            SourceError: kuvasz stops.
        """
        worker = self._of(target)
        await _ended(worker, target)
        while worker.has_parts(target):
            worker.ask()
            await _pause(worker, target)
        await _ended(worker, target)

    def number_of(self, target: str) -> int:
        """Return the number of the worker that owns a target."""
        return owner_of(self.routed_by.get(target, target), self.shared, self.own)

    def _of(self, target: str) -> Worker:
        return self.all[self.number_of(target)]


async def _ended(worker: Worker, target: str) -> None:
    """Wait until all that a worker has begun has ended, as far as it concerns a target."""
    begun = worker.begun()
    while not worker.has_ended(begun, target):
        await _pause(worker, target)


async def _pause(worker: Worker, target: str) -> None:
    if worker.is_stopping:
        raise SourceError(f"stopped while changes of table {target} were under way")
    await asyncio.sleep(_SETTLE_S)


__all__ = ["Workers"]
