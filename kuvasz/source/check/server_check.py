"""The part of the pre-flight that looks at a server, the way to it, and the role."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from psycopg import pq

from kuvasz.source import conninfo as conninfos
from kuvasz.source import failure, slots, sql
from kuvasz.source.catalog import introspect
from kuvasz.source.check import transport
from kuvasz.source.check.finding import Severity

if TYPE_CHECKING:
    import psycopg

    from kuvasz.config.secrets import SecretUrl
    from kuvasz.source.catalog.introspect import ServerFacts
    from kuvasz.source.check.finding import PreflightReport

OLDEST_VERSION = 140000

#: The same where changes are staged: before, a stream takes partitions for what they were when it began, and the
#: slot says no more from where the next one begins.
OLDEST_STAGED_VERSION = 150000

#: The same where what came by replication is to be left out: before, pgoutput has no option `origin`.
OLDEST_ORIGIN_VERSION = 160000
NEWEST_MAJOR = 18

#: A slot that may hold less WAL than this is soon lost.
LITTLE_WAL_BYTES = 1 << 30

_RESTART = " -- then restart the server"

# Amazon RDS gives no REPLICATION attribute but a role that stands for it.
_RIGHTS = """
SELECT rolname::text, rolsuper, rolreplication OR rolsuper OR EXISTS (
    SELECT FROM pg_roles r WHERE r.rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER')),
    has_database_privilege(current_database(), 'CREATE')
FROM pg_roles WHERE rolname = current_user
"""

# A member may become any of them by SET ROLE, and use what it has.
_REPLICATING = """
SELECT rolname::text FROM pg_roles
WHERE (rolreplication OR rolsuper OR rolname = 'rds_replication') AND pg_has_role(oid, 'MEMBER')
ORDER BY rolname <> current_user, rolname LIMIT 6
"""

_SESSION = """
SELECT pg_backend_pid(), current_setting('timezone'), current_setting('extra_float_digits'),
    split_part(current_setting('datestyle'), ',', 1), current_setting('bytea_output'),
    current_setting('client_encoding')
"""
_SESSION_NEEDED = ("UTC", "3", "ISO", "hex", "UTF8")

_ORIGINS = "SELECT roname FROM pg_replication_origin ORDER BY roname"

_OLD_TRANSACTIONS = """
SELECT 'pid ' || pid || ' (' || coalesce(usename, '?') || ')',
    extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND clock_timestamp() - xact_start > make_interval(secs => %(age)s)
UNION ALL
SELECT 'prepared transaction ' || quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE clock_timestamp() - prepared > make_interval(secs => %(age)s)
ORDER BY 2 DESC
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the session's role may do, whatever the table."""

    role: str
    is_superuser: bool = False
    may_replicate: bool = False
    may_create: bool = False  #: CREATE on the database


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What the map wants of a server's stream that not every version has."""

    is_staged: bool = False  #: what it sends is staged in the lake's store
    is_own_alone: bool = False  #: it is to be without what came to the source by replication
    role: SecretUrl | None = None  #: who replicates, if that is another role than the one that reads
    is_heard: bool = False  #: it is another group's, whose publication this map's has to be like


ANYTHING = StreamOptions()


class ServerCheck:
    """Looks at one server through an open session.

    Args:
        report: Where it tells what it finds.
        connection: The session, of the role that reads.
        url: The url of that.
        old_transaction_s: From which age on a running transaction is told.
        wanted: What the map wants of the stream.

    Attributes:
        facts: What the server says of itself, after `run`; None if it could not be asked.
        rights: What the role may do.
    """

    def __init__(
        self,
        report: PreflightReport,
        connection: psycopg.Connection[Any],
        url: str,
        *,
        old_transaction_s: float,
        wanted: StreamOptions = ANYTHING,
    ) -> None:
        self._report = report
        self._connection = connection
        self._url = url
        self._old_transaction_s = old_transaction_s
        self._wanted = wanted
        self.facts: ServerFacts | None = None
        self.rights = Rights(role=connection.info.user)

    @property
    def _replication_url(self) -> str:
        return slots.laid_over(self._url, self._wanted.role)

    @property
    def is_primary(self) -> bool:
        """Whether publications can be made there."""
        return self.facts is None or not self.facts.is_in_recovery

    def run(self) -> None:
        """Carry out every check."""
        run = self._report.run
        run("sslmode", transport.VERIFIED, self._transport)
        run("server", "its settings", self._server)
        run("session", "settings of its own", self._session)
        run("replication_privilege", "REPLICATION", self._role)
        run("replication", "a replication session", self._replication)
        run("slot", "free or ours", self._slot)
        run("transactions", "none that is old", self._transactions)
        if self._wanted.is_own_alone:
            run("origin", "no rows that came by replication", self._origin)

    def _transport(self) -> None:
        pgconn = self._connection.pgconn
        mode = next((option.val or b"" for option in pgconn.info if option.keyword == b"sslmode"), b"").decode()
        address = pgconn.hostaddr.decode() or pgconn.host.decode()
        weakness = transport.weakness(address, mode, is_encrypted=bool(pgconn.ssl_in_use))
        needed = f"{transport.VERIFIED}, or a server of this machine"
        self._report.add(
            "sslmode", f"{mode}: {weakness}" if weakness else mode, needed, ok=not weakness, severity=Severity.ADVICE,
            fix="add sslmode=verify-full&sslrootcert=<file with the server's authority> to the url"
            " (sslrootcert=system for a public one)",
        )  # fmt: skip

    def _server(self) -> None:
        facts = self.facts = introspect.server(self._connection)
        add = self._report.add
        self._version(facts)
        add(
            "wal_level", facts.wal_level, "logical", ok=facts.wal_level == "logical",
            fix=failure.WAL_LEVEL_SQL + _RESTART,
        )  # fmt: skip
        add(
            "recovery", "standby" if facts.is_in_recovery else "primary", "primary", ok=not facts.is_in_recovery,
            fix="give the primary's url (target_session_attrs=read-write finds it among several hosts)",
        )  # fmt: skip
        add(
            "senders", f"{facts.used_senders} of {facts.max_senders} used", "1 free",
            ok=facts.used_senders < facts.max_senders,
            fix=failure.MORE_SENDERS_SQL.format(senders=facts.max_senders + 10) + _RESTART,
        )  # fmt: skip
        keep_bytes = facts.max_slot_wal_keep_bytes
        add(
            "max_slot_wal_keep_size", "unlimited" if keep_bytes is None else f"{keep_bytes >> 20}MB",
            f"at least {LITTLE_WAL_BYTES >> 20}MB", ok=keep_bytes is None or keep_bytes >= LITTLE_WAL_BYTES,
            severity=Severity.ADVICE,
            fix="ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf();",
        )  # fmt: skip

    def _version(self, facts: ServerFacts) -> None:
        add = self._report.add
        staged = self._wanted.is_staged
        oldest = OLDEST_STAGED_VERSION if staged else OLDEST_VERSION
        fix = "upgrade the server, or leave cluster.log out" if staged else "upgrade the server"
        add("version", facts.version_text, f"{oldest // 10_000} or newer", ok=facts.version >= oldest, fix=fix)
        if facts.major > NEWEST_MAJOR:
            add(
                "version", facts.version_text, f"{NEWEST_MAJOR} or older is tested", ok=False,
                severity=Severity.ADVICE, fix="use a kuvasz that knows this version",
            )  # fmt: skip
        add(
            "encoding", facts.encoding, "a real encoding", ok=facts.encoding != "SQL_ASCII",
            severity=Severity.ADVICE,
            fix="a text that is not UTF-8 stops its table; mend the texts, or the database's encoding",
        )  # fmt: skip

    def _session(self) -> None:
        if conninfos.asks_for_replication(self._url):
            self._report.add(
                "url", "it has the parameter replication", "none", ok=False, severity=Severity.ADVICE,
                fix="take it out: kuvasz opens the sessions that it needs by itself, and ignores it",
            )  # fmt: skip
        row = self._connection.execute(_SESSION).fetchone()
        pid, *settings = row or (0,)
        is_direct = pid == self._connection.info.backend_pid
        self._report.add(
            "direct", "the server itself" if is_direct else "a pooler in between", "the server itself",
            ok=is_direct,
            fix="give the url of the server itself: a pooler carries neither replication nor exported snapshots",
        )  # fmt: skip
        self._report.add(
            "session", ", ".join(settings), ", ".join(_SESSION_NEEDED), ok=tuple(settings) == _SESSION_NEEDED,
            fix="let the startup options through: a pooler that ignores them changes how values are printed",
        )  # fmt: skip

    def _role(self) -> None:
        self.rights = rights = _rights_of(self._connection)
        if self._wanted.role is not None:
            self._not_needed()
            with contextlib.closing(conninfos.connect(self._replication_url)) as connection:
                rights = _rights_of(connection)
        name, may = sql.identifier(rights.role), rights.may_replicate
        self._report.add(
            "replication_privilege", f"{rights.role}: {'yes' if may else 'no'}", "REPLICATION", ok=may,
            fix=f"ALTER ROLE {name} REPLICATION; -- on Amazon RDS: GRANT rds_replication TO {name};",
        )  # fmt: skip

    def _not_needed(self) -> None:
        """Tell whether the role that reads still has what another one is there for."""
        found = [name for (name,) in self._connection.execute(_REPLICATING).fetchall()]
        own, others = self.rights.role in found, [name for name in found if name != self.rights.role]
        told = [*(["yes"] if own else []), *([f"as member of {', '.join(others)}"] if others else [])]
        name = sql.identifier(self.rights.role)
        mends = [f"ALTER ROLE {name} NOSUPERUSER NOREPLICATION;"] if own else []
        if not self.rights.is_superuser:  # who is a member of all
            mends += [f"REVOKE {sql.identifier(other)} FROM {name};" for other in others]
        self._report.add(
            "reading_privilege", f"{self.rights.role}: {'; '.join(told) or 'no'}", "no REPLICATION", ok=not found,
            severity=Severity.ADVICE,
            fix=f"{' '.join(mends)} -- replication_url has it, and functions of the tables' owners run as who reads",
        )  # fmt: skip

    def _replication(self) -> None:
        doing = "open a replication session"
        pgconn = conninfos.connect_pq(conninfos.replication_conninfo(self._replication_url), doing)
        try:
            with failure.translated(self._report.location, doing):
                result = conninfos.execute(pgconn, "IDENTIFY_SYSTEM")
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise failure.of(None, result.get_error_message(), place=self._report.location, doing=doing)
            found = int(result.get_value(0, 0) or b"0")
        finally:
            pgconn.finish()
        expected = found if self.facts is None else self.facts.system_identifier
        self._report.add(
            "replication", f"system {found}", f"system {expected}", ok=found == expected,
            fix="both kinds of session must reach one server: give a url that has a single host",
        )  # fmt: skip

    def _slot(self) -> None:
        name = self._report.source
        state = slots.describe(self._connection, name)
        if state is None:
            self._free_slots()
            return
        here = self._connection.info.dbname
        others = state.why_foreign or ("" if state.database == here else f"it is of database {state.database}")
        why = others or state.why_lost
        then = "if nobody needs it; else give the source another sid" if others else "then copy the source again"
        self._report.add(
            "slot", why or "present", "usable", ok=not why,
            fix=f"SELECT pg_drop_replication_slot({sql.literal(name)}); -- {then}",
        )  # fmt: skip
        pid = state.active_pid
        self._report.add(
            "slot_in_use", "no" if pid is None else f"by pid {pid}", "no", ok=pid is None,
            severity=Severity.ADVICE,
            fix="this source runs already, or another reader has its slot; to end that one:"
            f" SELECT pg_terminate_backend({pid});",
        )  # fmt: skip

    def _free_slots(self) -> None:
        if self.facts is None:
            return
        used, most = self.facts.used_slots, self.facts.max_slots
        self._report.add(
            "slots", f"{used} of {most} used", "1 free", ok=used < most,
            fix=failure.MORE_SLOTS_SQL.format(slots=most + 10) + _RESTART,
        )  # fmt: skip

    def _origin(self) -> None:
        if self.facts is not None:
            self._report.add(
                "version", self.facts.version_text, "16 or newer for `origin: none`",
                ok=self.facts.version >= OLDEST_ORIGIN_VERSION,
                fix="upgrade the server, or leave `origin: none` out",
            )  # fmt: skip
        names = [name for (name,) in self._connection.execute(_ORIGINS).fetchall()]
        self._report.add(
            "origin", f"rows came from {', '.join(names[:5])}" if names else "none", "none", ok=not names,
            severity=Severity.ADVICE,
            fix="nobody can tell such rows from others when a table is copied or compared: they are in the copy, and"
            " `origin: none` leaves out their later changes alone; a `filter` leaves them out of both",
        )  # fmt: skip

    def _transactions(self) -> None:
        rows = self._connection.execute(_OLD_TRANSACTIONS, {"age": self._old_transaction_s}).fetchall()
        value = ", ".join(f"{who} since {age:.0f} s" for who, age in rows[:5]) or "none"
        self._report.add(
            "transactions", value, f"none older than {self._old_transaction_s:.0f} s", ok=not rows,
            severity=Severity.ADVICE, fix="a new slot waits until they end",
        )  # fmt: skip


def _rights_of(connection: psycopg.Connection[Any]) -> Rights:
    row = connection.execute(_RIGHTS).fetchone()
    if row is None:
        return Rights(role=connection.info.user)
    role, is_superuser, may_replicate, may_create = row
    return Rights(role=role, is_superuser=is_superuser, may_replicate=may_replicate, may_create=may_create)
