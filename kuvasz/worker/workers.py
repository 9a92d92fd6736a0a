"""All workers of a process: each target belongs to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kuvasz.errors import SourceError
from kuvasz.ports import Failure
from kuvasz.route.hashing import worker_of
from kuvasz.worker.worker import Worker

#: Between looks at a worker that is to finish what it has begun.
_SETTLE_S = 0.02


class Workers:
    """The workers.

    Args:
        workers: By their numbers.
    """

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.all = tuple(workers)

    def start(self) -> None:
        """Start their threads."""
        for worker in self.all:
            worker.start()

    async def stop(self, timeout_s: float) -> None:
        """Have all of them finish what is in hand, and end."""
        await asyncio.gather(*(asyncio.to_thread(worker.stop, timeout_s) for worker in self.all))

    def fail(self, failure: Failure) -> None:
        """Stop a target that is not what its worker left, for all of its sources that follow."""
        self.all[worker_of(failure.target, len(self.all))].fail(failure)

    @property
    def died(self) -> BaseException | None:
        """Why one of them died; None while all are well."""
        return next((worker.died for worker in self.all if worker.died is not None), None)

    async def settle(self, target: str) -> None:
        """Return when no mini-transaction that has begun can touch a target any more.

        Raises:
            SourceError: kuvasz stops.
        """
        worker = self.all[worker_of(target, len(self.all))]
        begun = worker.begun()
        while not worker.has_ended(begun, target):
            if worker.is_stopping:
                raise SourceError(f"stopped while changes of table {target} were under way")
            await asyncio.sleep(_SETTLE_S)


__all__ = ["Workers"]
