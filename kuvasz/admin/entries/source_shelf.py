"""What the sources of a map have, kept until someone wants another look: no catalog is read at each request."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kuvasz.source.catalog import inventory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.config.model import Config, DatabaseConfig, UrlConfig
    from kuvasz.source.catalog.inventory import Inventory
    from kuvasz.source.catalog.table import SourceTable

_Group: TypeAlias = "tuple[str, tuple[UrlConfig, ...]]"

#: Group -> the tables of the first of its sources that answers.
Found: TypeAlias = "Mapping[str, Sequence[SourceTable]]"

#: Groups that are asked at a time.
_THREADS: Final = 16

#: Seconds for which a group is left alone none of whose sources answers: each may take as long as a connection may.
_AWAY_S: Final = 30.0


class SourceShelf:
    """The shelf. On the loop.

    Args:
        take: Returns what the database of a url has.
        clock: Monotonic seconds.
    """

    def __init__(
        self, take: Callable[[str], Inventory] = inventory.take, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._take = take
        self._clock = clock
        self._kept: dict[_Group, Sequence[SourceTable]] = {}
        self._away: dict[_Group, float] = {}  #: groups that do not answer, and when they are asked again
        self._turn = asyncio.Lock()  #: whoever comes while sources are asked waits for that

    async def look(self, config: Config, *, anew: bool = False) -> Found:
        """Return what the groups of a map have. One none of whose sources answers is missing, and later asked again.

        Args:
            config: The map.
            anew: Whether all are asked again.
        """
        async with self._turn:
            if anew:
                self._kept.clear()
                self._away.clear()
            wanted = {(group.database, group.urls): group for group in config.databases}
            self._kept = {key: tables for key, tables in self._kept.items() if key in wanted}
            self._away = {key: until for key, until in self._away.items() if key in wanted and self._clock() < until}
            if missing := [group for key, group in wanted.items() if key not in self._kept.keys() | self._away]:
                for group, tables in await asyncio.to_thread(self._ask, missing):
                    key = group.database, group.urls
                    if tables is None:
                        self._away[key] = self._clock() + _AWAY_S
                    else:
                        self._kept[key] = tables
            return {database: tables for (database, _), tables in self._kept.items()}

    def _ask(self, groups: Sequence[DatabaseConfig]) -> list[tuple[DatabaseConfig, Sequence[SourceTable] | None]]:
        with concurrent.futures.ThreadPoolExecutor(min(_THREADS, len(groups)), "entries") as pool:
            return list(zip(groups, pool.map(self._tables, groups), strict=True))

    def _tables(self, group: DatabaseConfig) -> Sequence[SourceTable] | None:
        for one in group.urls:
            try:
                found = self._take(one.url.get())
                return [table for table in found.tables if table.table not in found.extensions]
            except Exception:  # noqa: BLE001, S112 (why it does not answer is said of the source itself)
                continue
        return None


__all__ = ["Found", "SourceShelf"]
