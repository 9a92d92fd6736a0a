"""``kuvasz rejects``: the rows that were left out of the lake because they do not fit, and another try at them.

Read from the lake alone. Tried again, each table of which rows were rejected is compared with its source and mended:
what fits by now comes in as the source has it now, later changes of the row included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.config import names, units
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.lake.about.tables import REJECTS
from kuvasz.verbs import text
from kuvasz.verbs import verify as verify_verb
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.table import Table

    from kuvasz.config.model import Config
    from kuvasz.verify.report import Report

#: What tells a row from all others, also where it was written twice; but see `_key`.
_KEY = ("target", "source", "lsn", "ordinal")

_AT = "rejected_at"

#: That are looked at at a time.
_ROWS = 1024


def rows(
    config: Config, *, table: str | None = None, sid: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Return the newest rows that were rejected, the newest last, each once.

    Which they are is told by a few columns; the others are read from their time on.

    Args:
        config: The whole configuration.
        table: Only of this table, as a source or the lake calls it.
        sid: Only of this source.
        limit: How many at most.

    Raises:
        ConfigError: The map has no such table or source, or keeps no tables about the lake.
        LakeError: The catalog does not answer.
    """
    wanted = _wanted(config, table, sid)
    found = _table(config)
    if found is None:
        return []
    newest = _newest(found.scan(selected_fields=(*_KEY, _AT)).to_arrow(), wanted, limit)
    if not newest:
        return []
    since = f"{_AT} >= '{min(newest.values()).isoformat()}'"
    whole: dict[tuple[Any, ...], dict[str, Any]] = {}
    for batch in found.scan(since).to_arrow_batch_reader():
        for begin in range(0, batch.num_rows, _ROWS):
            some = {_key(row): row for row in batch.slice(begin, _ROWS).to_pylist()}
            whole |= {key: row for key, row in some.items() if newest.get(key) == row[_AT]}
    return sorted(whole.values(), key=lambda row: row[_AT])


def tables(config: Config, *, table: str | None = None, sid: str | None = None) -> list[tuple[str, str]]:
    """Return (target, source) of the tables that rows were rejected of; arguments and errors are those of `rows`."""
    wanted = _wanted(config, table, sid)
    found = _table(config)
    if found is None:
        return []
    pairs = found.scan(selected_fields=("target", "source")).to_arrow().group_by(["target", "source"]).aggregate([])
    return sorted(wanted & {(row["target"], names.source_of(row["source"])) for row in pairs.to_pylist()})


def exit_code(tried: Sequence[Report]) -> int:
    """Return the exit code of another try: 4 where a row was not brought in, else that of the comparison.

    Args:
        tried: What came of the tables; one that was passed over has its rows still to come.
    """
    if any(report.rejected or (report.skipped and not report.error_code) for report in tried):
        return verify_verb.DIFFERENCES_FOUND
    return verify_verb.exit_code(tried)


def _table(config: Config) -> Table | None:
    if config.lake.about is None:
        message = "what is rejected is kept in a table about the lake, and `lake.about` is off"
        raise ConfigError(message, hint="name its namespace: `lake: {about: _kuvasz}`")
    return LakeView(config).load(f"{config.lake.about}.{REJECTS}")


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a row from all others; of a copy not the snapshot, for one that begins again has another."""
    is_copied = row["ordinal"] < 0
    return tuple(None if name == "lsn" and is_copied else row[name] for name in _KEY)


def _newest(
    found: pa.Table, wanted: Collection[tuple[str, str]], limit: int
) -> dict[tuple[Any, ...], datetime.datetime]:
    """Return the keys of the newest rows with the time at which each was written down last."""
    newest: dict[tuple[Any, ...], datetime.datetime] = {}
    order = found.sort_by([(_AT, "descending")])
    for batch in order.to_batches(max_chunksize=_ROWS):
        for row in batch.to_pylist():
            if len(newest) >= limit:
                return newest
            if (row["target"], names.source_of(row["source"])) in wanted:
                newest.setdefault(_key(row), row[_AT])
    return newest


def _wanted(config: Config, table: str | None, sid: str | None) -> set[tuple[str, str]]:
    """Return (target, source) of all that is asked for."""
    every = [(source, spec) for source in config_sources.resolve(config) for spec in source.tables]
    found = {
        (spec.identifier, source.name)
        for source, spec in every
        if sid in {None, source.name, source.sid}
        and (table is None or table in names.called(spec.identifier, spec.table) | {spec.target})
    }
    if not found:
        known = sorted({spec.identifier for _, spec in every})
        asked = " ".join(f"--{name} {value}" for name, value in (("table", table), ("sid", sid)) if value)
        raise ConfigError(f"{asked}: the map has no such table of a source", hint=f"it has {', '.join(known)}")
    return found


def render(found: Sequence[Mapping[str, Any]], config: Config) -> str:
    """Return rejected rows for a person."""
    if not found:
        return text.lines([none_known(config)])
    lines = []
    for row in found:
        what = f"{row['column_name']} {row['raw']!r} {row['reason']}" if row["column_name"] else row["reason"]
        place = f"{row['target']} of {row['source']}"
        lines.append(
            f"{row['rejected_at']:%Y-%m-%d %H:%M:%S}Z {place}: {row['operation']} at {lsn.render(row['lsn'])}"
        )
        lines.append(f"  {row['key'] or 'no key'}: {what}")
    lines.append(f"{len(found)} rows")
    return text.lines(lines)


def none_known(config: Config) -> str:
    """Say that no rejected row is known. Those from before are none the more in the lake."""
    kept = units.render_duration(config.lake.about_keep)
    return f"no row was rejected in the last {kept} (lake.about_keep); `kuvasz verify` counts all that do not fit"


def as_json(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rejected rows ready for JSON."""
    times = ("rejected_at", "committed_at")
    return [
        {name: value.isoformat() if name in times and value is not None else value for name, value in row.items()}
        for row in found
    ]


__all__ = ["as_json", "exit_code", "none_known", "render", "rows", "tables"]
