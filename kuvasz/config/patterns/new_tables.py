"""Tables that have come to sources within a day, of those that are like patterns. Pure.

A lake keeps the table of what is dropped at its source. So whoever creates tables and drops them again would have as
many in the lake as he likes, however few he has at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.model import TableName

#: Seconds that a table counts as new. One that comes back under its name meanwhile is not another one.
DAY_S = 24 * 3600.0


class NewTables:
    """The tables that came to sources while they were followed. Of one source one thread at a time asks."""

    def __init__(self) -> None:
        self._came: dict[str, dict[TableName, float]] = {}

    def count(self, source: str, tables: Iterable[TableName], now_s: float) -> int:
        """Return how many new tables a source has with these ones, those that are gone already included.

        Args:
            source: The name of the source.
            tables: The tables that it did not have when it was looked at last.
            now_s: Seconds of a clock that goes on.
        """
        came = {table: at for table, at in self._came.get(source, {}).items() if now_s - at < DAY_S}
        self._came[source] = came
        return len(came.keys() | set(tables))

    def note(self, source: str, tables: Iterable[TableName], now_s: float) -> None:
        """Take note that tables have come to a source; see `count`."""
        came = self._came.setdefault(source, {})
        for table in tables:
            came.setdefault(table, now_s)


__all__ = ["DAY_S", "NewTables"]
