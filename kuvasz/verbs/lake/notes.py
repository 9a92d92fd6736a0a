"""``kuvasz notes``: what kuvasz noted of each source in the lake's tables, in words and numbers of PostgreSQL.

Metadata is written whole with every commit, so notes take few bytes there (`kuvasz.evolve.column_notes`,
`kuvasz.lake.format.source_positions`). Reads the lake alone, without Spark and without a running kuvasz.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

from kuvasz import lsn
from kuvasz.admin.commands import Selection
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, place_of
from kuvasz.model import POSTGRES_EPOCH_US
from kuvasz.state.tables import TableState
from kuvasz.verbs import moments, text
from kuvasz.verbs.check import THREADS
from kuvasz.verbs.lakeview import LakeView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.config.model import Config
    from kuvasz.config.sources import MappedTarget
    from kuvasz.evolve.known import KnownColumn, SourceColumns
    from kuvasz.evolve.sights import Sight
    from kuvasz.model import SourcePosition
    from kuvasz.verbs.lakeview import LakeTableView

_HEADERS = ("number", "column", "type", "version", "field", "more")


def tables(config: Config, *, table: str | None = None, sid: str | None = None) -> list[dict[str, Any]]:
    """Return what is noted in the lake's tables, ready for JSON.

    Args:
        config: The whole configuration.
        table: Only in this one, as a source or the lake calls it.
        sid: Only of this source.

    Raises:
        ConfigError: The map has no such table.
        LakeError: The catalog does not answer, or a note is damaged.
    """
    wanted = {target.identifier: _chosen(target, table, sid) for target in config_sources.targets(config)}
    wanted = {name: sources for name, sources in wanted.items() if sources}
    if not wanted:
        raise ConfigError("the map has no such table", hint="`kuvasz plan` lists the tables")
    view = LakeView(config)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = zip(wanted.items(), pool.map(view.table, wanted), strict=True)
        return [noted(name, None if sid is None else sources, seen) for (name, sources), seen in found]


def _chosen(target: MappedTarget, table: str | None, sid: str | None) -> set[str]:
    """Return the sources of a target that are meant."""
    return {
        feed.source.name
        for feed in target.feeds
        if Selection(table=table, sid=sid).has(
            TableState(target=target.identifier, source=feed.source.name, table=str(feed.spec.table)), feed.source.sid
        )
    }


def noted(name: str, wanted: set[str] | None, seen: LakeTableView | None) -> dict[str, Any]:
    """Return what is noted in one table, ready for JSON.

    Args:
        name: The table.
        wanted: The sources that are meant; None: all of them.
        seen: What it says; None if there is no such table.
    """
    if seen is None:
        return {"target": name, "sources": None}
    known = sorted(seen.known.keys() | seen.positions.keys() | seen.rules.keys())
    chosen = [source for source in known if wanted is None or names.source_of(source) in wanted]
    return {"target": name, "sources": [_source(source, seen) for source in chosen]}


def _source(name: str, seen: LakeTableView) -> dict[str, Any]:
    position, known = seen.positions.get(name), seen.known.get(name)
    return {
        "source": name,
        "position": None if position is None else _position(position),
        "rule": seen.rules.get(name),
        **({} if known is None else _columns(known)),
    }


def _position(known: SourcePosition) -> dict[str, Any]:
    return {
        "lsn": lsn.render(known.lsn),
        "commit_lsn": lsn.render(known.commit_lsn) if known.commit_lsn else None,
        "rows": known.rows,
        "xid": known.xid or None,
        "committed": moments.text_of((known.commit_us + POSTGRES_EPOCH_US) / 1e6) if known.commit_us else None,
        "history": known.history or None,
        "server_started": moments.text_of(known.started_us / 1e6) if known.started_us else None,
        "system_id": known.system_id,
    }


def _columns(known: SourceColumns) -> dict[str, Any]:
    return {
        "oid": known.oid,
        "file": known.file or None,
        "constraint": known.uniqueness.constraint or None,
        "index": known.uniqueness.index_oid or None,
        "columns": [_column(column) for _, column in sorted(known.columns.items())],
        "looks": [_look(sight) for sight in known.sights],
    }


def _column(column: KnownColumn) -> dict[str, Any]:
    return {
        "number": column.number,
        "name": column.name,
        "earlier_names": list(column.names[:-1]),
        "type_oid": column.type_oid or None,
        "typmod": column.typmod,
        "version": column.version or None,
        "field": column.field or None,
        "earlier_fields": list(column.left),
        "is_dropped": not column.is_live,
    }


def _look(sight: Sight) -> dict[str, Any]:
    return {
        "lsn": lsn.render(sight.seen.lsn),
        "until": lsn.render(sight.seen.until),
        "running": sorted(sight.seen.running),
        "file": sight.file or None,
        "columns": {face.name: number for number, face in sight.columns.items()},
    }


# What is told


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """Return what was found for people."""
    parts: list[str] = []
    for table in found:
        parts += [] if not parts else [""]
        if table["sources"] is None:
            parts.append(f"{place_of(table=table['target'])}: there is no such table in the lake")
            continue
        parts.append(f"{place_of(table=table['target'])}: {len(table['sources'])} sources")
        for source in table["sources"]:
            parts += [f"  {text.lines([line])}" for line in _lines(source)]
    return "\n".join(parts)


def _lines(source: Mapping[str, Any]) -> list[str]:
    """Return what is noted of one source, line by line."""
    lines = [f"{source['source']}: {_position_line(source['position'])}"]
    if source["rule"] is not None:
        lines.append(f"  its rows were made by the rule {source['rule']}")
    if "columns" not in source:
        return lines
    key = "" if source["index"] is None else f", rows told apart by the index with OID {source['index']}"
    lines.append(f"  table with OID {source['oid']}, file {source['file'] or '?'}{key}")
    shown = text.table(_HEADERS, [_cells(column) for column in source["columns"]])
    lines += [f"    {line}" for line in shown.splitlines()]
    lines += [f"  looked at {look['lsn']}: {', '.join(look['columns'])}" for look in source["looks"]]
    return lines


def _position_line(position: Mapping[str, Any] | None) -> str:
    if position is None:
        return "no position"
    told = f"everything that committed before {position['lsn']}"
    if position["xid"] is not None:
        told += f"; the last transaction is {position['xid']} at {position['commit_lsn']}, {position['rows']} rows"
    if position["committed"] is not None:
        told += f", committed {position['committed']}"
    return f"{told}; of the system {position['system_id'] or '?'}"


def _cells(column: Mapping[str, Any]) -> tuple[str, ...]:
    more = [f"was {', '.join(column['earlier_names'])}"] if column["earlier_names"] else []
    more += ["dropped"] if column["is_dropped"] else []
    kind = str(column["type_oid"] or "?") + ("" if column["typmod"] == -1 else f" ({column['typmod']})")
    number, name, version, field = (str(column[key] or "?") for key in ("number", "name", "version", "field"))
    return number, name, kind, version, field, "; ".join(more)


__all__ = ["noted", "render", "tables"]
