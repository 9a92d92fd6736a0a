"""What becomes of replication slots: when somebody reads them, and how far they are confirmed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Seconds between two looks, and after which nobody waits any longer.
_LOOK_S, _PATIENCE_S = 0.02, 120.0

_SLOTS = """
SELECT database, active, confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots
WHERE slot_name LIKE %s AND confirmed_flush_lsn IS NOT NULL
"""


class SlotWatch:
    """Looks at slots of one server, of which each database has one; a context manager.

    Args:
        url: Any database of the server.
        names: LIKE pattern of the slots' names.
    """

    def __init__(self, url: str, names: str = "%") -> None:
        self._url = url
        self._names = names
        self._active_at: dict[str, float] = {}  #: database -> epoch seconds
        self._seen: dict[str, list[tuple[float, int]]] = {}  #: database -> when which LSN was confirmed
        self._stop = threading.Event()

    def wait_for(self, goals: Mapping[str, int], is_alive: Callable[[], None] = lambda: None) -> None:
        """Wait until LSNs are confirmed.

        Args:
            goals: Database -> LSN.
            is_alive: Raises if waiting is of no use any more.

        Raises:
            RuntimeError: It takes too long.
        """
        end = time.monotonic() + _PATIENCE_S
        while any(self._reached(database, place) is None for database, place in goals.items()):
            is_alive()
            if time.monotonic() > end:
                last = {database: seen[-1][1] for database, seen in self._seen.items()}
                raise RuntimeError(f"{goals} are not confirmed within {_PATIENCE_S:.0f} s, but {last}")
            time.sleep(_LOOK_S)

    def seconds(self, goals: Mapping[str, int]) -> float:
        """Return how long it took from the first slot that was read until all of `wait_for` were confirmed."""
        ended = [reached for database, place in goals.items() if (reached := self._reached(database, place))]
        return max(ended) - min(self._active_at[database] for database in goals)

    def lags(self, database: str, marks: Sequence[tuple[float, int]]) -> list[float]:
        """Return how many seconds each mark (epoch seconds, LSN) of a database took to be confirmed."""
        seen = self._seen[database]
        first = np.searchsorted([place for _, place in seen], [place for _, place in marks])
        return [seen[at][0] - made for at, (made, _) in zip(first.tolist(), marks, strict=True)]

    def _reached(self, database: str, place: int) -> float | None:
        seen = self._seen.get(database, [])
        if not seen or seen[-1][1] < place or database not in self._active_at:
            return None
        return next(at for at, confirmed in seen if confirmed >= place)

    def __enter__(self) -> SlotWatch:
        connection = psycopg.connect(self._url, autocommit=True)
        self._look(connection)  # before anything happens: who reads a slot between two looks is told by its LSN alone
        self._thread = threading.Thread(target=self._run, args=(connection,), name="slot-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, connection: psycopg.Connection[Any]) -> None:
        with connection:
            while not self._stop.wait(_LOOK_S):
                self._look(connection)

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        for database, is_active, place in connection.execute(_SLOTS, (self._names,)).fetchall():
            at, seen = time.time(), self._seen.setdefault(database, [])
            is_other = not seen or seen[-1][1] != place
            if is_active or (seen and is_other):
                self._active_at.setdefault(database, at)
            if is_other:
                seen.append((at, int(place)))


__all__ = ["SlotWatch"]
