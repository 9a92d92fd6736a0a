"""A map's versions in a PostgreSQL database: several machines may read one map, and programs change it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kuvasz.config import secrets
from kuvasz.errors import ConfigError, MapUnwritten
from kuvasz.state.maps.map_table import MapRow, VersionTaken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.secrets import SecretUrl

_Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

#: One statement a transaction each: whoever may not make the schema need not, where a DBA has made it.
_TABLES: Final = """
CREATE SCHEMA IF NOT EXISTS kuvasz;
CREATE TABLE IF NOT EXISTS kuvasz.map (
    version bigint PRIMARY KEY,
    layout int NOT NULL,
    text text NOT NULL,           -- the map, in YAML
    written_at timestamptz NOT NULL,
    written_by text NOT NULL
);
REVOKE ALL ON kuvasz.map FROM PUBLIC
"""

_HAS_TABLE: Final = "SELECT to_regclass('kuvasz.map') IS NOT NULL"

_ROWS: Final = "SELECT version, layout, text, written_at, written_by FROM kuvasz.map"

#: Of whom makes the table: two at once would both find none (manual, section 9.28.10, advisory locks).
_MAKING: Final = 0x6B757661737B

#: Seconds that an answer may take.
_ANSWER_S: Final = 10


class PostgresTable:
    """The table: see `kuvasz.state.maps.map_table.MapTable`. One session is kept, and made anew where it ended.

    Args:
        url: Where it is; a part of it may be rotated.

    Raises:
        ConfigError: libpq does not know such a url.
    """

    def __init__(self, url: SecretUrl) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._session: _Session | None = None
        try:
            found = conninfo_to_dict(url.redacted())
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"--config {url.redacted()}: {_why(error)}", hint="write it as libpq has it") from None
        host = found.get("host", "localhost")
        port = found.get("port") or os.environ.get("PGPORT") or 5432
        self.place = f"postgresql://{host}:{port}/{found.get('dbname', '')}"  #: for people

    def latest(self) -> MapRow | None:
        """Return the newest version; None if there is none, or no table yet."""
        return next(iter(self._rows(f"{_ROWS} ORDER BY version DESC LIMIT 1")), None)

    def get(self, number: int) -> MapRow | None:
        """Return a version; None if there is none."""
        return next(iter(self._rows(f"{_ROWS} WHERE version = %s", number)), None)

    def all(self) -> Sequence[MapRow]:
        """Return all versions, the newest first."""
        return self._rows(f"{_ROWS} ORDER BY version DESC")

    def newest(self) -> int | None:
        """Return the number of the newest version, without its text."""
        found = self._asked("SELECT max(version) FROM kuvasz.map")
        return found[0][0] if found else None

    def add(self, row: MapRow, keep_from: int) -> None:
        """Add a version; see `kuvasz.state.maps.map_table.MapTable.add`."""
        values = row.number, row.layout, row.text, row.at, row.by

        def work(session: _Session) -> None:
            if session.execute(_HAS_TABLE).fetchone() != (True,):
                _make(session)
            with session.transaction():
                session.execute("INSERT INTO kuvasz.map VALUES (%s, %s, %s, %s, %s)", values)
                session.execute("DELETE FROM kuvasz.map WHERE version < %s", (keep_from,))

        try:
            self._do(work)
        except psycopg.errors.UniqueViolation:
            raise VersionTaken from None
        except psycopg.Error as error:
            raise MapUnwritten(
                f"cannot write the map in {self.place}: {_why(error)}",
                hint="see that it answers, and that its role may make and write a schema `kuvasz`",
            ) from error

    def _rows(self, query: str, *values: object) -> list[MapRow]:
        return [
            MapRow(number=number, layout=layout, text=text, at=at, by=by)
            for number, layout, text, at, by in self._asked(query, *values)
        ]

    def _asked(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        def work(session: _Session) -> list[tuple[Any, ...]]:
            if session.execute(_HAS_TABLE).fetchone() != (True,):
                return []
            return list(session.execute(query, values))

        try:
            found: list[tuple[Any, ...]] = self._do(work)
        except psycopg.Error as error:
            raise ConfigError(
                f"cannot read the map in {self.place}: {_why(error)}",
                hint="see that it answers, and that the role in --config may read kuvasz.map",
            ) from error
        return found

    def _do(self, work: Callable[[_Session], Any]) -> Any:  # noqa: ANN401 (what the work returns)
        """Do something in the session; where the one of the last time has ended, in a new one."""
        with self._lock:
            known = self._session
            if known is not None and not known.closed:
                try:
                    return work(known)
                except psycopg.OperationalError:
                    if not known.broken:
                        raise
            self._session = psycopg.connect(self._conninfo(), autocommit=True)
            return work(self._session)

    def _conninfo(self) -> str:
        """Return libpq's connection string (manual, section 34.1.2), the url's own parameters first."""
        settings = f"-c search_path=pg_catalog -c statement_timeout={_ANSWER_S * 1000} -c timezone=UTC"
        manners = {
            "application_name": "kuvasz map",
            "connect_timeout": str(_ANSWER_S),
            "tcp_user_timeout": str(_ANSWER_S * 1000),
        }
        given = {name: str(value) for name, value in conninfo_to_dict(self._url.get()).items() if value is not None}
        options = f"{given.pop('options', '')} {settings}".strip()
        return make_conninfo(**{**manners, **given, "options": options, "client_encoding": "UTF8"})


def _make(session: _Session) -> None:
    # Not within the transaction: its catalog caches would still say that there is none.
    session.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))
    try:
        with session.transaction():
            session.execute(_TABLES)
    finally:
        with contextlib.suppress(psycopg.Error):
            session.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))


def _why(error: Exception) -> str:
    return secrets.redact(" ".join(str(error).split())) or type(error).__name__


__all__ = ["PostgresTable"]
