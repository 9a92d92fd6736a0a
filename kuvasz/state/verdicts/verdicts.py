"""The last verdict on each table as it is now, for observers; each is kept when it comes. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.state.ports import StoredVerdicts, TableKey
    from kuvasz.state.verdicts.verdict import Verdict


class Verdicts:
    """The verdicts.

    Args:
        stored: Where they are kept over restarts; read when they are first asked for.
    """

    def __init__(self, stored: StoredVerdicts) -> None:
        self._stored = stored
        self._lock = threading.Lock()
        self._known: dict[TableKey, Verdict] = {}

    def read(self) -> None:
        """Go by what earlier processes have found.

        Raises:
            StateError: It cannot be read now.
        """
        found = self._stored.all()
        with self._lock:
            self._known = {**found, **self._known}

    def put(self, key: TableKey, verdict: Verdict) -> None:
        """Take a verdict in place of the last one on the same table."""
        with self._lock:
            self._known = {**self._known, key: verdict}
        self._stored.put({key: verdict})

    def keep(self, keys: Collection[TableKey]) -> None:
        """Forget all tables but some."""
        with self._lock:
            gone = [key for key in self._known if key not in keys]
            self._known = {key: one for key, one in self._known.items() if key in keys}
        if gone:
            self._stored.put(dict.fromkeys(gone))

    def all(self) -> Mapping[TableKey, Verdict]:
        """Return all of them; nobody changes what this returned."""
        with self._lock:
            return self._known


__all__ = ["Verdicts"]
