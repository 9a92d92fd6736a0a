"""Reading a part of a table under an exported snapshot, on any machine that reaches the source.

A `CopyRange` is a request that travels pickled to a Spark executor and is carried out there. It reads a span of
heap blocks through a TID range scan (PostgreSQL 14), in the same text form as the stream's.

VACUUM FULL, CLUSTER and a rewriting ALTER TABLE move rows to a new file between one range and the next, TRUNCATE
empties it; ranges over two files would miss or repeat rows. And names are looked up in the catalog of now: a table or
a column that took the name of another one would be read in its place. So each range takes its lock first and then
compares file and names with those the snapshot knew; and when the last range is read, `Names` are compared once more.

To open a session takes longer than to read twenty rows, so small ranges are read in `Sessions` one after another,
each in a transaction of its own; some ahead of whoever wants them (`RowsAhead`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq
from typing_extensions import override

from kuvasz.errors import SourceError
from kuvasz.ports import CopyTooLarge
from kuvasz.source import conninfo as conninfos
from kuvasz.source import failure, sql
from kuvasz.source.catalog import entries
from kuvasz.source.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kuvasz.model import PgType, TableName
    from kuvasz.source.catalog.table import SourceTable

_MOVED_HINT = "it is copied again with a new snapshot"
_GONE_HINT = f"{_MOVED_HINT}; a standby ends one that its replay waits for, if hot_standby_feedback is off there"

#: Ends a transaction that has read rows. What whoever owns a table has in its indexes runs as the query is planned,
#: by the rights of kuvasz's role, and may have set the session's `search_path`: so nothing of it is to stay.
LEAVING = "ROLLBACK"

#: Failures of a table or a snapshot that is not what it was when the copy was planned.
_GONE_STATES = {"22023": "the exported snapshot is gone", "42704": "the exported snapshot is gone"}
_PASSING_STATES = {**_GONE_STATES, "42P01": "the table is gone", "42703": "a column is gone"}


class Sessions:
    """Sessions at one server that are used again, so many at a time, until they are closed. From any thread.

    One in which something failed is closed.

    Args:
        most: The sessions of each kind, readers and others.
        is_kept: Whether they are kept until `close`; else until `rest`.
    """

    def __init__(self, most: int, *, is_kept: bool = True) -> None:
        self._idle: list[psycopg.Connection[Any]] = []
        self._turns = threading.Semaphore(most), threading.Semaphore(most)
        self._lock = threading.Lock()
        self._is_kept = is_kept
        self._is_closed = False

    @contextlib.contextmanager
    def reader(self, conninfo: Callable[[], str], doing: str) -> Iterator[pq.abc.PGconn]:
        """Give a session for COPY; the transaction that it is used for ends with it.

        Args:
            conninfo: Returns where one is opened that is not there yet.
            doing: What it is for, told in errors.

        Raises:
            SourceError: The server cannot be reached.
        """
        with self._turns[0]:
            session = self._taken() or conninfos.connect(conninfo(), doing)
            is_good = False
            try:
                with conninfos.blocking(session) as pgconn:
                    yield pgconn
                    with contextlib.suppress(psycopg.OperationalError):  # what was read is read
                        is_good = conninfos.execute(pgconn, LEAVING).status == pq.ExecStatus.COMMAND_OK
            finally:
                # One that was told to send texts as they are is of no use to who reads names.
                self._give_back(session, is_good=is_good and conninfos.has_encoding(session.pgconn))

    @contextlib.contextmanager
    def other(self, conninfo: Callable[[], str]) -> Iterator[psycopg.Connection[Any]]:
        """Give an ordinary session in autocommit; see `reader`."""
        with self._turns[1]:
            session = self._taken() or conninfos.connect(conninfo())
            is_good = False
            try:
                yield session
                is_good = session.info.transaction_status == pq.TransactionStatus.IDLE
            finally:
                self._give_back(session, is_good=is_good)

    def rest(self) -> None:
        """Close those that nobody uses, unless they are kept: who is to read next waits for others."""
        if not self._is_kept:
            self._end_idle()

    def close(self) -> None:
        """Close those that nobody uses, and each other one when it is given back. May be called again."""
        with self._lock:
            self._is_closed = True
        self._end_idle()

    def _taken(self) -> psycopg.Connection[Any] | None:
        """Return one that nobody uses and that the server has not ended, as far as it says."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                session = self._idle.pop()
            if conninfos.is_idle(session.pgconn):
                return session
            session.close()

    def _give_back(self, session: psycopg.Connection[Any], *, is_good: bool) -> None:
        with self._lock:
            if is_good and not self._is_closed:
                self._idle.append(session)
                return
        session.close()

    def _end_idle(self) -> None:
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for session in idle:
            session.close()


class RowsAhead:
    """Rows that were read ahead of whoever wants them, and `Names` compared behind that.

    Args:
        query: The statement that they answer.
        data: In COPY's text format.
    """

    def __init__(self, query: str, data: bytes) -> None:
        self.query = query
        self.is_taken = False
        self._data = data

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._data)

    def take(self) -> bytes:
        """Return the rows, and take note that they were wanted."""
        self.is_taken = True
        return self._data


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyRange:
    """A span of a table's blocks to be read under a snapshot.

    It is read with the password that is there when it begins: others may have taken longer than that is good. So an
    executor has what is there when it is pickled.
    """

    conninfo: str = dataclasses.field(repr=False)  #: of an ordinary session; has the password
    snapshot_name: str
    table: TableName  #: the table itself, or one leaf of it
    columns: tuple[str, ...]  #: in the order of the rows' fields
    where: str = ""  #: a condition over them: other rows stay at the source; empty: all come
    first_block: int = 0
    end_block: int | None = None  #: exclusive; None: to the end, however far the table has grown
    size: int = 0  #: bytes at the source, an estimate
    #: columns, and rows of values of them as SQL has them between VALUES: only rows with such come, by an index
    wanted: tuple[tuple[str, ...], str] | None = dataclasses.field(default=None, repr=False)
    rows_per_second: float = 0.0  #: that are read at most; 0: as fast as they come
    is_hurried: bool = False  #: it is given up as soon as its rows come slowly
    most_bytes: int = 0  #: and as soon as more of them came; 0: nobody minds how many do
    #: returns the source's url as it is now; nothing: `conninfo` stays as it is
    url: Callable[[], str] | None = dataclasses.field(default=None, repr=False, compare=False)
    #: which it is read in, in this process; None: in one of its own
    sessions: Sessions | None = dataclasses.field(default=None, repr=False, compare=False)
    ahead: RowsAhead | None = dataclasses.field(default=None, repr=False, compare=False)  #: its rows, in this process

    @property
    def server(self) -> str:
        """See `kuvasz.ports.CopyRequest.server`."""
        return conninfos.servers(self.conninfo)

    def at_pace(self, rows_per_second: float) -> CopyRange:
        """See `kuvasz.ports.CopyRequest.at_pace`."""
        return dataclasses.replace(self, rows_per_second=rows_per_second)

    def hurried(self) -> CopyRange:
        """See `kuvasz.ports.CopyRequest.hurried`."""
        return dataclasses.replace(self, is_hurried=True)

    def bounded(self, most_bytes: int) -> CopyRange:
        """See `kuvasz.ports.CopyRequest.bounded`."""
        return dataclasses.replace(self, most_bytes=most_bytes)

    def as_of_now(self) -> CopyRange:
        """Return the same with the password that is there now."""
        if self.url is None:
            return self
        return dataclasses.replace(self, conninfo=conninfos.with_password_of(self.conninfo, self.url), url=None)

    @override
    def __reduce__(self) -> tuple[Callable[[], CopyRange], tuple[()]]:
        now = dataclasses.replace(self.as_of_now(), sessions=None, ahead=None)
        fields = {each.name: getattr(now, each.name) for each in dataclasses.fields(now)}
        return functools.partial(CopyRange, **fields), ()

    def query(self) -> str:
        """Return the COPY statement."""
        if self.wanted is not None:
            return f"COPY ({self._look_up(*self.wanted)}) TO STDOUT"
        bounds = []
        # Also from block 0: the table is to be read in its own order, not by whatever index a condition has.
        if self.first_block > 0 or self.end_block is not None or self.where:
            bounds.append(f"ctid >= '({self.first_block},0)'::tid")
        if self.end_block is not None:
            bounds.append(f"ctid < '({self.end_block},0)'::tid")
        if self.where:
            bounds.append(f"({self.where})")
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        columns = sql.identifiers(self.columns)
        return f"COPY (SELECT {columns} FROM ONLY {sql.qualified(self.table)}{where}) TO STDOUT"

    def with_rows(self, ahead: RowsAhead | None) -> CopyRange:
        """Return the same with rows that were read ahead, if it is what they answer."""
        return self if ahead is None or ahead.query != self.query() else dataclasses.replace(self, ahead=ahead)

    def rows_ahead(self, most_bytes: int) -> RowsAhead | None:
        """Read the rows for whoever wants them later; None if there are more bytes of them.

        Raises:
            SourceError: See `read`.
        """
        data = bytearray()
        try:
            for piece in self.bounded(most_bytes).read(most_bytes):
                data += piece
                if len(data) > most_bytes:
                    return None
        except CopyTooLarge:
            return None
        return RowsAhead(self.query(), bytes(data))

    def _look_up(self, key: tuple[str, ...], values: str) -> str:
        table, names = sql.qualified(self.table), sql.identifiers(key)
        where = f" AND ({self.where})" if self.where else ""
        columns = sql.identifiers(self.columns)
        return f"SELECT {columns} FROM ONLY {table} WHERE ({names}) IN (VALUES {values}){where}"

    def read(self, chunk_bytes: int = 8 << 20) -> Iterator[memoryview]:
        """Read the rows, in COPY's text format.

        Args:
            chunk_bytes: A piece has at least this size, but for the last, and at most a gulp of 1 MB and a
                row more.

        Yields:
            Whole rows, each with its newline; never empty; valid until the next piece is asked for.

        Raises:
            SourceError: The connection, the snapshot or the table's file is gone: the copy must begin anew.
            SourceSlow: It is hurried, and comes slowly.
            CopyTooLarge: More came than anybody wants.
            SourceRefused: The role may not read the table.
        """
        if self.ahead is not None:
            if rows := self.ahead.take():
                yield memoryview(rows)
            return
        from kuvasz.source import copy_out  # and numba with it, which who only looks does without

        place = conninfos.location(self.conninfo)
        doing = f"copy {self.table} from block {self.first_block}"
        with self._session(doing) as pgconn:
            self._begin(pgconn, place, doing)
            pace = Pace(self.rows_per_second) if self.rows_per_second else None
            yield from copy_out.rows(
                pgconn, self.query(), chunk_bytes, place=place, doing=doing, pace=pace, is_hurried=self.is_hurried,
                most_bytes=self.most_bytes,
            )  # fmt: skip

    @contextlib.contextmanager
    def _session(self, doing: str) -> Iterator[pq.abc.PGconn]:
        if self.sessions is not None:
            with self.sessions.reader(lambda: self.as_of_now().conninfo, doing) as pgconn:
                yield pgconn
            return
        pgconn = conninfos.connect_pq(self.as_of_now().conninfo, doing)
        try:
            yield pgconn
        finally:
            pgconn.finish()

    def _begin(self, pgconn: pq.abc.PGconn, place: str, doing: str) -> None:
        from kuvasz.source import copy_out  # see `read`

        begin, patience_s = time.monotonic(), copy_out.HURRY_S if self.is_hurried else None
        try:
            with failure.translated(place, doing):
                result = conninfos.execute(pgconn, self._opening(), patience_s)
        except SourceError as error:
            if patience_s is not None and time.monotonic() - begin >= patience_s:
                raise copy_out.Flow(place, doing, is_hurried=True).slow() from error
            raise
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._refusal(result, place, doing)
        if result.ntuples != 1 or result.get_value(0, 0) != b"t":
            what = "the table, or a column of it, was rewritten or renamed meanwhile"
            raise SourceError(f"{place}: cannot {doing}: {what}", hint=_MOVED_HINT)

    def _opening(self) -> str:
        """Return the statements of one round trip; the last asks whether file and names are the snapshot's."""
        name = sql.qualified(self.table)
        columns = ", ".join(sql.literal(column) for column in self.columns)
        return (
            f"{opening(self.snapshot_name)} SET LOCAL enable_seqscan = off; SET LOCAL jit = off;{self._by_way_of()}"
            # One range is one process at the source; how many there are is copy_parallelism's to say.
            " SET LOCAL max_parallel_workers_per_gather = 0;"
            f" SELECT FROM ONLY {name} WHERE false;"
            # The catalog's rows are the snapshot's, the functions' answers are of this moment.
            f" SELECT c.relfilenode = pg_relation_filenode(c.oid) AND c.oid = to_regclass({sql.literal(name)})"
            f" AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ({columns})"
            " AND (pg_identify_object_as_address('pg_class'::regclass, c.oid, a.attnum)).object_names[3]"
            " IS DISTINCT FROM a.attname::text)"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = {sql.literal(self.table.schema)} AND c.relname = {sql.literal(self.table.name)};"
        )

    def _by_way_of(self) -> str:
        """Return the statements that leave the planner one way."""
        if self.wanted is None:
            return " SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off;"
        return " SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;"

    def _refusal(self, result: pq.abc.PGresult, place: str, doing: str) -> SourceError:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        message = result.get_error_message()
        if state in _PASSING_STATES:
            hint = _GONE_HINT if state in _GONE_STATES else _MOVED_HINT
            return SourceError(f"{place}: cannot {doing}: {_PASSING_STATES[state]}: {message}", hint=hint)
        grant = f"GRANT SELECT ON {sql.qualified(self.table)} TO …; and GRANT USAGE ON SCHEMA"
        mend = f"{grant} {sql.identifier(self.table.schema)} TO …;"
        return failure.of(state, message, place=place, doing=doing, mend=mend)


def wanted_values(types: Iterable[PgType], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of values of some types as `CopyRange.wanted` has them; at least one.

    A value of a domain is one of its base type: whoever made the domain has its checks call what he likes.
    """
    # Later rows' become what the first row's are (manual, section 10.5 "UNION, CASE, and Related Constructs").
    typed = (
        f"{sql.literal(value)}::{sql.identifier(one.schema)}.{sql.identifier(one.name)}"
        for value, one in zip(rows[0], map(_base, types), strict=True)
    )
    return ", ".join([f"({', '.join(typed)})", *(f"({', '.join(map(sql.literal, row))})" for row in rows[1:])])


def _base(kind: PgType) -> PgType:
    while kind.base is not None:
        kind = kind.base
    return kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the statements of a copy name, as its snapshot shows the catalog.

    A partition that was dropped meanwhile is passed over: what was read of it was compared by each range.
    """

    table: TableName
    oid: int
    oids: frozenset[int]  #: those of all partitions, too
    seen: frozenset[entries.Entry] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, connection: psycopg.Connection[Any], table: SourceTable) -> Names:
        """Return the names of a table and its partitions.

        Args:
            connection: A session under the snapshot.
            table: As it was seen there.

        Raises:
            SourceError: The query failed.
        """
        return cls.of_all(connection, [table])[table.relation.oid]

    @classmethod
    def of_all(cls, connection: psycopg.Connection[Any], tables: Iterable[SourceTable]) -> Mapping[int, Names]:
        """Return those of several tables, by their OIDs; see `of`."""
        oids_of = {
            table.relation.oid: (table.table, frozenset({table.relation.oid, *(leaf.oid for leaf in table.leaves)}))
            for table in tables
        }
        found: dict[int, set[entries.Entry]] = collections.defaultdict(set)
        for entry in entries.load(connection, frozenset().union(*(oids for _, oids in oids_of.values()))):
            found[entry[0]].add(entry)
        return {
            oid: cls(table=name, oid=oid, oids=oids, seen=frozenset().union(*(found[each] for each in oids)))
            for oid, (name, oids) in oids_of.items()
        }

    @staticmethod
    def unchanged(connection: psycopg.Connection[Any], names: Iterable[Names]) -> frozenset[int]:
        """Return the OIDs of those that `check_in` takes, in an ordinary session.

        Raises:
            SourceError: The query failed.
        """
        asked = list(names)
        now = entries.load(connection, frozenset().union(*(one.oids for one in asked)))
        return frozenset(one.oid for one in asked if not entries.changed(one.seen, now, one.oid))

    def check(self, url: str, hint: str = _MOVED_HINT) -> None:
        """Make sure that all that was read up to now was read of what the snapshot shows.

        Args:
            url: The url of an ordinary session at the same server, outside the snapshot.
            hint: What follows.

        Raises:
            SourceError: Nobody knows, for a name was given to something else, or an entry was altered.
        """
        with contextlib.closing(conninfos.connect(url)) as connection:
            self.check_in(connection, hint)

    def check_in(self, connection: psycopg.Connection[Any], hint: str = _MOVED_HINT) -> None:
        """Do what `check` does, in an ordinary session that is there."""
        now = entries.load(connection, self.oids)
        if changed := entries.changed(self.seen, now, self.oid):
            which = ", ".join(map(str, changed))
            what = f"cannot read {self.table} as it was: {which} was altered or renamed meanwhile"
            message = f"{conninfos.place(connection)}: {what}"
            raise SourceError(message, hint=hint)


def opening(snapshot_name: str) -> str:
    """Return the statements that begin a transaction under an exported snapshot."""
    return f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {sql.literal(snapshot_name)};"


@contextlib.contextmanager
def under(connection: psycopg.Connection[Any], snapshot_name: str) -> Iterator[None]:
    """Have an ordinary session in autocommit be under the snapshot for as long as the context lasts.

    Raises:
        SourceError: The server or the snapshot is gone.
    """
    _use(connection, snapshot_name)
    yield
    with failure.translated(conninfos.place(connection), f"let go of snapshot {snapshot_name}"):
        connection.execute(LEAVING)


@contextlib.contextmanager
def session(url: str, snapshot_name: str) -> Iterator[psycopg.Connection[Any]]:
    """Give a session in a transaction under the snapshot: for the catalog as the snapshot knows it.

    Raises:
        SourceError: The server or the snapshot is gone.
        SourceRefused: The server turns us away.
    """
    with contextlib.closing(conninfos.connect(url)) as connection:
        _use(connection, snapshot_name)
        yield connection


def _use(connection: psycopg.Connection[Any], snapshot_name: str) -> None:
    with failure.translated(conninfos.place(connection), f"use snapshot {snapshot_name}"):
        connection.execute(opening(snapshot_name))
