"""The part of the pre-flight that looks at the standby which tables are copied from (`copy.from`)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kuvasz import lsn
from kuvasz.shown import figures
from kuvasz.source import conninfo as conninfos
from kuvasz.source import slots, sql, standby
from kuvasz.source.catalog import introspect
from kuvasz.source.check.finding import Finding, PreflightReport, Severity

if TYPE_CHECKING:
    from collections.abc import Collection

    from kuvasz.config.secrets import SecretUrl
    from kuvasz.model import TableName

#: A copy begins when the standby has what its slot begins with.
_LATE_BYTES = 1 << 30

_STANDBY = """
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn()::text, current_setting('hot_standby_feedback')::bool,
    (SELECT setting::int FROM pg_settings WHERE name = 'max_standby_streaming_delay')
"""

_UNREADABLE = """
SELECT wanted.name FROM unnest(%s::text[]) AS wanted (name)
WHERE NOT coalesce(has_table_privilege(to_regclass(wanted.name), 'SELECT'), true)
"""


def check_standby(
    source: str, primary: str, url: str, tables: Collection[TableName], role: SecretUrl | None = None
) -> list[Finding]:
    """Return every finding about the standby of a source; raises nothing that can be a finding.

    Args:
        source: The name of the source's slot.
        primary: The url of the source.
        url: The url of the standby.
        tables: The tables that are copied.
        role: Who asks which cluster a server is of, if that is another role (`kuvasz.source.slots`).

    Raises:
        ConfigError: A url cannot be read.
    """
    report = PreflightReport(source, conninfos.location(url))

    def look() -> None:
        with contextlib.closing(conninfos.connect(primary)) as connection:
            is_primary = not introspect.server(connection).is_in_recovery
            written = introspect.wal_end(connection)
        ours, other = (standby.cluster(slots.laid_over(one, role)) for one in (primary, url))
        why = standby.why_other(ours, other, is_far=False)
        with contextlib.closing(conninfos.connect(url)) as connection:
            ((is_standby, replayed, feedback, delay_ms),) = connection.execute(_STANDBY).fetchall()
            names = [sql.qualified(table) for table in tables]
            unreadable = [name for (name,) in connection.execute(_UNREADABLE, (names,)).fetchall()]
            user = connection.info.user
        if not why and is_primary and not is_standby:
            why = "it is no standby: it is not in recovery"
        report.add(
            "copy_from", why or report.location, "a standby of the source's server", ok=not why,
            fix=standby.STANDBY_HINT,
        )  # fmt: skip
        if why:
            return
        lacks = max(0, written - (lsn.parse(replayed) if replayed else 0))
        report.add(
            "copy_from_lag", f"{figures.size(lacks)} behind", f"less than {figures.size(_LATE_BYTES)} behind",
            ok=lacks < _LATE_BYTES, severity=Severity.ADVICE, fix=f"a copy waits for it: {standby.LATE_HINT}",
        )  # fmt: skip
        report.add(
            "hot_standby_feedback", "on" if feedback else "off", "on", ok=feedback or delay_ms < 0,
            severity=Severity.ADVICE,
            fix="ALTER SYSTEM SET hot_standby_feedback = 'on'; SELECT pg_reload_conf(); -- at the standby: without it"
            f" what the primary vacuums ends a copy after {delay_ms / 1000:g} s (max_standby_streaming_delay)",
        )  # fmt: skip
        for name in unreadable:
            report.add(
                "select", f"{user}: no", f"SELECT on {name} at the standby", ok=False,
                fix=f"GRANT SELECT ON {name} TO {sql.identifier(user)};",
            )  # fmt: skip

    report.run("copy_from", "a standby of the source's server", look)
    return report.findings


__all__ = ["check_standby"]
