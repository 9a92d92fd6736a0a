"""What became visible in a lake, and when, seen from outside.

It is not taken from kuvasz's own word: the catalog's SQLite file is watched for new table metadata, and the
positions of the sources are read from the table properties there.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kuvasz import lsn
from kuvasz.lake.format import source_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

#: A table of the lake, and a source that feeds it.
Place: TypeAlias = tuple[str, str]


class Watch:
    """Notes when which position of which source became visible in which table; a context manager.

    Args:
        catalog: The SQLite file.
        tables: Those to watch.
        interval_s: Between two looks.
        read: Reads a metadata file by its location, where it is not in a local folder.
    """

    def __init__(
        self,
        catalog: Path,
        tables: Collection[str],
        *,
        interval_s: float = 0.01,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        #: (epoch seconds, position) in the order they appeared
        self.seen: dict[Place, list[tuple[float, int]]] = collections.defaultdict(list)
        self._catalog = catalog
        self._tables = frozenset(tables)
        self._interval_s = interval_s
        self._read = read or _read_local
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lake-watch", daemon=True)

    def visible_at(self, goals: Mapping[Place, int]) -> float | None:
        """Return when each place had passed its goal; None if one has not."""
        found = [next((at for at, seen in self.seen[place] if seen > goal), None) for place, goal in goals.items()]
        return None if None in found else max(at for at in found if at is not None)

    def wait_for(self, goals: Mapping[Place, int], *, timeout_s: float, is_alive: Callable[[], None]) -> float:
        """Wait until each place has passed its goal and return when the last one was seen to.

        Raises:
            RuntimeError: The time is over.
        """
        end_at = time.monotonic() + timeout_s
        with self._news:
            while (at := self.visible_at(goals)) is None:
                is_alive()
                if time.monotonic() > end_at:
                    raise RuntimeError(f"not visible after {timeout_s:.0f} s: {', '.join(self._late(goals))}")
                self._news.wait(0.2)
        return at

    def _late(self, goals: Mapping[Place, int]) -> list[str]:
        return [
            f"{lsn.render(goal)} of {place[1]} in {place[0]}"
            for place, goal in goals.items()
            if self.visible_at({place: goal}) is None
        ]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before: dict[str, str] = {}
        while not self._stop.wait(self._interval_s):
            for table, location in self._locations().items():
                if before.get(table) == location:
                    continue
                at, before[table] = time.time(), location
                found = _positions(self._read, location)
                with self._news:
                    for source, position in found.items():
                        self.seen[table, source].append((at, position))
                    self._news.notify_all()

    def _locations(self) -> dict[str, str]:
        if not self._catalog.exists():
            return {}
        with contextlib.suppress(sqlite3.OperationalError):  # locked or not yet created: asked again at the next look
            connection = sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True, timeout=1)
            try:
                rows = connection.execute("SELECT table_name, metadata_location FROM iceberg_tables").fetchall()
                return {str(table): str(location) for table, location in rows if table in self._tables}
            finally:
                connection.close()
        return {}


def _read_local(location: str) -> bytes:
    return Path(location.removeprefix("file://").removeprefix("file:")).read_bytes()


def _positions(read: Callable[[str], bytes], location: str) -> dict[str, int]:
    """Return the sources' positions in a table's metadata file; none if it is not there."""
    try:
        content = read(location)
    except (FileNotFoundError, NotADirectoryError):  # it was replaced and removed since
        return {}
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    properties = json.loads(content)["properties"]
    return {
        name.removeprefix(source_positions.PREFIX): source_positions.lsn_of(text)
        for name, text in properties.items()
        if name.startswith(source_positions.PREFIX)
    }
