"""The coordinator's database: sessions, and the tables that kuvasz makes there at its first start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kuvasz.config import secrets
from kuvasz.errors import ConfigError, StateError

Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

#: Of the tables; a coordinator with a greater one is of a kuvasz that is newer than this one.
VERSION: Final = 2

#: Of the tables as they are made: those who know no more go on beside, until a log has groups.
MADE: Final = 1

_SESSIONS = 4

#: Of whom makes the tables: two first starts at once would both find none (manual, section 9.28.10, advisory locks).
_MAKING = 0x6B757661737A

_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS kuvasz;
CREATE TABLE kuvasz.version (version int NOT NULL);
INSERT INTO kuvasz.version VALUES ({MADE});
CREATE TABLE kuvasz.lease (
    cluster text PRIMARY KEY,
    number bigint NOT NULL,       -- grows each time the lease changes hands
    owner text,                   -- a node; null: it was given back
    does text NOT NULL,           -- what the owner does with it
    map text NOT NULL,            -- the digest of its map
    since timestamptz NOT NULL,
    until timestamptz NOT NULL    -- then it is anybody's
);
CREATE TABLE kuvasz.node (
    cluster text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid int NOT NULL,
    version text NOT NULL,
    map text NOT NULL,
    since timestamptz NOT NULL,
    seen timestamptz NOT NULL,
    PRIMARY KEY (cluster, name)
);
CREATE TABLE kuvasz.document (
    cluster text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    content json NOT NULL,
    PRIMARY KEY (cluster, kind, name)
);
CREATE TABLE kuvasz.piece (
    cluster text NOT NULL,
    file text NOT NULL,
    at bigint NOT NULL,           -- offset of its first byte in the file
    data bytea NOT NULL,
    PRIMARY KEY (cluster, file, at)
);
ALTER TABLE kuvasz.piece ALTER data SET STORAGE EXTERNAL; -- in CREATE TABLE from PostgreSQL 16 on
"""

_IS_MADE = "SELECT to_regclass('kuvasz.version') IS NOT NULL"

#: Of a later version, which who knows nothing of it goes on beside.
_HAS_ROLES = """
SELECT FROM pg_attribute WHERE attrelid = to_regclass('kuvasz.node') AND attname = 'drains' AND NOT attisdropped
"""
_ADD_ROLES = """
ALTER TABLE kuvasz.node
    ADD COLUMN IF NOT EXISTS role text NOT NULL DEFAULT 'all',
    ADD COLUMN IF NOT EXISTS drains boolean NOT NULL DEFAULT false -- it gives away what it holds, and takes nothing
"""

#: A source is told of what was staged as soon as the coordinator has committed it, so a crash must not undo that
#: (manual, section 28.4, "Asynchronous Commit"). Whoever waits for standbys as well goes on doing so.
_IS_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""

_MAY_MAKE = """
SELECT coalesce(has_schema_privilege(to_regnamespace('kuvasz'), 'CREATE'),
    has_database_privilege(current_database(), 'CREATE'))
"""


def _make_durable(session: Session) -> None:
    session.execute(_IS_DURABLE)


class CoordinatorDatabase:
    """The database. From any thread; nothing is connected before something is asked.

    Args:
        url: Its url as it is now: a part of it may be rotated.
        answer_s: Seconds that an answer may take.
        silent_s: Seconds that a transaction may have to wait for what is asked next. Whoever began it may sleep, or
            its machine be gone, and what it has locked is the lease that others wait for.
    """

    def __init__(self, url: Callable[[], str], answer_s: float, silent_s: float) -> None:
        self._url = url
        self._answer_s = answer_s
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._pool: psycopg_pool.ConnectionPool[Session] | None = None
        self._is_ready = False

    @property
    def place(self) -> str:
        """Where it is, for people."""
        found = conninfo_to_dict(self._url())
        return f"the coordinator {found.get('host', 'localhost')}:{found.get('port', 5432)}/{found.get('dbname', '')}"

    def conninfo(self) -> str:
        """Return libpq's connection string (manual, section 34.1.2), the url's own parameters first."""
        answer = max(2, round(self._answer_s))  # libpq takes no less
        settings = (
            f"-c search_path=pg_catalog -c statement_timeout={int(self._answer_s * 1000)} -c timezone=UTC"
            f" -c idle_in_transaction_session_timeout={int(self._silent_s * 1000)}"
        )
        manners = {
            "application_name": "kuvasz coordinator",
            "connect_timeout": str(answer),
            "tcp_user_timeout": str(answer * 1000),
        }
        given = {name: str(value) for name, value in conninfo_to_dict(self._url()).items() if value is not None}
        options = f"{given.pop('options', '')} {settings}".strip()
        return make_conninfo(**{**manners, **given, "options": options, "client_encoding": "UTF8"})

    @contextlib.contextmanager
    def session(self, doing: str) -> Iterator[Session]:
        """A session with the tables in place, in autocommit.

        Args:
            doing: What is tried, as in "cannot {doing}".

        Raises:
            StateError: It does not answer, or refuses what is asked.
            ConfigError: The tables are a newer kuvasz's.
        """
        try:
            with self._opened().connection() as session:
                if not self._is_ready:
                    self.make_ready(session)
                yield session
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            raise self.failed(doing, error) from error

    def _opened(self) -> psycopg_pool.ConnectionPool[Session]:
        with self._lock:
            if self._pool is None:
                self._pool = psycopg_pool.ConnectionPool(
                    self.conninfo, min_size=0, max_size=_SESSIONS, open=True, kwargs={"autocommit": True},
                    check=psycopg_pool.ConnectionPool.check_connection, timeout=self._answer_s,
                    reconnect_timeout=self._answer_s, num_workers=1, name="coordinator", configure=_make_durable,
                )  # fmt: skip
            return self._pool

    def failed(self, doing: str, error: Exception) -> StateError:
        """Return the error of something that could not be done."""
        why = secrets.redact(" ".join(str(error).split())) or type(error).__name__
        return StateError(
            f"{self.place}: cannot {doing}: {why}",
            hint="see that it runs, and that the role in `cluster.coordinator` may make and write a schema `kuvasz`",
        )

    def make_ready(self, session: Session) -> None:
        """Make the tables, unless they are there.

        Raises:
            psycopg.Error: They cannot be made.
            ConfigError: They are a newer kuvasz's.
        """
        make_once(session, _IS_MADE, _MAKING, lambda: session.execute(_TABLES))
        self._refuse_newer(_version(session) or VERSION)
        if session.execute(_HAS_ROLES).fetchone() is None:
            session.execute(_ADD_ROLES)
        self._is_ready = True

    @staticmethod
    def _refuse_newer(found: int) -> None:
        if found > VERSION:
            raise ConfigError(
                f"cluster.coordinator: its tables are of version {found}, and this kuvasz knows {VERSION}",
                hint="run the version of kuvasz that the others of the cluster run, or a newer one",
            )

    def look(self) -> str:
        """See `kuvasz.state.ports.ClusterMember.look`."""
        try:
            with self._opened().connection() as session:
                found = _version(session)
                if found is not None:
                    self._refuse_newer(found)
                    return f"tables of version {found}"
                may = session.execute(_MAY_MAKE).fetchone()
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            raise self.failed("look at it", error) from error
        if may != (True,):
            raise self.failed("make the schema kuvasz", PermissionError("its role may not"))
        return "no tables yet"

    def close(self) -> None:
        """End all sessions; what is asked later begins new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=self._answer_s)


def make_once(session: Session, is_made: str, key: int, make: Callable[[], object]) -> None:
    """Make some tables, unless they are there, whose role may then do with less; two may begin for the first time.

    Args:
        session: In autocommit.
        is_made: Asks whether they are there.
        key: A number for these tables alone: of two that would make them one waits for the other.
        make: Makes them, within a transaction.

    Raises:
        psycopg.Error: They cannot be made.
    """
    if session.execute(is_made).fetchone() == (True,):
        return
    # Not within the transaction: its catalog caches would still say that there are none.
    session.execute("SELECT pg_advisory_lock(%s)", (key,))
    try:
        if session.execute(is_made).fetchone() != (True,):
            with session.transaction():
                make()
    finally:
        session.execute("SELECT pg_advisory_unlock(%s)", (key,))


def _version(session: Session) -> int | None:
    """Return the version of the tables; None if there are none."""
    if session.execute(_IS_MADE).fetchone() != (True,):
        return None
    found = session.execute("SELECT max(version) FROM kuvasz.version").fetchone()
    return None if found is None else found[0]


__all__ = ["MADE", "VERSION", "CoordinatorDatabase", "Session", "make_once"]
