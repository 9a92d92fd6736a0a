"""From patterns and what sources have to entries of single tables. Pure.

An entry of a table's own beats every pattern, and of patterns the first that is like a table takes it in. The tables
that came first keep their targets: one that comes later and would have the same is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kuvasz.config import check, names, sources
from kuvasz.config.patterns.found_tables import FoundTable, FoundTables, LeftOut, SeenTable
from kuvasz.model import TableType

if TYPE_CHECKING:
    from kuvasz.config.model import Config, DatabaseConfig, TableConfig
    from kuvasz.model import TableName

#: Types that ask for a key: of the others each row, or each change, is a row.
_KEYED = frozenset({TableType.CLONE, TableType.HISTORY})


def expanded(config: Config, seen: Mapping[str, Sequence[SeenTable]]) -> Config:
    """Return a map that knows which tables its patterns take in.

    Args:
        config: The map.
        seen: Source -> what it has; of one that is missing nothing is known, and its patterns take in nothing.
    """
    groups = [_found(group, seen) if group.patterns else group for group in config.databases]
    while True:
        known = config.model_copy(update={"databases": tuple(groups)})
        refused = _refused(known)
        if not refused:
            return known
        for (number, key), why in refused.items():
            groups[number] = _without(groups[number], key, why)


def pattern_of(group: DatabaseConfig, table: TableName) -> str | None:
    """Return the key of the pattern that takes a table in; None if none does."""
    return next((key for key, one in group.patterns.items() if _is_like(key, one, table)), None)


def sources_of(group: DatabaseConfig) -> list[str]:
    """Return the names of a group's sources, in its order."""
    return [names.source_name(group.database, url.sid) for url in group.urls]


def _is_like(key: str, one: TableConfig, table: TableName) -> bool:
    return names.means(key, table) and not any(names.means(other, table) for other in one.excepted)


def _found(group: DatabaseConfig, seen: Mapping[str, Sequence[SeenTable]]) -> DatabaseConfig:
    single = [(names.parse_table(key), one) for key, one in group.tables.items() if not names.is_pattern(key)]
    own = {table for table, _ in single}
    collapses = [(table, one) for table, one in single if one.partitions_regex is not None]
    tables: dict[str, FoundTable[TableConfig]] = {}
    left: list[LeftOut] = []
    for source in sources_of(group):
        for one in seen.get(source, ()):
            is_collapsed = any(
                one.table.schema == table.schema
                and names.is_whole_match(regex.partitions_regex or "", one.table.name)
                for table, regex in collapses
            )
            pattern = pattern_of(group, one.table)
            if pattern is None or one.table in own or is_collapsed:
                continue
            said, key = group.tables[pattern], names.render_table(one.table)
            if not one.has_key and said.key is None and said.type in _KEYED:
                left.append(_keyless(source, key, pattern))
            else:
                before = tables.get(key)
                have = frozenset({source}) | (frozenset() if before is None else before.sources)
                since = one.since if before is None else min(one.since, before.since)
                tables[key] = FoundTable(config=_of(said, one.table), pattern=pattern, sources=have, since=since)
    in_order = dict(sorted(tables.items(), key=lambda found: found[1].since))
    return group.knowing(FoundTables(tables=in_order, left_out=tuple(left)))


def _of(said: TableConfig, table: TableName) -> TableConfig:
    """Return the entry of a table that a pattern takes in."""
    target = said.target
    if target is not None:
        for word, name in (("schema", table.schema), ("table", table.name)):
            # A dot or a quote would make another name of it.
            target = target.replace(f"{{{word}}}", name.replace(".", "_").replace('"', "_"))
    return said.model_copy(update={"target": target, "excepted": ()})


def _keyless(source: str, key: str, pattern: str) -> LeftOut:
    hint = (
        f"ALTER TABLE {key} ADD PRIMARY KEY …, or REPLICA IDENTITY FULL: it is taken in then; or give it an entry of"
        " its own, with `key` or `type: append`"
    )
    return LeftOut(source=source, table=key, pattern=pattern, why="nothing tells its rows apart", hint=hint)


def _refused(config: Config) -> dict[tuple[int, str], str]:
    """Return why tables that patterns take in have to be left out: of those of one target the newest first."""
    found: dict[tuple[int, str], str] = {}
    for problem in check.problems(config):
        match problem.path:
            case ("databases", int(number), "tables", str(key), *_):
                entry = config.databases[number].entries.get(key)
                since = {} if entry is None else _since(config, sources.target_name(config.lake, key, entry))
                if since:
                    newest = max(since.values())
                    last = [place for place, one in since.items() if one == newest][-1]
                    found.setdefault((number, key) if since.get((number, key)) == newest else last, problem.message)
    return found


def _since(config: Config, target: tuple[str, str]) -> dict[tuple[int, str], int]:
    """Return when each table came that patterns take in and that has a target, written in whatever case."""
    folded = tuple(map(str.lower, target))
    return {
        (number, key): one.since
        for number, group in enumerate(config.databases)
        for key, one in (group.found.tables if group.found is not None else {}).items()
        if tuple(map(str.lower, sources.target_name(config.lake, key, one.config))) == folded
    }


def _without(group: DatabaseConfig, key: str, why: str) -> DatabaseConfig:
    """Leave a table out of what patterns take in."""
    found = group.found
    assert found is not None
    tables = {other: one for other, one in found.tables.items() if other != key}
    left = (*found.left_out, *_refusals(found.tables[key], key, why))
    return group.knowing(FoundTables(tables=tables, left_out=left))


def _refusals(found: FoundTable[TableConfig], key: str, why: str) -> Iterator[LeftOut]:
    hint = 'give the pattern `target: "{schema}_{table}"`, or the table an entry of its own'
    for source in sorted(found.sources):
        yield LeftOut(source=source, table=key, pattern=found.pattern, why=why, hint=hint)


__all__ = ["expanded", "pattern_of", "sources_of"]
