"""Documents of a coordinator that answers when a test has it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from kuvasz import lsn


class SlowDocuments:
    """The documents of one kind."""

    place = "the coordinator, records"

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.error: Exception | None = None
        self._lock = threading.Lock()
        self._may_go = threading.Event()
        self._may_go.set()

    def stop(self) -> None:
        """Answer no more until `go`, or for a while."""
        self._may_go.clear()

    def go(self) -> None:
        """Answer again."""
        self._may_go.set()

    def get(self, name: str) -> None:
        """Return nothing: nothing was there before."""

    def put(self, documents: Mapping[str, Any]) -> None:
        """Keep documents."""
        with self._lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        self._may_go.wait(3)
        with self._lock:
            self.under_way -= 1
            if self.error is not None:
                raise self.error
            self.written.append(dict(documents))

    def looked(self, source: str) -> list[int]:
        """Return up to where a source was known to have missed nothing, in the order in which that was written."""
        return [lsn.parse(one[source]["looked"]) for one in self.written if source in one]
