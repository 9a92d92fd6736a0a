"""A map's versions in a file of SQLite: for one machine, or for tests."""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from kuvasz.errors import ConfigError, MapUnwritten
from kuvasz.state.maps.map_table import MapRow, VersionTaken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS kuvasz_map (
    version INTEGER PRIMARY KEY,
    layout INTEGER NOT NULL,
    text TEXT NOT NULL,           -- the map, in YAML
    written_at TEXT NOT NULL,     -- ISO 8601, UTC
    written_by TEXT NOT NULL
)
"""

_ROWS: Final = "SELECT version, layout, text, written_at, written_by FROM kuvasz_map"

_HAS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kuvasz_map'"

#: Seconds that somebody else's transaction is waited for.
_WAIT_S: Final = 10.0


class SqliteTable:
    """The table: see `kuvasz.state.maps.map_table.MapTable`. Each question opens the file anew.

    Args:
        path: The file; made when the first version is written, for its owner alone: a map may hold passwords.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = f"sqlite:{path}"

    def latest(self) -> MapRow | None:
        """Return the newest version; None if there is none, or no table yet."""
        return next(iter(self._rows(f"{_ROWS} ORDER BY version DESC LIMIT 1")), None)

    def get(self, number: int) -> MapRow | None:
        """Return a version; None if there is none."""
        return next(iter(self._rows(f"{_ROWS} WHERE version = ?", number)), None)

    def all(self) -> Sequence[MapRow]:
        """Return all versions, the newest first."""
        return self._rows(f"{_ROWS} ORDER BY version DESC")

    def newest(self) -> int | None:
        """Return the number of the newest version, without its text."""
        found = self._asked("SELECT max(version) FROM kuvasz_map")
        return found[0][0] if found else None

    def add(self, row: MapRow, keep_from: int) -> None:
        """Add a version; see `kuvasz.state.maps.map_table.MapTable.add`."""
        values = row.number, row.layout, row.text, row.at.isoformat(), row.by
        try:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with self._session() as session, session:
                session.execute(_TABLE)
                session.execute("INSERT INTO kuvasz_map VALUES (?, ?, ?, ?, ?)", values)
                session.execute("DELETE FROM kuvasz_map WHERE version < ?", (keep_from,))
        except sqlite3.IntegrityError:
            raise VersionTaken from None
        except (OSError, sqlite3.Error) as error:
            raise MapUnwritten(
                f"cannot write {self.place}: {_why(error)}",
                hint="kuvasz has to be allowed to write the file, and to make files in its folder",
            ) from error

    def _rows(self, query: str, *values: object) -> list[MapRow]:
        return [
            MapRow(number=number, layout=layout, text=text, at=datetime.datetime.fromisoformat(at), by=by)
            for number, layout, text, at, by in self._asked(query, *values)
        ]

    def _asked(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        try:
            with self._session() as session:
                if not session.execute(_HAS_TABLE).fetchone():
                    return []
                return session.execute(query, values).fetchall()
        except sqlite3.Error as error:
            msg = f"cannot read the map {self.place!r}: {_why(error)}"
            raise ConfigError(msg, hint="see that it is a file of SQLite that kuvasz may read") from error

    @contextlib.contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        session = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=rw", timeout=_WAIT_S, uri=True)
        with contextlib.closing(session):
            yield session


def _why(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else str(error)
    return (told or type(error).__name__).lower()


__all__ = ["SqliteTable"]
