"""``kuvasz rejects``: the rows that were left out of the lake because they do not fit, and another try at them.

Read from the lake alone. Tried again, each table of which rows were rejected is compared with its source and mended:
what fits by now comes in as the source has it now, later changes of the row included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError
from kuvasz.lake.about.tables import REJECTS
from kuvasz.verbs import text
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kuvasz.config.model import Config

#: What tells a row from all others, also where it was written twice.
_KEY = ("target", "source", "lsn", "ordinal")


def rows(
    config: Config, *, table: str | None = None, sid: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Return the newest rows that were rejected, the newest last, each once.

    Args:
        config: The whole configuration.
        table: Only of this table, as a source or the lake calls it.
        sid: Only of this source.
        limit: How many at most.

    Raises:
        ConfigError: The map has no such table or source, or keeps no tables about the lake.
        LakeError: The catalog does not answer.
    """
    if config.lake.about is None:
        message = "what is rejected is kept in a table about the lake, and `lake.about` is off"
        raise ConfigError(message, hint="name its namespace: `lake: {about: _kuvasz}`")
    wanted = _wanted(config, table, sid)
    found = LakeView(config).load(f"{config.lake.about}.{REJECTS}")
    if found is None:
        return []
    scanned = found.scan().to_arrow().sort_by("rejected_at").to_pylist()
    once = {tuple(row[name] for name in _KEY): row for row in scanned}
    mine = [row for row in once.values() if (row["target"], names.source_of(row["source"])) in wanted]
    return mine[-limit:]


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


def tables_of(found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (target, source) of the tables that rows were rejected of."""
    return sorted({(row["target"], names.source_of(row["source"])) for row in found})


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """Return rejected rows for a person."""
    lines = []
    for row in found:
        what = f"{row['column_name']} {row['raw']!r} {row['reason']}" if row["column_name"] else row["reason"]
        place = f"{row['target']} of {row['source']}"
        lines.append(
            f"{row['rejected_at']:%Y-%m-%d %H:%M:%S}Z {place}: {row['operation']} at {lsn.render(row['lsn'])}"
        )
        lines.append(f"  {row['key'] or 'no key'}: {what}")
    lines.append(f"{len(found)} rows" if found else "no row was rejected")
    return text.lines(lines)


def as_json(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rejected rows ready for JSON."""
    times = ("rejected_at", "committed_at")
    return [
        {name: value.isoformat() if name in times and value is not None else value for name, value in row.items()}
        for row in found
    ]


__all__ = ["as_json", "render", "rows", "tables_of"]
