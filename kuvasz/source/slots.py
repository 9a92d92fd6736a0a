"""Logical replication slots: create with an exported snapshot, look at, drop.

A slot created with ``SNAPSHOT 'export'`` names a snapshot that shows exactly what committed before the slot's
consistent point: the one correct border between copy and stream. The snapshot lives until the next command on the
connection that created it, so `ExportedSnapshot` keeps that connection open and idle (manual, section 55.4
"Streaming Replication Protocol").
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
import time
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg import errors, pq

from kuvasz import lsn
from kuvasz.errors import SlotLost, SourceError, SourceRefused
from kuvasz.source import commit_status, failure, sql
from kuvasz.source import conninfo as conninfos
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from kuvasz.config.secrets import SecretUrl
    from kuvasz.config.sources import Source
    from kuvasz.model import PgType
    from kuvasz.source.window import Window

PLUGIN = "pgoutput"

#: Characters of a text that a server says of slots and sessions: names have 63 bytes, transactions 200.
_MOST_TEXT = 1024

_XID_MASK = (1 << 32) - 1  #: of a transaction's number without its epoch

_OPTION_LIST_SINCE = 150000
_FAILOVER_SINCE = 170000

#: When the server was started, µs since 1970 UTC (manual, section 9.27 "System Information Functions").
STARTED_US = "(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint"

# to_jsonb, so that columns a version lacks are simply absent.
_DESCRIBE = """
SELECT s.slot_name::text, to_jsonb(s), pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
    s.restart_lsn)::bigint,
    CASE WHEN NOT pg_is_in_recovery() THEN
        json_build_array(extract(epoch FROM statement_timestamp())::float8, pg_current_wal_insert_lsn()::text) END
FROM pg_replication_slots s WHERE s.slot_name = ANY(%s)
"""

# Begin has the LSN of its commit record behind its first byte (manual, section 55.9). What has been decoded is thrown
# away, so there is little between the slot and here, or much to decode.
_COMMITS = """
SELECT count(*) FROM pg_logical_slot_peek_binary_changes({slot}, {end}, NULL,
    'proto_version', '1', 'publication_names', {publications})
WHERE get_byte(data, 0) = ascii('B') AND substring(data FROM 2 FOR 8) BETWEEN {first}::bytea AND {last}::bytea
"""

_SESSION = """
a.usename::text, a.application_name, a.datname::text, extract(epoch FROM clock_timestamp() - a.xact_start)::float8
"""

_BLOCKERS = f"""
SELECT blocker.pid, {_SESSION}, CASE WHEN blocker.pid = 0 THEN (
    SELECT p.gid FROM pg_locks l JOIN pg_prepared_xacts p ON p.transaction::text = l.transactionid::text
    WHERE l.pid = %s AND NOT l.granted LIMIT 1) END
FROM unnest(pg_blocking_pids(%s)) AS blocker (pid) LEFT JOIN pg_stat_activity a ON a.pid = blocker.pid
ORDER BY blocker.pid
"""

#: A session that is done with its command, in a transaction if it has exported a snapshot (manual, section 27.2.3,
#: "pg_stat_activity"). How long a slot takes to make has no bound, for it waits for transactions; an answer that is
#: stalled on its way would be waited for as long.
_HAS_ANSWERED = "SELECT FROM pg_stat_activity WHERE pid = %s AND state LIKE 'idle%%' AND backend_type = 'walsender'"

#: Manual, section 9.28.2, "Server Signaling Functions": a role may end sessions of its own.
_END_READER = """
SELECT pg_terminate_backend(a.pid, %s) FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.application_name = current_setting('application_name')
"""

#: Milliseconds for a walsender to end: it may be writing to a socket that nobody reads.
_END_MS = 5000

_COMMITTING = f"""
SELECT a.pid, {_SESSION}, NULL
FROM pg_stat_activity a WHERE a.backend_xid::text::bigint = ANY(%s) ORDER BY a.pid
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """A session whose transaction the creation of a slot waits for."""

    pid: int  #: 0 for a prepared transaction
    role: str | None = None
    application: str | None = None
    database: str | None = None
    transaction_age_s: float | None = None  #: None where the role may not see it
    gid: str | None = None  #: of a prepared transaction

    def describe(self) -> str:
        """Return the blocker in words."""
        if self.pid == 0:
            return "a prepared transaction" + (f", '{self.gid}'" if self.gid else "")
        age = "" if self.transaction_age_s is None else f", running for {self.transaction_age_s:.0f} s"
        return f"pid {self.pid} ({self.role or '?'}, {self.application or '?'}{age})"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A server's clock, and what it had by then: every commit record that was there ends at or before the LSN."""

    at: float  #: unix seconds
    insert_lsn: int  #: where its next record would go, a moment later; what is not written yet included


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """One row of ``pg_replication_slots`` (manual, section 54.19)."""

    name: str
    plugin: str | None
    database: str | None
    is_temporary: bool
    active_pid: int | None
    confirmed_flush_lsn: int | None
    restart_lsn: int | None
    wal_status: str | None  #: reserved, extended, unreserved, lost
    safe_wal_bytes: int | None  #: what may still be written before the slot is in danger; None: without limit
    retained_bytes: int | None  #: WAL held for the slot
    invalidation_reason: str | None = None  #: from version 17 on
    is_conflicting: bool = False  #: from version 16 on: lost by recovery on a standby
    inactive_since: str | None = None  #: from version 17 on, as text
    is_failover: bool = False  #: from version 17 on
    is_synced: bool = False  #: from version 17 on: a copy, on a standby, of its primary's
    clock: Clock | None = None  #: None: not asked for, or a standby, whose commits have the times of its primary

    @property
    def why_lost(self) -> str:
        """Why no changes can be read from it any more; empty if they can."""
        if self.invalidation_reason:
            return f"it was invalidated: {self.invalidation_reason}"
        if self.wal_status == "lost":
            return "the server removed WAL that it needed (max_slot_wal_keep_size)"
        if self.is_conflicting:
            return "it conflicted with recovery"
        return ""

    @property
    def why_foreign(self) -> str:
        """Why it is not a slot of ours; empty if it may be."""
        if self.plugin is None:
            return "it is a physical slot"
        return "" if self.plugin == PLUGIN else f"its plugin is {self.plugin}, not {PLUGIN}"


class ExportedSnapshot:
    """A new slot's snapshot. Alive while this is open; use as a context manager.

    A temporary slot goes with it, a permanent one stays.

    Attributes:
        slot: The slot's name.
        snapshot_name: For ``SET TRANSACTION SNAPSHOT``.
        consistent_point: The LSN that borders on the snapshot: what commits later is streamed.
        taken_us: When it was taken, by the source's clock, µs since 1970 UTC.
        started_us: When the server was started that has it, the same.
    """

    def __init__(
        self,
        pgconn: pq.abc.PGconn,
        *,
        slot: str,
        snapshot_name: str,
        consistent_point: int,
        taken_us: int,
        started_us: int,
    ) -> None:
        self._pgconn = pgconn
        self.taken_us = taken_us
        self.started_us = started_us
        self.slot = slot
        self.snapshot_name = snapshot_name
        self.consistent_point = consistent_point

    @property
    def is_alive(self) -> bool:
        """Whether the connection that holds the snapshot still stands, as far as the socket tells."""
        if self._pgconn.status != pq.ConnStatus.OK:
            return False
        try:
            self._pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return self._pgconn.status == pq.ConnStatus.OK

    def pinned(self, conninfo: str) -> str:
        """Return `conninfo` narrowed to the server that knows the snapshot."""
        return conninfos.pinned(conninfo, self._pgconn)

    def window(
        self,
        publications: Sequence[str],
        oid: int,
        types: Callable[[list[int]], dict[int, PgType]],
        source: str,
    ) -> Window:
        """Stream the slot from its consistent point on; the snapshot is gone then, see `kuvasz.source.window`.

        Raises:
            SourceError: The server failed.
        """
        from kuvasz.source.window import Window  # with all that routes, which a process that only reads needs not

        return Window(self._pgconn, self.slot, publications, oid, types, source)

    def commits(self, publications: Sequence[str], first: int, last: int) -> int:
        """Return how many transactions of what is published have commit records that start between two LSNs.

        Both LSNs are included. The slot stays where it is, and nobody may read it; the snapshot is gone then.

        Raises:
            SourceError: The server failed, somebody reads the slot, or it is gone.
        """
        query = _COMMITS.format(
            slot=sql.literal(self.slot), publications=sql.literal(",".join(map(sql.identifier, publications))),
            end=sql.literal(lsn.render(last + 1)), first=f"'\\x{first:016x}'", last=f"'\\x{last:016x}'",
        )  # fmt: skip
        doing = f"look into slot {self.slot}"
        place = f"{self._pgconn.host.decode()}:{self._pgconn.port.decode()}"
        with failure.translated(place, doing):
            result = conninfos.execute(self._pgconn, query)
        value = result.get_value(0, 0) if result.status == pq.ExecStatus.TUPLES_OK else None
        if value is None:
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            text = result.get_error_message()
            error = failure.of(None if state is None else state.decode(), text, place=place, doing=doing)
            if isinstance(
                error, SlotLost
            ):  # whose it is says so where its stream is read; a temporary one is made anew
                raise SourceError(error.message, hint="it is copied again with a new slot")
            raise error
        return int(value)

    def close(self) -> None:
        """Let the snapshot go. May be called again."""
        self._pgconn.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def create(
    conninfo: str,
    name: str,
    *,
    temporary: bool = False,
    failover: bool = False,
    on_waiting: Callable[[tuple[Blocker, ...]], None] | None = None,
    look_every_s: float = 1.0,
    beside: psycopg.Connection[Any] | None = None,
) -> ExportedSnapshot:
    """Create a slot and export its snapshot.

    The server answers once every transaction that runs now has ended, on any database of the cluster; and what the
    snapshot shows is committed for whoever reads it (`kuvasz.source.commit_status`).

    Args:
        conninfo: The conninfo of a replication session: `kuvasz.source.conninfo.replication_conninfo`.
        name: The slot's name.
        temporary: The slot goes when the snapshot is closed.
        failover: Have the slot synchronised to standbys (version 17; ignored for a temporary slot).
        on_waiting: Called about every `look_every_s` while waiting, with the sessions waited for, as far as they
            are known. What it raises ends the waiting, and no slot is left behind.
        look_every_s: How often to look at what is waited for.
        beside: An ordinary session in autocommit that is there already; used if it is at the same server.

    Raises:
        SourceRefused: wal_level, REPLICATION, a free slot or version 17 is missing.
        SourceError: The server failed, or there is a slot of that name.
    """
    pgconn = conninfos.connect_pq(conninfo, f"create slot {name}")
    try:
        command = _command(name, pgconn.server_version, temporary=temporary, failover=failover and not temporary)
        now_us, started_us = _clock(pgconn, conninfo)
        ahead_us = now_us - time.time_ns() // 1000
        result = _wait(pgconn, command, conninfo, on_waiting, look_every_s)
        taken_us = time.time_ns() // 1000 + ahead_us
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise _refusal(result, conninfo, name, pgconn)
        point, snapshot_name = result.get_value(0, 1), result.get_value(0, 2)
        if point is None or snapshot_name is None:
            raise SourceError(f"{conninfos.location(conninfo)}: slot {name} came without a snapshot")
        try:
            _wait_visible(pgconn, conninfo, snapshot_name.decode(), on_waiting, look_every_s, beside)
        except BaseException:
            _give_up(pgconn, name)
            raise
    except BaseException:
        pgconn.finish()
        raise
    return ExportedSnapshot(
        pgconn,
        slot=name,
        snapshot_name=snapshot_name.decode(),
        consistent_point=lsn.parse(point.decode()),
        taken_us=taken_us,
        started_us=started_us,
    )


def describe(connection: psycopg.Connection[Any], name: str) -> SlotState | None:
    """Return the slot's state, or None if there is none of that name.

    Raises:
        SourceError: The query failed.
    """
    return describe_all(connection, [name]).get(name)


def describe_all(connection: psycopg.Connection[Any], names: Sequence[str]) -> dict[str, SlotState]:
    """Return the states of those slots of a server that are there, of whichever database, by name.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), f"read slot {', '.join(names[:1])}"):
        rows = connection.execute(_DESCRIBE, (list(names),)).fetchall()
    return {
        name: dataclasses.replace(
            state_of(name, facts, retained_bytes),
            clock=None if clock is None else Clock(at=clock[0], insert_lsn=lsn.parse(clock[1])),
        )
        for name, facts, retained_bytes, clock in rows
    }


def state_of(name: str, facts: Mapping[str, Any], retained_bytes: int | None = None) -> SlotState:
    """Return a slot's state from its row of ``pg_replication_slots`` as JSON.

    Raises:
        SourceError: No server has such a slot: it would be in the status of all sources.
    """
    for field, value in facts.items():
        if isinstance(value, str) and len(value) > _MOST_TEXT:
            raise SourceError(
                f"slot {name}: its {field} has {len(value):,} characters",
                hint="something else than a PostgreSQL server answers; it is tried again",
            )
    return SlotState(
        name=name, plugin=facts["plugin"], database=facts["database"], is_temporary=facts["temporary"],
        active_pid=facts["active_pid"], confirmed_flush_lsn=_lsn(facts["confirmed_flush_lsn"]),
        restart_lsn=_lsn(facts["restart_lsn"]), wal_status=facts["wal_status"],
        safe_wal_bytes=facts["safe_wal_size"], retained_bytes=retained_bytes,
        invalidation_reason=facts.get("invalidation_reason"), is_conflicting=bool(facts.get("conflicting")),
        inactive_since=facts.get("inactive_since"), is_failover=bool(facts.get("failover")),
        is_synced=bool(facts.get("synced")),
    )  # fmt: skip


def timeline_history(url: str, timeline: int) -> str:
    """Return the history file of a timeline (manual, section 55.4, TIMELINE_HISTORY).

    Args:
        url: The url of the source.
        timeline: The number of the timeline.

    Raises:
        SourceError: The server failed.
    """
    conninfo = conninfos.replication_conninfo(url)
    pgconn = conninfos.connect_pq(conninfo, "read a timeline's history")
    try:
        with failure.translated(conninfos.location(conninfo), "read a timeline's history"):
            result = conninfos.execute(pgconn, f"TIMELINE_HISTORY {int(timeline)}")
        if result.status != pq.ExecStatus.TUPLES_OK:
            text = result.get_error_message()
            raise failure.of(None, text, place=conninfos.location(conninfo), doing="read a timeline's history")
        return (result.get_value(0, 1) or b"").decode()
    finally:
        pgconn.finish()


def user(connection: psycopg.Connection[Any], pid: int) -> str:
    """Return in words the session that uses a slot.

    Raises:
        SourceError: The query failed.
    """
    statement = "SELECT concat_ws(', ', usename, application_name, client_addr) FROM pg_stat_activity WHERE pid = %s"
    with failure.translated(place(connection), f"look at session {pid}"):
        row = connection.execute(statement, (pid,)).fetchone()
    return f"pid {pid} ({row[0]})" if row is not None and row[0] else f"pid {pid}"


def end_reader(connection: psycopg.Connection[Any], name: str) -> None:
    """End the walsender that reads a slot, if it was begun as this session was, and wait for its end.

    Raises:
        SourceError: The role may not, or the server failed.
    """
    with failure.translated(place(connection), f"end the session that reads slot {name}"):
        connection.execute(_END_READER, (_END_MS, name))


def exists(connection: psycopg.Connection[Any], name: str) -> bool:
    """Return whether there is a slot of that name.

    Raises:
        SourceError: The query failed.
    """
    return describe(connection, name) is not None


def foreign(state: SlotState, where: str) -> SourceRefused:
    """Return the error of a slot that has our name and is not ours: whatever else is lost, nobody drops it for us.

    Args:
        state: The slot.
        where: The source, as errors name it.
    """
    return SourceRefused(
        f"{where}: slot {state.name} cannot be used: {state.why_foreign}",
        hint="somebody else made it, and may read it: give the group or the `sid` another name in the map;"
        f" or, if nobody needs it any more: SELECT pg_drop_replication_slot({sql.literal(state.name)})",
    )


def drop(connection: psycopg.Connection[Any], name: str) -> bool:
    """Drop the slot; return whether there was one.

    Raises:
        SourceRefused: The role may not, or the slot is not ours.
        SourceError: The slot is in use, or the server failed.
    """
    state = describe(connection, name)
    if state is None:
        return False
    if state.why_foreign:
        raise foreign(state, place(connection))
    with failure.translated(place(connection), f"drop slot {name}", role=connection.info.user):
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
        except errors.UndefinedObject:
            return False
    return True


# The role that replicates, where the map has one for that beside the one that reads (`UrlConfig.replication_url`).
# PostgreSQL runs functions of whoever owns a table as it plans a query on it, by the rights of who asks. So the role
# that looks into tables need not be one that may drop the slots of a whole server: a session of this one reads none.


def laid_over(url: str, role: SecretUrl | None) -> str:
    """Return the connection string by which a server is asked to replicate: another role's, if there is one.

    Args:
        url: The url of who reads, as for `kuvasz.source.conninfo.conninfo`.
        role: Who replicates, if that is somebody else; what its url leaves out is as in the first one.

    Raises:
        ConfigError: A url cannot be read, or a file that holds a part of it.
    """
    return url if role is None else conninfos.overlaid(url, role.get())


def url_of(source: Source) -> str:
    """Return the same for a source, with passwords as they are now.

    Raises:
        ConfigError: A file that holds a part of it cannot be read.
    """
    return laid_over(source.url.get(), source.replication_url)


@contextlib.contextmanager
def slot_session(source: Source, reading: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Give an ordinary session that may drop slots and end who reads them, at the server that another one reached.

    Args:
        source: The source.
        reading: An ordinary session of the role that reads; it is given where the map has no other role.

    Raises:
        ConfigError: A file that holds a part of the url cannot be read.
        SourceError: The server cannot be reached.
    """
    if source.replication_url is None:
        yield reading
        return
    url = conninfos.pinned(url_of(source), reading.pgconn)
    with contextlib.closing(conninfos.connect(url, "open a session of replication_url")) as own:
        yield own


def _command(name: str, version: int, *, temporary: bool, failover: bool) -> str:
    kind = " TEMPORARY" if temporary else ""
    if failover and version < _FAILOVER_SINCE:
        raise SourceRefused(
            f"slot {name} cannot be a failover slot: the server has version {version // 10000}",
            hint="failover slots need PostgreSQL 17; switch the option off",
        )
    if version < _OPTION_LIST_SINCE:
        options = "EXPORT_SNAPSHOT"
    else:
        options = f"(SNAPSHOT 'export'{', FAILOVER true' if failover else ''})"
    return f"CREATE_REPLICATION_SLOT {sql.identifier(name)}{kind} LOGICAL {PLUGIN} {options}"


def _clock(pgconn: pq.abc.PGconn, conninfo: str) -> tuple[int, int]:
    """Return what time it is at the server and when that was started; asked before the snapshot is there.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(conninfos.location(conninfo), "read the clock"):
        result = conninfos.execute(
            pgconn, f"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, {STARTED_US}"
        )
    now, started = (
        (result.get_value(0, 0), result.get_value(0, 1)) if result.status == pq.ExecStatus.TUPLES_OK else (None, None)
    )
    if now is None or started is None:
        raise failure.of(None, result.get_error_message(), place=conninfos.location(conninfo), doing="read the clock")
    return int(now), int(started)


def _wait(
    pgconn: pq.abc.PGconn,
    command: str,
    conninfo: str,
    on_waiting: Callable[[tuple[Blocker, ...]], None] | None,
    look_every_s: float,
) -> pq.abc.PGresult:
    with failure.translated(conninfos.location(conninfo), command), contextlib.ExitStack() as stack:
        pgconn.send_query(command.encode())
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        watcher: psycopg.Connection[Any] | None = None
        working_at = time.monotonic()
        try:
            while pgconn.is_busy():
                if poll.poll(look_every_s * 1000):
                    pgconn.consume_input()
                    continue
                watcher = watcher or stack.enter_context(_watcher(conninfo))
                if watcher.execute(_HAS_ANSWERED, (pgconn.backend_pid,)).fetchone() is None:
                    working_at = time.monotonic()
                elif time.monotonic() - working_at > conninfos.ANSWER_S:
                    what = f"the server has answered, and for {conninfos.ANSWER_S:g} s nothing came of it"
                    raise psycopg.OperationalError(what)
                if on_waiting is not None:
                    on_waiting(_blockers(watcher, pgconn.backend_pid))
        except BaseException:
            # The server does not notice a closed socket while it waits, and would finish the slot later.
            _cancel(pgconn)
            raise
        result = conninfos.answer(pgconn)
        while conninfos.answer(pgconn) is not None:
            pass
    if result is None:
        raise SourceError(f"{conninfos.location(conninfo)}: the connection ended while creating a slot")
    return result


def _wait_visible(
    pgconn: pq.abc.PGconn,
    conninfo: str,
    snapshot_name: str,
    on_waiting: Callable[[tuple[Blocker, ...]], None] | None,
    look_every_s: float,
    beside: psycopg.Connection[Any] | None,
) -> None:
    told = time.monotonic()

    def waiting(xids: set[int]) -> None:
        nonlocal told
        if on_waiting is not None and time.monotonic() - told >= look_every_s:
            told = time.monotonic()
            on_waiting(_committing(session, xids))

    with contextlib.ExitStack() as stack:
        if (
            beside is not None
            and conninfos.is_idle(beside.pgconn)
            and _server_of(beside.pgconn) == _server_of(pgconn)
        ):
            session = beside
        else:
            url = conninfos.pinned(conninfos.plain_conninfo(conninfo), pgconn)
            session = stack.enter_context(conninfos.connect(url))
        commit_status.wait(session, snapshot_name, waiting)


def _server_of(pgconn: pq.abc.PGconn) -> tuple[bytes, bytes, bytes]:
    return pgconn.host, pgconn.hostaddr, pgconn.port


def _give_up(pgconn: pq.abc.PGconn, name: str) -> None:
    """Drop a slot whose snapshot nobody reads: a temporary one would go with its session, another would hold WAL."""
    with contextlib.suppress(psycopg.Error, SourceError):
        conninfos.execute(pgconn, f"DROP_REPLICATION_SLOT {sql.identifier(name)}")


def _watcher(conninfo: str) -> psycopg.Connection[Any]:
    return conninfos.connect(conninfos.plain_conninfo(conninfo))


def _blockers(watcher: psycopg.Connection[Any], pid: int) -> tuple[Blocker, ...]:
    return _found(watcher.execute(_BLOCKERS, (pid, pid)).fetchall())


def _committing(session: psycopg.Connection[Any], xids: set[int]) -> tuple[Blocker, ...]:
    """Return the sessions of transactions that are committed and not over yet, as one that waits for its standby."""
    return _found(session.execute(_COMMITTING, ([xid & _XID_MASK for xid in xids],)).fetchall())


def _found(rows: Sequence[Any]) -> tuple[Blocker, ...]:
    return tuple(
        Blocker(
            pid=blocker,
            role=_cut(role),
            application=_cut(application),
            database=_cut(database),
            transaction_age_s=age,
            gid=_cut(gid),
        )
        for blocker, role, application, database, age, gid in rows
    )


def _cancel(pgconn: pq.abc.PGconn) -> None:
    if pgconn.status != pq.ConnStatus.OK:
        return
    with contextlib.suppress(psycopg.Error):
        conninfos.cancel(pgconn)
        while conninfos.answer(pgconn) is not None:  # until the server has cleaned up
            pass


def _refusal(result: pq.abc.PGresult, conninfo: str, name: str, pgconn: pq.abc.PGconn) -> SourceError:
    state, function = (
        None if (field := result.error_field(field_of)) is None else field.decode(errors="replace")
        for field_of in (pq.DiagnosticField.SQLSTATE, pq.DiagnosticField.SOURCE_FUNCTION)
    )
    return failure.of(
        state, result.get_error_message(), role=pgconn.user.decode(), function=function,
        place=conninfos.location(conninfo), doing=f"create slot {name}",
    )  # fmt: skip


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_MOST_TEXT]


def _lsn(text: str | None) -> int | None:
    return None if text is None else lsn.parse(text)
