"""What is said of a snapshot: the JSON of ``/status`` and the verdicts of ``/livez`` and ``/readyz``. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kuvasz import __version__, lsn
from kuvasz.admin import upkeep
from kuvasz.config import names
from kuvasz.errors import KuvaszError, place_of
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.state.tables import State, TableState

if TYPE_CHECKING:
    from kuvasz.admin.observer import Snapshot
    from kuvasz.parking.logs import ParkedView
    from kuvasz.state.verdicts.verdict import Verdict
    from kuvasz.view import SourceView

#: Longer than any restart or failover of a server that is meant to be noticed by nobody.
SILENCE_S = 300.0

#: Longer than the catalog's and the store's usual bad moments: `kuvasz` retries them by itself.
STANDSTILL_S = 300.0

#: Of the years 1 and 9999.
_FIRST_S, _LAST_S = -62_135_596_800.0, 253_402_300_799.0

#: In place of a message that may quote a row.
WITHHELD = "it may quote a row, so it is shown to those who have the token: kuvasz status"

_NEWLINE = "\n"

_SETTLED = frozenset({State.STREAMING, State.PAUSED, State.ERROR})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """How errors look to who asks."""

    redact: Callable[[str], str] = str  #: takes secrets out
    is_trusted: bool = False  #: he may see what they quote of rows

    def text(self, text: str | None) -> str | None:
        """Return an error that quotes no row."""
        return None if text is None else self.redact(text)

    def row_text(self, text: str | None) -> str | None:
        """Return one that may."""
        return self.text(text) if text is None or self.is_trusted else WITHHELD

    def of(self, error: KuvaszError | None) -> dict[str, Any] | None:
        """Return a table's error."""
        if error is None:
            return None
        message = self.text(error.message) if error.is_public else self.row_text(error.message)
        return {
            "kind": type(error).__name__, "message": message, "hint": self.text(error.hint),
            "retry": error.retry.value,
        }  # fmt: skip


_PLAIN = ErrorView()


def status(snapshot: Snapshot, errors: ErrorView = _PLAIN) -> dict[str, Any]:
    """Return everything there is to know, ready for JSON.

    Args:
        snapshot: The moment.
        errors: How they look to who asks.
    """
    tables_of = snapshot.view.tables_of()
    sources = [source_status(one, tables_of[one.name], snapshot, errors) for one in snapshot.view.sources]
    return status_of(snapshot, sources, errors)


def status_of(snapshot: Snapshot, sources: list[dict[str, Any]], errors: ErrorView = _PLAIN) -> dict[str, Any]:
    """Return the same with other entries of `sources`."""
    view = snapshot.view
    return {
        "version": __version__,
        "phase": view.phase,
        "started_at": instant(snapshot.started_at),
        "at": instant(snapshot.now),
        "waiting_bytes": view.waiting_bytes,
        "memory_bytes": snapshot.memory_bytes,
        "commit_conflicts": view.commit_conflicts,
        "live": not livez(snapshot),
        "ready": not readyz(snapshot),
        "sources": sources,
        "released": [
            {"source": name, "retained_bytes": slot.retained_bytes}
            for name in view.released
            if (slot := snapshot.facts[name].slot) is not None
        ],
        "log": _log(snapshot, errors),
        "maintenance": [upkeep.as_json(table) | {"error": errors.row_text(table.error)} for table in view.upkeep],
    }


def livez(snapshot: Snapshot) -> list[str]:
    """Return why kuvasz should be started anew; nothing if it lives."""
    reasons = []
    silence_s = snapshot.clock - snapshot.heard_at
    if silence_s > SILENCE_S:
        reasons.append(f"nothing came from any source for {silence_s:.0f} s")
    standstill_s = snapshot.clock - snapshot.moved_at
    if standstill_s > STANDSTILL_S:
        reasons.append(f"changes wait and nothing was committed for {standstill_s:.0f} s")
    return reasons


def readyz(snapshot: Snapshot) -> list[str]:
    """Return what is still on its way: a table is settled when it streams, is paused, or has an error to show.

    A source in error is named with it, if it waits for a person or has tables that are not settled; one that is tried
    again with its tables where they were is no reason to take kuvasz out. Of one that does not stream and has no
    tables yet, as they come of patterns, schemas or regular expressions, nobody knows which there are.
    """
    view = snapshot.view
    if view.phase != "running":
        return [f"kuvasz is {view.phase}"]
    unsettled = [table for table in view.tables if table.state not in _SETTLED]
    unseen = {source.name for source in view.sources if source.state != "streaming"}
    unseen = unseen and unseen - {table.source for table in view.tables}
    unseen = unseen and unseen - {table.database for table in view.tables}  # it has members alone
    open_sources = {table.database for table in unsettled} | unseen
    failed = {source.name: source for source in view.sources if source.error is not None}
    reasons = [
        f"{place_of(name)}: {source.state}: {(source.error or '').partition(_NEWLINE)[0]}"
        for name, source in failed.items()
        if source.state == "error" or name in open_sources
    ]
    reasons += [f"{place_of(name)}: its tables are not known yet" for name in sorted(unseen - failed.keys())]
    return reasons + [
        f"{place_of(table.database, table.table)}: {table.state.value}"
        for table in unsettled
        if table.database not in failed
    ]


def _log(snapshot: Snapshot, errors: ErrorView) -> dict[str, Any] | None:
    staged = snapshot.view.staged
    if staged is None:
        return None
    return {
        "waiting_bytes": staged.waiting_bytes,
        "is_full": staged.is_full,
        "objects": staged.objects,
        "staged_at": _at(staged.staged_at, snapshot),
        "error": errors.text(staged.error),
        "groups": [
            {"group": one.name, "objects": one.objects, "behind_seconds": one.behind_s, "is_applied": one.lives}
            for one in staged.groups
        ],
    }


def source_status(
    source: SourceView, tables: Iterable[TableState], snapshot: Snapshot, errors: ErrorView = _PLAIN
) -> dict[str, Any]:
    """Return an entry of `sources`, with these tables."""
    facts = snapshot.facts[source.name]
    silence_s = None if source.last_message_at is None else snapshot.clock - source.last_message_at
    staged = None if snapshot.view.staged is None else snapshot.view.staged.lsns.get(source.name)
    return {
        "source": source.name,
        "state": source.state,
        "error": errors.text(source.error),
        "retry_at": _at(source.retry_at, snapshot),
        "received_lsn": lsn.render(source.received_lsn),
        "durable_lsn": lsn.render(source.confirmable_lsn),
        "confirmed_lsn": lsn.render(source.confirmed_lsn),
        "staged_lsn": None if staged is None else lsn.render(staged),
        "rows": source.rows,
        "lag_seconds": _rounded(snapshot.lag_seconds(source)),
        "lag_bytes": snapshot.lag_bytes(source),
        "fresh_at": None if facts.fresh_at is None else instant(facts.fresh_at),
        "last_message_at": None if silence_s is None else instant(snapshot.now - silence_s),
        "is_paused": source.is_paused,
        "slot": None if facts.slot is None else {
            "retained_bytes": facts.slot.retained_bytes,
            "safe_bytes": facts.slot.safe_bytes,
            "status": facts.slot.status,
            "wal_bytes_per_second": _rounded(facts.slot.wal_rate),
            "seconds_left": _rounded(facts.slot.seconds_left),
        },
        "tables": [table_status(table, source, snapshot, errors) for table in tables],
    }  # fmt: skip


def table_status(
    table: TableState, source: SourceView, snapshot: Snapshot, errors: ErrorView = _PLAIN
) -> dict[str, Any]:
    """Return an entry of a source's `tables`."""
    return table_facts(table, snapshot, errors) | table_progress(table, source, snapshot, errors)


def table_facts(table: TableState, snapshot: Snapshot, errors: ErrorView = _PLAIN) -> dict[str, Any]:
    """Return what an entry of `tables` says of its table's state: the same until that changes, except in a copy."""
    is_copying = table.state is State.COPYING
    return {
        "table": table.table,
        "mapped_as": table.mapped or None,
        "target": table.target,
        "tenant": names.tenant_of(names.member_of(table.source)),
        "state": table.state.value,
        "since": _at(table.since, snapshot),
        "error": errors.of(table.error),
        "retry_at": _at(table.retry_at, snapshot),
        "is_resync_due": table.is_resync_due,
        "why_copy": table.why_copy or None,
        "waits_for": errors.text(table.waits_for or None),
        "rows": table.rows,
        "copied_rows": table.copied_rows,
        "rejected_rows": table.rejected,
        "copy_progress": _rounded(copy_progress(table)) if table.copy_total else None,
        "copy_rows_per_second": _rounded(copy_rows_per_second(table, snapshot.clock)) if is_copying else None,
        "copy_seconds_left": _rounded(copy_seconds_left(table, snapshot.clock)) if is_copying else None,
        "copy_resumes_at": instant(table.copy_resumes_at) if table.copy_resumes_at else None,
        "commits": table.commits,
        "last_commit_seconds": _rounded(table.last_commit_seconds),
        "newest_change_at": instant((table.last_commit_us + POSTGRES_EPOCH_US) / 1e6)
        if table.last_commit_us
        else None,
    }


def table_progress(
    table: TableState, source: SourceView, snapshot: Snapshot, errors: ErrorView = _PLAIN
) -> dict[str, Any]:
    """Return what else it says: how far the table is, and what waits for it or was found of it."""
    key = table.target, table.source
    found = findings_of(snapshot.view.parked.get(key), snapshot.view.verdicts.get(key), errors)
    return position_of(source, snapshot.durable_lsn(source, table), snapshot) | found


def findings_of(parked: ParkedView | None, verdict: Verdict | None, errors: ErrorView = _PLAIN) -> dict[str, Any]:
    """Return what waits for a table, and what comparisons found of it."""
    return {"parked": _parked(parked), "verified": _verified(verdict, errors)}


def position_of(source: SourceView, durable_lsn: int | None, snapshot: Snapshot) -> dict[str, Any]:
    """Return how far a table is that has everything of its source before an LSN."""
    valid_through = snapshot.valid_through(source, durable_lsn)
    return {
        "durable_lsn": None if durable_lsn is None else _rendered(durable_lsn),
        "valid_through": None if valid_through is None else instant(valid_through),
    }


def _verified(verdict: Verdict | None, errors: ErrorView) -> dict[str, Any] | None:
    """Return what comparisons on a schedule found; None if the table had no turn yet."""
    if verdict is None:
        return None
    return {
        "at": instant(verdict.at) if verdict.at else None,
        "lsn": verdict.lsn or None,
        "rows": verdict.rows,
        "differences": verdict.differences,
        "left": verdict.left,
        "error": errors.row_text(verdict.error or None),
    }


def _parked(parked: ParkedView | None) -> dict[str, Any] | None:
    """Return what waits in a parking log; None if the table has none."""
    if parked is None:
        return None
    return {
        "bytes": parked.bytes,
        "since": instant(parked.since),
        "oldest_lsn": lsn.render(parked.first_lsn) if parked.first_lsn else None,
        "is_full": parked.is_full,
    }


def copy_progress(table: TableState) -> float | None:
    """Return the part of a table's copy that is done, 0 to 1; None if it was not copied since the start."""
    return None if not table.copy_total else min(1.0, table.copy_done / table.copy_total)


def copy_rows_per_second(table: TableState, clock: float) -> float | None:
    """Return how fast a table is copied, on the average of its copy; None if it is not, or no part of it is done.

    Args:
        table: The table.
        clock: Monotonic seconds of the moment.
    """
    elapsed_s = _copying_s(table, clock)
    return None if elapsed_s is None else table.copied_rows / elapsed_s


def copy_seconds_left(table: TableState, clock: float) -> float | None:
    """Return how long a table's copy goes on as fast as it was on the average; see `copy_rows_per_second`."""
    elapsed_s = _copying_s(table, clock)
    return None if elapsed_s is None else elapsed_s * max(0, table.copy_total - table.copy_done) / table.copy_done


def _copying_s(table: TableState, clock: float) -> float | None:
    """Return how long a copy is under way of which a part is done: nothing can be said of another one."""
    is_known = table.state is State.COPYING and table.copy_began and table.copy_done
    return max(clock - table.copy_began, 0.001) if is_known else None


def _at(clock_s: float | None, snapshot: Snapshot) -> str | None:
    """Return the instant of monotonic seconds."""
    return None if clock_s is None else instant(snapshot.now - (snapshot.clock - clock_s))


@functools.lru_cache(1024)
def instant(unix_s: float) -> str:
    """Return a moment as it is written everywhere; a clock that is beyond all calendars shows their first or last."""
    unix_s = min(max(unix_s, _FIRST_S), _LAST_S)
    seconds, micros = divmod(round(unix_s * 1e6), 1_000_000)
    return f"{_second(seconds)}.{micros // 1000:03}+00:00"


#: Most tables of a source have the same.
_rendered = functools.lru_cache(1024)(lsn.render)


@functools.lru_cache(4096)
def _second(unix_s: int) -> str:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC).isoformat()[:19]  # `strftime` writes year 1 as that


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
