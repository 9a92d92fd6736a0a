"""``kuvasz source drift``: which sources and tenants have tables unlike those of the rest of their group."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kuvasz import typemap
from kuvasz.admin.sources import mapped_url
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, KuvaszError, place_of
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.sync.rules import members
from kuvasz.verbs import text
from kuvasz.verbs.check import THREADS

if TYPE_CHECKING:
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source
    from kuvasz.source.catalog.table import SourceTable

DRIFTED: Final = 4

#: Of a table: column -> its type, and whether it is of the key.
_Columns: TypeAlias = "Mapping[str, str]"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What one source, or one tenant of it, has otherwise than most of its group."""

    database: str
    source: str
    sid: str  #: or the tenant's
    table: str  #: as the map calls it; empty: the source does not answer
    what: str  #: the column; empty: the whole table
    found: str
    usual: str  #: what most of the group have


def run(config: Config, choice: SourceSelection) -> list[Drift]:
    """Ask all sources of the groups that are meant, and return those of the chosen ones that differ from most.

    Args:
        config: The map.
        choice: Whose differences are wanted.

    Raises:
        ConfigError: None is meant.
    """
    chosen = {one.name for one in mapped_url.all_of(config) if choice.has(one)}
    of_group = dataclasses.replace(choice, sid=None)
    groups = {one.group.database for one in mapped_url.all_of(config) if of_group.has(one)}
    sources = [source for source in config_sources.resolve(config) if source.database in groups]
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="drift") as pool:
        seen = list(zip(sources, pool.map(_shapes, sources), strict=True))
    found = [one for group in sorted(groups) for one in _of_group(group, seen)]
    asked = [
        one
        for one in found
        if choice.sid is None or one.source in chosen or choice.has_tenant(one.sid)
    ]  # fmt: skip
    tenants = {sid for _, shapes in seen if not isinstance(shapes, KuvaszError) for sid, _ in shapes}
    if not chosen and not any(map(choice.has_tenant, tenants)):
        raise ConfigError(f"the map has no {choice.describe()}", hint="`kuvasz source list` lists them")
    return asked


def _of_group(group: str, seen: Sequence[tuple[Source, Any]]) -> list[Drift]:
    """Return what differs in one group: table by table, from the shape that most of its sources have."""
    found: list[Drift] = []
    shapes: dict[str, list[tuple[Source, str, _Columns | None]]] = {}
    for source, of_source in seen:
        if source.database != group:
            continue
        if isinstance(of_source, KuvaszError):
            found.append(
                Drift(database=group, source=source.name, sid=source.sid or "", table="", what="",
                      found=of_source.message, usual="an answer")
            )  # fmt: skip
            continue
        for (sid, table), columns in of_source.items():
            shapes.setdefault(table, []).append((source, sid, columns))
    for table, all_of in shapes.items():
        usual = most_common([columns for _, _, columns in all_of])
        for source, sid, columns in all_of:
            found += [
                Drift(database=group, source=source.name, sid=sid, table=table, what=what, found=is_, usual=was)
                for what, is_, was in differences(columns, usual)
            ]
    return found


def most_common(shapes: Sequence[_Columns | None]) -> _Columns | None:
    """Return what most have; of as many that of whoever comes first."""
    counted = collections.Counter(None if shape is None else tuple(sorted(shape.items())) for shape in shapes)
    usual, _ = counted.most_common(1)[0]
    return None if usual is None else dict(usual)


def differences(columns: _Columns | None, usual: _Columns | None) -> list[tuple[str, str, str]]:
    """Return each column that differs, with what it is and what it usually is."""
    if columns is None or usual is None:
        return [] if columns is usual else [("", "no table" if columns is None else "a table", _there(usual))]
    return [
        (name, columns.get(name, "no column"), usual.get(name, "no column"))
        for name in sorted(columns.keys() | usual.keys())
        if columns.get(name) != usual.get(name)
    ]


def _there(shape: _Columns | None) -> str:
    return "no table" if shape is None else "a table"


def _shapes(source: Source) -> dict[tuple[str, str], _Columns | None] | KuvaszError:
    """Return the tables of a source by sid and name in the map: those of its tenants, where it has some."""
    entries = {spec.identifier: str(spec.table) for spec in source.tables}
    try:
        with conninfo.asked(source.url.get(), place_of(source.name)) as connection:
            whole = members.found(source, connection)
            found = introspect.load_relations(connection, [spec.table for spec in whole.tables])
    except KuvaszError as error:
        return error
    by_entry: dict[tuple[str, str], _Columns | None] = {}
    for spec in whole.tables:
        sid = source.sid or "" if spec.tenant is None else spec.tenant
        # Of several tables that are one target the first stands for all.
        by_entry.setdefault((sid, entries[spec.identifier]), _columns(found.get(spec.table)))
    for sid in {spec.tenant for spec in whole.tables if spec.tenant is not None}:
        for name in entries.values():
            by_entry.setdefault((sid, name), None)
    return by_entry


def _columns(table: SourceTable | None) -> _Columns | None:
    if table is None:
        return None
    return {
        column.name: typemap.postgresql_name(column.pg_type, column.typmod) + (", key" if column.is_key else "")
        for column in table.relation.columns
    }


def exit_code(found: Sequence[Drift]) -> int:
    """Return 4 if anything differs."""
    return DRIFTED if found else 0


def render(found: Sequence[Drift]) -> str:
    """Return a row for each column that differs; those that differ alike stand together."""
    if not found:
        return "all sources of a group have the same tables"
    rows = [
        (one.database, one.sid or one.source, one.table, one.what, one.found, one.usual)
        for one in sorted(found, key=lambda one: (one.database, one.table, one.what, one.found, one.sid))
    ]
    return text.table(("group", "sid", "table", "column", "here", "elsewhere"), rows)


def as_json(found: Sequence[Drift]) -> list[dict[str, Any]]:
    """Return the differences ready for JSON."""
    return [dataclasses.asdict(one) for one in found]


__all__ = ["Drift", "as_json", "differences", "exit_code", "most_common", "render", "run"]
