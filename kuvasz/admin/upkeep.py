"""What is said of the tables' files: for ``/status``, for the metrics, and what comes of asking for maintenance."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from kuvasz.admin import exposition
from kuvasz.errors import KuvaszError
from kuvasz.ports import Maintenance, Upkeep

#: Metric -> help, and the field of `Upkeep` it shows. Those of rows and bytes that add up are counters.
GAUGES = {
    "kuvasz_table_files": ("Live data files of the table.", "files"),
    "kuvasz_table_bytes": ("Bytes in live data files of the table.", "bytes"),
    "kuvasz_table_rows": ("Rows in live data files of the table, dead ones included.", "rows"),
    "kuvasz_table_dead_rows": ("Rows in live data files that are replaced or deleted.", "dead_rows"),
    "kuvasz_table_delete_files": ("Data files of the table that a reader has to read deletes for.", "delete_files"),
    "kuvasz_table_snapshots": ("Snapshots of the table.", "snapshots"),
    "kuvasz_last_rewrite_timestamp_seconds": ("Unix time at which files were last written anew.", "last_at"),
    "kuvasz_next_maintenance_timestamp_seconds": ("Unix time at which the table is looked at next.", "next_at"),
    "kuvasz_maintenance_failing": ("1 while the last look at the table's files failed.", "is_failing"),
}
COUNTERS = {
    "kuvasz_rewrites": ("Commits since the start that only exchanged files.", "rewrites"),
    "kuvasz_changed_bytes": ("Bytes of data files written since the start for changes and copies.", "changed_bytes"),
    "kuvasz_rewritten_bytes": ("Bytes of data files written since the start by maintenance.", "rewritten_bytes"),
}


def as_json(upkeep: Upkeep) -> dict[str, Any]:
    """Return one table, ready for JSON."""
    return {
        **dataclasses.asdict(upkeep),
        "average_bytes": upkeep.bytes // upkeep.files if upkeep.files else 0,
        "dead_share": round(upkeep.dead_rows / upkeep.rows, 4) if upkeep.rows else 0.0,
        "last_at": _instant(upkeep.last_at),
        "next_at": _instant(upkeep.next_at),
    }


def metrics(tables: Iterable[Upkeep]) -> Iterator[str]:
    """Return the metrics of all tables."""
    known = list(tables)
    for kind, suffix, named in (("gauge", "", GAUGES), ("counter", "_total", COUNTERS)):
        for name, (text, field) in named.items():
            samples = [((upkeep.target,), getattr(upkeep, field)) for upkeep in known]
            yield exposition.family(f"{name}{suffix}", text, kind, ("table",), samples)


def maintain(maintenance: Maintenance, target: str, *, full: bool) -> dict[str, Any] | None:
    """Look after a table now; None if it has no files to look after. Blocks."""
    try:
        upkeep = maintenance.run(target, full=full)
    except KuvaszError as error:
        return {"target": target, "error": str(error)}
    return None if upkeep is None else dataclasses.asdict(upkeep)


def _instant(unix_s: float | None) -> str | None:
    if unix_s is None:
        return None
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).isoformat(timespec="milliseconds")
