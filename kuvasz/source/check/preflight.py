"""The pre-flight of a source: everything that replication will need, looked at before anything is touched.

`check_source` only reads. It reports what it can as findings and raises nothing; one session for SQL and one for
the replication protocol are opened and closed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kuvasz.source import conninfo as conninfos
from kuvasz.source import publication
from kuvasz.source.check.finding import Finding, PreflightReport, Severity
from kuvasz.source.check.server_check import ANYTHING, ServerCheck, StreamOptions
from kuvasz.source.check.table_check import TableCheck

if TYPE_CHECKING:
    from collections.abc import Collection

    from kuvasz.model import TableName
    from kuvasz.source.check.table_check import AsPublished

#: A transaction older than this is worth a word: the slot's creation waits for its end.
OLD_TRANSACTION_S = 60.0


def check_source(
    url: str,
    database: str,
    sid: str | None,
    tables: Collection[TableName],
    *,
    inserts_do: Collection[TableName] = (),
    as_published: AsPublished | None = None,
    old_transaction_s: float = OLD_TRANSACTION_S,
    wanted: StreamOptions = ANYTHING,
) -> list[Finding]:
    """Return every finding about a source and its tables, passed or not; raises nothing that can be a finding.

    Args:
        url: Where the source is.
        database: The map's name for it; with `sid` it names slot and publication.
        sid: The source's id, or None.
        tables: The tables that the map wants, each by its own name.
        inserts_do: The tables that may do with INSERTs alone, if they have no key.
        as_published: Gives a table with what its publication is to have of it; all of it by default.
        old_transaction_s: From which age on a running transaction is told.
        wanted: What the map wants of the stream.

    Raises:
        ConfigError: The url cannot be read.
    """
    report = PreflightReport(publication.object_name(database, sid), conninfos.location(url))

    def reach() -> None:
        with contextlib.closing(conninfos.connect(url)) as connection:
            report.add("reachable", report.location, "an answer", ok=True)
            server = ServerCheck(report, connection, url, old_transaction_s=old_transaction_s, wanted=wanted)
            server.run()
            TableCheck(report, connection, server.rights, is_primary=server.is_primary, is_heard=wanted.is_heard).run(
                tables, inserts_do, as_published
            )

    report.run("reachable", "an answer", reach)
    return report.findings


__all__ = ["OLD_TRANSACTION_S", "Finding", "Severity", "StreamOptions", "check_source"]
