"""Sources that a process gives back in order, because they are another one's share by now.

connection ended ─> all that came staged ─> nothing of it kept ─> given back ─> another one takes it
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kuvasz.errors import StateError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from kuvasz.source.reading.ordered import OrderedReading
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.staged.ports import LogIndex

_log = EventLog(__name__)

#: Seconds between two looks whether all of a source is staged.
_LOOK_S: Final = 0.05


class SourceHandover:
    """The handover. Called on the loop.

    Args:
        log: Where what came is staged.
        index: Where it is known who holds what.
    """

    def __init__(self, log: StagedLog, index: LogIndex) -> None:
        self._log = log
        self._index = index
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def sources(self) -> frozenset[str]:
        """What is being given back."""
        return frozenset(self._tasks)

    def begin(self, name: str, reading: OrderedReading | None) -> None:
        """Give a source back.

        Args:
            name: Its name.
            reading: What receives it; None: nothing does.
        """
        if name not in self._tasks:
            task = asyncio.create_task(self._give_back(name, reading), name=f"give back {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _give_back(self, name: str, reading: OrderedReading | None) -> None:
        source = self._log.source(name)
        if reading is not None:
            await reading.end()
        while not source.is_staged:  # noqa: ASYNC110 (told by nobody who knows of this one)
            await asyncio.sleep(_LOOK_S)
        source.leave()
        try:
            await asyncio.to_thread(self._index.release, [name])
        except StateError:
            return  # it is tried again with the next look: whoever looks still finds it here
        _log.tell(Event.SOURCE_GIVEN_BACK, source=name)

    def cut_off(self) -> None:
        """Wait for nothing more: the process ends, and what it holds is anybody's."""
        for task in self._tasks.values():
            task.cancel()


__all__ = ["SourceHandover"]
