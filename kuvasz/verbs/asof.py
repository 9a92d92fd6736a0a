"""``kuvasz asof``: which snapshot of each lake table shows a moment of its sources, and how engines read it.

Reads the lake alone, without Spark and without a running kuvasz. A history is asked for a time by the times of its
versions, so that no snapshot of then is needed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.admin.commands import Selection
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, place_of
from kuvasz.model import TableType
from kuvasz.modes import system_columns
from kuvasz.state.tables import TableState
from kuvasz.verbs import moments, text
from kuvasz.verbs.check import THREADS
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.config.sources import MappedTarget
    from kuvasz.lake.definition.lineage import Lineage, Shown, ShownSource
    from kuvasz.verbs.lakeview import LineageView
    from kuvasz.verbs.moments import Moment

#: Column, operator, time.
_Condition = tuple[str, str, datetime.datetime]

#: The end of versions that are open, `kuvasz.modes.history.FOREVER_US`.
_FOREVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)

_KEEP = "keep them longer: `maintenance.snapshot_age`, or tag those that are to stay"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceMoment:
    """How far a snapshot shows one source."""

    source: str
    lsn: int | None  #: everything that committed before it is shown, nothing else; None: nobody knows any more
    commit_us: int | None  #: of the newest transaction, µs since 1970 UTC by the source's clock; None: of a copy
    next_lsn: int | None  #: the same of the next snapshot that changes the source's rows; None: there is none


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableMoment:
    """What shows a moment in one table."""

    target: str
    snapshot_id: int | None = None  #: None: nothing does
    snapshot_ms: int | None = None  #: when it was committed, ms since 1970 UTC
    rows: str | None = None  #: of a history that count, as PyIceberg filters them; None: all
    sources: tuple[SourceMoment, ...] = ()
    queries: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: engine -> what reads it
    why_not: str | None = None
    hint: str | None = None


def tables(
    config: Config, *, time: str | None, lsns: Sequence[str] = (), table: str | None = None
) -> tuple[Moment, list[TableMoment]]:
    """Look up a moment in the lake's tables, all side by side.

    Args:
        config: The whole configuration.
        time: As ISO 8601 has it, in UTC unless it says otherwise; what had committed by then is shown.
        lsns: Each ``sid:X/X``; what committed before is shown.
        table: Only this one, as a source or the lake calls it.

    Raises:
        ConfigError: What was given makes no sense, or there is no such table or source.
        LakeError: The catalog does not answer.
    """
    wanted = [target for target in config_sources.targets(config) if _is_meant(target, table)]
    if not wanted:
        raise ConfigError(f"the map has no table {table!r}", hint="`kuvasz plan` lists the tables")
    sources = {feed.source.name: feed.source for target in wanted for feed in target.feeds}
    moment = moments.given(list(sources.values()), time, lsns, "--time")
    wanted = [target for target in wanted if any(moment.concerns(feed.source.name) for feed in target.feeds)]
    view = LakeView(config)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda target: (target.identifier, view.lineage(target.identifier)), wanted)
        return moment, [_table(config.lake.name, name, seen, moment) for name, seen in found]


def _is_meant(target: MappedTarget, table: str | None) -> bool:
    states = [
        TableState(target=target.identifier, source=feed.source.name, table=str(feed.spec.table))
        for feed in target.feeds
    ]
    return any(Selection(table=table, sid=None).has(state, None) for state in states)


def _table(catalog: str, name: str, seen: LineageView | None, moment: Moment) -> TableMoment:
    if seen is None:
        return TableMoment(target=name, why_not="there is no such table in the lake", hint="`kuvasz plan` says why")
    lineage = seen.lineage
    if not lineage.steps:
        return TableMoment(target=name, why_not="nothing was ever written to it: it is empty")
    conditions = _conditions(seen.type, moment)
    is_by_version = moment.through is not None and bool(conditions)
    step = lineage.steps[-1] if is_by_version else _step(lineage, moment)
    if step is None:
        return _gone(name, lineage, moment)
    return TableMoment(
        target=name,
        snapshot_id=step.snapshot.id,
        snapshot_ms=step.snapshot.at_ms,
        rows=_filter(conditions),
        sources=tuple(_source(source, shown, lineage, step) for source, shown in sorted(step.sources.items())),
        queries=_queries(catalog, name, step.snapshot.id, seen.metadata_location, conditions),
    )


def _step(lineage: Lineage, moment: Moment) -> Shown | None:
    return lineage.at_lsns(moment.lsns) if moment.through is None else lineage.at_time(round(moment.through * 1e6))


def _source(name: str, shown: ShownSource, lineage: Lineage, step: Shown) -> SourceMoment:
    later = lineage.next_of(step, name)
    return SourceMoment(
        source=name,
        lsn=None if shown.position is None else shown.position.lsn,
        commit_us=shown.commit_us,
        next_lsn=None if later is None or later.position is None else later.position.lsn,
    )


def _gone(name: str, lineage: Lineage, moment: Moment) -> TableMoment:
    """Say why no snapshot shows a moment."""
    if not any(moment.concerns(names.source_of(source)) for source in lineage.positions):
        return TableMoment(target=name, why_not="it has nothing of the source", hint="see `kuvasz status`")
    first = lineage.steps[0]
    oldest = "; ".join(
        _words(_source(source, shown, lineage, first), is_last=True)
        for source, shown in sorted(first.sources.items())
        if moment.concerns(names.source_of(source))
    )
    if lineage.is_whole:
        return TableMoment(target=name, why_not=f"its first snapshot shows more than that: {oldest}")
    return TableMoment(
        target=name, why_not=f"snapshots of that moment are gone; the oldest that is left shows {oldest}", hint=_KEEP
    )


# How it is read


def _conditions(table_type: TableType, moment: Moment) -> list[_Condition]:
    """Return which rows of a history count: one column, operator and time each; none: all rows of a table count."""
    if table_type is not TableType.HISTORY:
        return []
    # The snapshot is of that moment, or the time is behind all versions: the open ones are the rows.
    if moment.through is None or moment.through >= _FOREVER.timestamp():
        return [(system_columns.END, "=", _FOREVER)]
    at = datetime.datetime.fromtimestamp(moment.through, datetime.UTC)
    return [(system_columns.START, "<=", at), (system_columns.END, ">", at)]


def _filter(conditions: Sequence[_Condition]) -> str | None:
    """Return conditions as PyIceberg takes them."""
    return " and ".join(f"{name} {operator} '{at.isoformat()}'" for name, operator, at in conditions) or None


def _where(conditions: Sequence[_Condition], literal: str) -> str:
    """Return conditions as SQL takes them, with times written as in an example with ``{}``."""
    found = (f"{name} {operator} {literal.format(_plain(at))}" for name, operator, at in conditions)
    return " WHERE " + " AND ".join(found) if conditions else ""


def _plain(at: datetime.datetime) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ")


def _queries(
    catalog: str, name: str, snapshot_id: int, file: str, conditions: Sequence[_Condition]
) -> dict[str, str]:
    """Return what reads a snapshot: engine -> SQL, or Python.

    Spark: Iceberg's page "Spark Queries", section "Time travel"; Trino: its Iceberg connector, section "Time travel
    queries"; DuckDB: its Iceberg extension, section "Common Parameters".
    """
    namespace, _, table = name.rpartition(".")
    spark = ".".join(_quoted(part, "`") for part in (catalog, *namespace.split("."), table))
    trino = ".".join(_quoted(part, '"') for part in (catalog, namespace, table))
    place = file.replace("'", "''")
    rows = _filter(conditions)
    filtered = "" if rows is None else f"row_filter={json.dumps(rows)}, "
    spark_where = _where(conditions, "TIMESTAMP '{}+00:00'")
    return {
        "spark": f"SELECT * FROM {spark} VERSION AS OF {snapshot_id}{spark_where}",
        "trino": f"SELECT * FROM {trino} FOR VERSION AS OF {snapshot_id}" + _where(conditions, "TIMESTAMP '{} UTC'"),
        "duckdb": f"SELECT * FROM iceberg_scan('{place}', snapshot_from_id = {snapshot_id})"
        + _where(conditions, "TIMESTAMPTZ '{}+00:00'"),
        "pyiceberg": f"catalog.load_table({json.dumps(name)}).scan({filtered}snapshot_id={snapshot_id}).to_arrow()",
    }


def _quoted(part: str, quote: str) -> str:
    return quote + part.replace(quote, quote * 2) + quote


# What is told


def exit_code(found: Sequence[TableMoment]) -> int:
    """Return 0 if every table shows the moment, else 1."""
    return int(any(one.snapshot_id is None for one in found))


def as_json(moment: Moment, found: Sequence[TableMoment]) -> dict[str, Any]:
    """Return what was found ready for JSON."""
    return {
        "time": None if moment.through is None else moments.text_of(moment.through),
        "lsns": {name: lsn.render(at) for name, at in moment.lsns.items()},
        "tables": [
            dataclasses.asdict(one)
            | {
                "snapshot_at": None if one.snapshot_ms is None else moments.text_of(one.snapshot_ms / 1e3),
                "sources": [_source_json(source) for source in one.sources],
            }
            for one in found
        ],
    }


def _source_json(one: SourceMoment) -> dict[str, Any]:
    return {
        "source": one.source,
        "lsn": None if one.lsn is None else lsn.render(one.lsn),
        "commit_time": None if one.commit_us is None else moments.text_of(one.commit_us / 1e6),
        "next_lsn": None if one.next_lsn is None else lsn.render(one.next_lsn),
    }


def render(moment: Moment, found: Sequence[TableMoment]) -> str:
    """Return what was found for people."""
    parts = [f"as of {moment.describe()}"]
    for one in found:
        if one.snapshot_ms is None:
            parts += ["", f"{place_of(table=one.target)}: not shown: {one.why_not}"]
            parts += [f"hint: {one.hint}"] if one.hint else []
            continue
        at = moments.text_of(one.snapshot_ms / 1e3)
        parts += ["", f"{place_of(table=one.target)}: snapshot {one.snapshot_id}, committed {at}"]
        parts += [f"  {_words(source)}" for source in one.sources]
        parts += [f"  {engine + ':':<10} {query}" for engine, query in one.queries.items()]
    return text.lines(parts)


def _words(one: SourceMoment, *, is_last: bool = False) -> str:
    if one.lsn is None:
        return f"{one.source}: as far as snapshots that were expired had brought it"
    what = f"{one.source}: everything before {lsn.render(one.lsn)}"
    what += ", of a copy" if one.commit_us is None else f", committed {moments.text_of(one.commit_us / 1e6)}"
    if is_last:
        return what
    more = "no snapshot has more" if one.next_lsn is None else f"the next has all before {lsn.render(one.next_lsn)}"
    return f"{what}; {more}"


__all__ = ["SourceMoment", "TableMoment", "as_json", "exit_code", "render", "tables"]
