"""From patterns and what sources have to entries of single tables. Pure.

An entry of a table's own beats every pattern, and of patterns the first that is like a table takes it in. The tables
that came first keep their targets: one that comes later and would have the same is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    groups = [_found(config, group, seen) if group.patterns else group for group in config.databases]
    while True:
        known = config.model_copy(update={"databases": tuple(groups)})
        refused = _refused(known)
        if not refused:
            return known
        for number in {number for number, _ in refused}:
            groups[number] = _without(
                groups[number], {key: why for (of, key), why in refused.items() if of == number}
            )  # fmt: skip


def moved(before: Config, after: Config) -> frozenset[tuple[str, str]]:
    """Return the targets that patterns fill in both maps, and not by the same ones: they may be defined otherwise.

    Args:
        before: A map that knows which tables its patterns take in.
        after: The same, with what they take in by now.
    """
    had, have = _patterns_of_targets(before), _patterns_of_targets(after)
    return frozenset(target for target, patterns in have.items() if had.get(target, patterns) != patterns)


def without(config: Config, targets: Collection[tuple[str, str]]) -> Config:
    """Return a map whose patterns take in no table of some targets, each as namespace and name."""
    groups = list(config.databases)
    for number, group in enumerate(groups):
        if group.found is not None:
            tables = {
                key: one for key, one in group.found.tables.items()
                if sources.target_name(config.lake, key, one.config) not in targets
            }  # fmt: skip
            groups[number] = group.knowing(FoundTables(tables=tables, left_out=group.found.left_out))
    return config.model_copy(update={"databases": tuple(groups)})


def _patterns_of_targets(config: Config) -> dict[tuple[str, str], set[tuple[int, str]]]:
    """Return by which patterns, of which group, each target is filled."""
    found: dict[tuple[str, str], set[tuple[int, str]]] = {}
    for number, group in enumerate(config.databases):
        for key, one in (group.found.tables if group.found is not None else {}).items():
            target = sources.target_name(config.lake, key, one.config)
            found.setdefault(target, set()).add((number, one.pattern))
    return found


def pattern_of(group: DatabaseConfig, table: TableName) -> str | None:
    """Return the key of the pattern that takes a table in; None if none does."""
    return next((key for key, one in group.patterns.items() if _is_like(key, one, table)), None)


def sources_of(group: DatabaseConfig) -> list[str]:
    """Return the names of a group's sources, in its order."""
    return [names.source_name(group.database, url.sid) for url in group.urls]


def _is_like(key: str, one: TableConfig, table: TableName) -> bool:
    return sources.Pattern(key=key, excepted=tuple(one.excepted)).means(table)


def _found(config: Config, group: DatabaseConfig, seen: Mapping[str, Sequence[SeenTable]]) -> DatabaseConfig:
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
    in_order = dict(sorted(tables.items(), key=_order))
    known = group.knowing(FoundTables(tables=in_order, left_out=tuple(left)))
    return _without(known, _taken(config, group, in_order))


def _order(found: tuple[str, FoundTable[TableConfig]]) -> tuple[int, bool]:
    """Return who is to have a target first: of those that came together the one in `public`, whoever's it is."""
    key, one = found
    return one.since, names.parse_table(key).schema != names.DEFAULT_SCHEMA


def _taken(config: Config, group: DatabaseConfig, found: Mapping[str, FoundTable[TableConfig]]) -> dict[str, str]:
    """Return why tables have to be left out whose target another one of their group has that came before them.

    Whoever owns a source may have thousands of one name in as many schemas: no check of the whole map is to tell them
    one by one.
    """
    refused: dict[str, str] = {}
    owners: dict[tuple[str, str], tuple[str, str]] = {}  # target in lower case -> as it is written, and whose
    for key, entry in sources.entries_of(group.knowing(FoundTables(tables={}))):
        try:
            name = sources.target_name(config.lake, key, entry)
        except ValueError:
            continue  # the check of the map says so
        owners.setdefault(_folded(name), (".".join(name), key))
    for key, one in found.items():
        name = sources.target_name(config.lake, key, one.config)
        written, other = owners.setdefault(_folded(name), (".".join(name), key))
        if other != key and written == ".".join(name):
            refused[key] = f"the target {written} is that of {other!r} already"
        elif other != key:
            refused[key] = f"the target {'.'.join(name)} differs from {written} in case only"
    return refused


def _folded(target: tuple[str, str]) -> tuple[str, str]:
    return target[0].lower(), target[1].lower()


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
    of_target = _since(config)
    for problem in check.problems(config):
        match problem.path:
            case ("databases", int(number), "tables", str(key), *_):
                entry = config.databases[number].entries.get(key)
                target = () if entry is None else _folded(sources.target_name(config.lake, key, entry))
                since = of_target.get(target, {})
                if since:
                    newest = max(since.values())
                    last = [place for place, one in since.items() if one == newest][-1]
                    found.setdefault((number, key) if since.get((number, key)) == newest else last, problem.message)
    return found


def _since(config: Config) -> dict[tuple[str, ...], dict[tuple[int, str], int]]:
    """Return when each table came that patterns take in, by its target, written in whatever case."""
    found: dict[tuple[str, ...], dict[tuple[int, str], int]] = {}
    for number, group in enumerate(config.databases):
        for key, one in (group.found.tables if group.found is not None else {}).items():
            target = _folded(sources.target_name(config.lake, key, one.config))
            found.setdefault(target, {})[number, key] = one.since
    return found


def _without(group: DatabaseConfig, refused: Mapping[str, str]) -> DatabaseConfig:
    """Leave tables out of what patterns take in, each for a reason."""
    found = group.found
    assert found is not None
    tables = {key: one for key, one in found.tables.items() if key not in refused}
    left = (one for key, why in refused.items() for one in _refusals(found.tables[key], key, why))
    return group.knowing(FoundTables(tables=tables, left_out=(*found.left_out, *left)))


def _refusals(found: FoundTable[TableConfig], key: str, why: str) -> Iterator[LeftOut]:
    hint = 'give the pattern `target: "{schema}_{table}"`, or the table an entry of its own'
    for source in sorted(found.sources):
        yield LeftOut(source=source, table=key, pattern=found.pattern, why=why, hint=hint)


__all__ = ["expanded", "moved", "pattern_of", "sources_of", "without"]
