"""What a staged log asks of its coordinator and of its store, counted by the coordinator's server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from benchmarks.outcome import Outcome

#: Of the whole database, which has nothing else; an object is written once and removed once.
_COUNTS = """
SELECT d.xact_commit, d.tup_inserted + d.tup_updated + d.tup_deleted, o.n_tup_ins, o.n_tup_del
FROM pg_stat_database AS d, pg_stat_user_tables AS o
WHERE d.datname = current_database() AND o.schemaname = 'kuvasz' AND o.relname = 'log_object'
"""

_NAMES = "coordinator's transactions", "coordinator's rows written", "objects written", "objects removed"

#: Sessions tell what they did a second later at most.
_TOLD_S = 1.5


class LogCounts:
    """The counts of one log, from now on.

    Args:
        url: Its coordinator.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._begun_at, self._begun = self._now()

    def _now(self) -> tuple[float, tuple[int, ...]]:
        time.sleep(_TOLD_S)
        with psycopg.connect(self._url) as connection:
            counts = connection.execute(_COUNTS).fetchone()
        assert counts is not None, "a log is staged there"
        return time.monotonic(), counts

    def add(self, outcome: Outcome) -> None:
        """Add how much a second came about since the begin."""
        at, counts = self._now()
        for name, before, after in zip(_NAMES, self._begun, counts, strict=True):
            outcome.add(name, (after - before) / (at - self._begun_at), "/s")


__all__ = ["LogCounts"]
