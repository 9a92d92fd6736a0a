"""The lake's tables looked at now and then: of one that nothing comes for, no commit finds that it was set back."""

from __future__ import annotations

import asyncio

from kuvasz.ports import Lake
from kuvasz.worker.workers import Workers

#: Seconds between two rounds: a look asks the catalog, and some answer with all of a table's metadata.
PATROL_S = 60.0


async def patrol(lake: Lake, workers: Workers) -> None:
    """Stop tables that someone set back or dropped, for as long as the task lives."""
    while True:
        await asyncio.sleep(PATROL_S)
        for failure in await asyncio.to_thread(lake.patrol):
            workers.fail(failure)


__all__ = ["PATROL_S", "patrol"]
