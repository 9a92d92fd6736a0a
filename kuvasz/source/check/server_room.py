"""The part of the pre-flight that counts what all sources of a map need of one server together.

Each source by itself finds a free slot; a thousand of them may not. And a slot that nobody reads any more, of a
source that left the map, keeps WAL until the disk is full: nobody but the server knows of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from kuvasz.config import names
from kuvasz.errors import KuvaszError
from kuvasz.source import conninfo as conninfos
from kuvasz.source import failure, sql
from kuvasz.source.check.finding import Finding, PreflightReport, Severity

if TYPE_CHECKING:
    from collections.abc import Collection

#: Sessions besides the streams that the sources of one server have at most, and slots of copies that come and go
#: there; see `kuvasz.sync.context.source_threads`. One more is of a copy that goes on, while it learns what changed
#: since it was cut off (`kuvasz.sync.tables.copy_ledgers`).
SESSIONS = 16
SNAPSHOTS = 2
GOING_ON = 1

_RESTART = " -- then restart the server"

# Sessions that stream are not among max_connections (manual, section 19.6.1 "Sending Servers"); what is reserved is
# for others. Whose sessions those of others are is hidden from a plain role, how many there are is not.
_ROOM = """
SELECT current_setting('max_replication_slots')::int AS max_slots,
    (SELECT count(*)::int FROM pg_replication_slots) AS used_slots,
    (SELECT count(*)::int FROM pg_replication_slots WHERE slot_name = ANY(%(ours)s)) AS our_slots,
    current_setting('max_wal_senders')::int AS max_senders,
    (SELECT count(*)::int FROM pg_stat_get_wal_senders()) AS used_senders,
    (SELECT count(*)::int FROM pg_replication_slots WHERE slot_name = ANY(%(ours)s) AND active) AS our_senders,
    (SELECT sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END)::int FROM pg_settings
        WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')) AS max_sessions,
    (SELECT sum(numbackends)::int FROM pg_stat_database WHERE datid <> 0)
        - (SELECT count(*)::int FROM pg_replication_slots WHERE active AND slot_type = 'logical') - 1 AS used_sessions
"""

# Of the plugin and with the prefix of ours; a temporary one goes with its session.
_LEFT = r"""
SELECT slot_name::text, database::text, pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)::bigint
FROM pg_replication_slots
WHERE slot_name LIKE %(prefix)s AND plugin = 'pgoutput' AND NOT temporary AND NOT active
    AND slot_name <> ALL(%(ours)s)
ORDER BY 3 DESC NULLS LAST, 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Count:
    """Slots, senders or sessions: how many there may be, how many are in use, and how many of these are ours."""

    most: int
    used: int
    ours: int

    def finding(self, report: PreflightReport, check: str, needed: int, fix: str) -> None:
        """Tell whether those that we do not have yet find room."""
        free, missing = self.most - self.used, max(0, needed - self.ours)
        report.add(
            check, f"{free} of {self.most} free", f"{missing} free, for all sources there", ok=missing <= free,
            severity=Severity.ADVICE, fix=fix,
        )  # fmt: skip


def check_server(url: str, ours: Collection[str], count: int) -> list[Finding]:
    """Return what the sources of one server need of it together; nothing if it does not answer.

    Args:
        url: The url of one of the sources.
        ours: Names of the slots of all sources of the map, at whichever server.
        count: How many of them are there.

    Raises:
        ConfigError: The url cannot be read.
    """
    report = PreflightReport(conninfos.servers(url), conninfos.location(url))
    with (  # what is in the way of a session, the checks of the sources say
        contextlib.suppress(KuvaszError),
        failure.contained(report.location),
        failure.translated(report.location, "count what a server has room for"),
        contextlib.closing(conninfos.connect(url)) as connection,
    ):
        row = connection.execute(_ROOM, {"ours": list(ours)}).fetchone()
        assert row is not None
        slots, senders = _Count(*row[:3]), _Count(*row[3:6])
        sessions = _Count(most=row[6], used=row[7], ours=0)
        # While a slot is made its session is a sender, too.
        needed = count + SNAPSHOTS + GOING_ON
        slots.finding(report, "slots", needed, _more(failure.MORE_SLOTS_SQL, slots.used + needed))
        senders.finding(report, "senders", needed, _more(failure.MORE_SENDERS_SQL, senders.used + needed))
        sessions.finding(
            report, "connections", SESSIONS,
            f"ALTER SYSTEM SET max_connections = {sessions.used + 2 * SESSIONS};{_RESTART}",
        )  # fmt: skip
        left = connection.execute(_LEFT, {"ours": list(ours), "prefix": f"{names.PREFIX}%"}).fetchall()
        _tell_left(report, left)
    return report.findings


def _more(statement: str, needed: int) -> str:
    return statement.format(slots=needed + 10, senders=needed + 10) + _RESTART


def _tell_left(report: PreflightReport, left: list[tuple[str, str, int | None]]) -> None:
    shown = [f"{name} of database {database}, {(kept or 0) >> 20} MB of WAL" for name, database, kept in left]
    report.add(
        "slots_left", "; ".join(shown[:10]) + (f"; and {len(shown) - 10} more" if len(shown) > 10 else "") or "none",
        "none of kuvasz's that nobody reads", ok=not left, severity=Severity.ADVICE,
        fix="if no other kuvasz reads them: "
        + " ".join(f"SELECT pg_drop_replication_slot({sql.literal(name)});" for name, _, _ in left[:10]),
    )  # fmt: skip


__all__ = ["GOING_ON", "SESSIONS", "SNAPSHOTS", "check_server"]
