"""The entries of a map as JSON, with the fields that kuvasz-streamer's clients read. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kuvasz.admin.entries import numbered
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog.table import TableKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.admin.entries.list_query import Record
    from kuvasz.admin.entries.numbered import NumberedDatabase, NumberedMap, NumberedTable, NumberedUrl
    from kuvasz.config.model import LakeConfig
    from kuvasz.model import Column, TableName
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.state.numbers.numbers_of_kind import EntryName
    from kuvasz.view import SourceView


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MappedTable:
    """A table of a group's sources, or of the map, or of both."""

    database: NumberedDatabase
    table: TableName
    entry: NumberedTable | None  #: of the map; None: it has none
    found: tuple[SourceTable, ...] = ()  #: what the source has of it: several for a collapse

    @property
    def name(self) -> EntryName:
        """What keeps its number."""
        return numbered.table_name(self.database.group, self.table)


def database(one: NumberedDatabase) -> Record:
    """Return a group."""
    return {"id": one.number, "name": one.group.database}


def url(one: NumberedUrl, view: SourceView | None, redact: Callable[[str], str]) -> Record:
    """Return a source, without its password.

    Args:
        one: The source.
        view: How it is; None: it does not run.
        redact: Takes secrets out of an error.
    """
    return {
        "id": one.number,
        "db_id": one.database.number,
        "db_name": one.database.group.database,
        "sid": one.url.sid or "",
        "url": one.url.url.redacted(),
        "up": view is not None and view.state == "streaming",
        "status": "" if view is None else view.state,
        "error": "" if view is None or view.error is None else redact(view.error),
    }


def table(one: NumberedTable, lake: LakeConfig) -> Record:
    """Return a table of the map."""
    return {
        "id": one.number,
        "db_id": one.database.number,
        "db_name": one.database.group.database,
        "schema": one.table.schema,
        "name": one.table.name,
        "type": one.config.type.value,
        "target": target(one, lake),
        "partitions_regex": one.config.partitions_regex,
    }


def target(one: NumberedTable, lake: LakeConfig) -> str:
    """Return what a table is called in the lake, with its namespace where that is not the lake's own."""
    namespace, name = config_sources.target_name(lake, one.key, one.config)
    return name if namespace == lake.namespace else f"{namespace}.{name}"


def identifier(one: NumberedTable, lake: LakeConfig) -> str:
    """Return the full name of a table in the lake."""
    return ".".join(config_sources.target_name(lake, one.key, one.config))


def mapping(one: MappedTable, number: int, lake: LakeConfig, present: Collection[str]) -> Record:
    """Return a table of a source with what the map makes of it.

    Args:
        one: The table.
        number: Its number.
        lake: Where the targets are.
        present: The targets that are in the lake.
    """
    entry = one.entry
    return {
        "id": number,
        "db_id": one.database.number,
        "db_name": one.database.group.database,
        "schema": one.table.schema,
        "name": one.table.name,
        "type": "" if entry is None else entry.config.type.value,
        "target": "" if entry is None else target(entry, lake),
        "filter": "" if entry is None else entry.config.filter or "",
        "set": None if entry is None else entry.config.set,
        "partitions": _partitions(one),
        "partitions_regex": None if entry is None else entry.config.partitions_regex,
        "replicated": entry is not None,
        "present": entry is not None and identifier(entry, lake) in present,
        "source_columns": {column["name"]: column for column in _columns(one.found)},
    }


def mapped_tables(known: NumberedMap, found: Mapping[str, Sequence[SourceTable]]) -> list[MappedTable]:
    """Return the tables of the map, and those that its sources have besides, group by group.

    Args:
        known: The map.
        found: Group -> what one of its sources has; nothing of a group none of whose sources answers.
    """
    entries: dict[int, list[NumberedTable]] = {}
    for one in known.followed:
        entries.setdefault(one.database.number, []).append(one)
    made: list[MappedTable] = []
    for group in known.databases:
        made += _of_group(group, entries.get(group.number, []), found.get(group.group.database, ()))
    return made


def _of_group(
    group: NumberedDatabase, entries: Sequence[NumberedTable], found: Sequence[SourceTable]
) -> Iterator[MappedTable]:
    by_name = {one.table: one for one in found}
    schemas = {url.schemas for url in group.group.urls}
    known = {entry.table for entry in entries}  # those of entries, and members of the ones before
    for entry in entries:
        collapses = _collapses(entry, schemas)
        # Where every url has `schemas`, the tenants' tables alone are taken.
        is_taken = None in schemas or any(one.collapses(entry.table) for one in collapses)
        own = [by_name[entry.table]] if entry.table in by_name and is_taken else []
        members = [
            one for one in (found if collapses else ())
            if one.table not in known and any(each.collapses(one.table) for each in collapses)
        ]  # fmt: skip
        known |= {one.table for one in members}
        yield MappedTable(database=group, table=entry.table, entry=entry, found=(*own, *members))
    for one in found:
        if one.table not in known and one.kind is not TableKind.OTHER:
            yield MappedTable(database=group, table=one.table, entry=None, found=(one,))


def _collapses(entry: NumberedTable, schemas: Collection[str | None]) -> list[SourceTableSpec]:
    """Return what an entry is at the sources of its group where it stands for tables that are found there."""
    made = (
        SourceTableSpec(
            table=entry.table, config=entry.config, namespace="", target="", has_sid=False, schemas=one
        )
        for one in schemas
    )  # fmt: skip
    return [one for one in made if one.is_collapse]


def _partitions(one: MappedTable) -> list[str] | None:
    """Return the names of a table's partitions, or of the tables that a collapse takes in; None without any."""
    inner = [leaf.table for found in one.found for leaf in found.leaves]
    members = [found.table for found in one.found if found.table != one.table]
    found = [table.name if table.schema == one.table.schema else names.render_table(table) for table in members]
    return [*(table.name for table in inner), *found] or None


def _columns(found: Iterable[SourceTable]) -> Iterator[dict[str, Any]]:
    for one in list(found)[:1]:
        for column in one.relation.columns:
            yield _column(column, is_primary=column.name in one.primary_key)


def _column(column: Column, *, is_primary: bool) -> dict[str, Any]:
    return {
        "name": column.name, "column_type": column.pg_type.name, "data_type_oid": column.pg_type.oid,
        "primary_key": is_primary,
    }  # fmt: skip


__all__ = ["MappedTable", "database", "identifier", "mapped_tables", "mapping", "table", "target", "url"]
