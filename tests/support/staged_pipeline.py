"""Processes with a staged log, of which the lake alone is in memory: it outlives them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from kuvasz.app import App
from kuvasz.config.load import Loaded
from kuvasz.errors import LakeError
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.lake.memory.write_stage import MemoryWritten
from kuvasz.ports import TableWork
from kuvasz.verbs.cluster.reading import SourcesRead
from tests.support.lake import MemoryPipeline


class Lake(MemoryLake):
    """A lake that is away now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = threading.Event()

    def write(self, works: Sequence[TableWork], *, apart: bool = False) -> Sequence[MemoryWritten]:
        if self.is_away.is_set():
            raise LakeError("the lake is away")
        return super().write(works, apart=apart)


class StagedPipeline(MemoryPipeline):
    """One process; it has the lease."""

    def __init__(self, config: Any, lake: Lake) -> None:
        super().__init__(config, None)  # type: ignore[arg-type]
        self.lake = lake

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.app = App(self.config, lake=self.lake, holds_lease=True)
        self._ready.set()
        return await self.app.run()

    def die(self) -> None:
        super().die()
        self.error = None


class Reader:
    """A process that reads, in a thread; it has the lease."""

    def __init__(self, loaded: Loaded) -> None:
        self.error: BaseException | None = None
        self.reading = SourcesRead(loaded)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self.reading.run(self._stop))
        except BaseException as error:  # noqa: BLE001 (told at the end)
            self.error = error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()
        if self.error is not None:
            raise self.error


__all__ = ["Lake", "Reader", "StagedPipeline"]
