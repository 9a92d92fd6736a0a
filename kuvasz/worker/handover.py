"""What a worker's thread that writes gives to the one that commits: one mini-transaction waits, no more."""

from __future__ import annotations

import contextlib
import queue
from typing import Any

from kuvasz.worker.gather import Gathered

#: What was gathered, and what the lake has written of it; None: nothing more comes.
Item = tuple[Gathered, Any] | None


class Handover:
    """Between the two threads of one worker."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Item] = queue.Queue(maxsize=1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for its commit."""
        return self._queue.empty()

    def put(self, item: Item) -> None:
        """Hand something over, once there is room."""
        self._queue.put(item)

    def get(self) -> Item:
        """Return what was handed over, once there is something."""
        return self._queue.get()

    def free_committer(self) -> None:
        """End the wait of the thread that commits: whoever writes has died."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def free_writer(self) -> None:
        """End the wait of the thread that writes: whoever commits has died."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()


__all__ = ["Handover", "Item"]
