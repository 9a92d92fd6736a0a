"""The entries of a map with the numbers that clients call them by."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kuvasz.config import names

if TYPE_CHECKING:
    from kuvasz.config.model import Config, DatabaseConfig, TableConfig, UrlConfig
    from kuvasz.model import TableName
    from kuvasz.state.numbers.numbers_of_kind import EntryName
    from kuvasz.state.ports import StoredNumbers


T = TypeVar("T")


class EntryKind(enum.StrEnum):
    """What is numbered, each kind for itself."""

    DATABASE = "db"
    URL = "url"
    TABLE = "tbl"
    MAPPING = "map"  #: a table of a source, whether or not the map has it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedDatabase:
    """A group of the map."""

    number: int
    group: DatabaseConfig

    @property
    def name(self) -> EntryName:
        """What keeps its number."""
        return database_name(self.group)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedUrl:
    """A source of a group."""

    number: int
    database: NumberedDatabase
    url: UrlConfig

    @property
    def source(self) -> str:
        """What kuvasz calls the source."""
        return names.source_name(self.database.group.database, self.url.sid)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedTable:
    """A table of a group."""

    number: int
    database: NumberedDatabase
    key: str  #: as the map writes it
    table: TableName
    config: TableConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedMap:
    """All entries of a map, in its order."""

    config: Config
    databases: tuple[NumberedDatabase, ...]
    urls: tuple[NumberedUrl, ...]
    tables: tuple[NumberedTable, ...]

    @property
    def followed(self) -> list[NumberedTable]:
        """The entries of single tables; one that a pattern takes in has the number of the pattern."""
        single = [one for one in self.tables if not names.is_pattern(one.key)]
        return [*single, *(found for one in self.tables if names.is_pattern(one.key) for found in _found(one))]


def _found(pattern: NumberedTable) -> Iterator[NumberedTable]:
    """Yield the tables that a pattern takes in."""
    found = pattern.database.group.found
    for key, one in (found.tables if found is not None else {}).items():
        if one.pattern == pattern.key:
            yield dataclasses.replace(pattern, key=key, table=names.parse_table(key), config=one.config)


def number(config: Config, stored: StoredNumbers) -> NumberedMap:
    """Return the entries of a map with their numbers. Blocks.

    Raises:
        StateError: The numbers cannot be kept.
    """
    groups = [(database_name(group), group) for group in config.databases]
    databases = [
        NumberedDatabase(number=number, group=group)
        for number, group in _numbered(stored, EntryKind.DATABASE, groups)
    ]
    urls = [(url_name(one.group, url), (one, url)) for one in databases for url in one.group.urls]
    tables = [
        (table_name(one.group, table), (one, key, table, config))
        for one in databases
        for key, config in one.group.tables.items()
        for table in [names.parse_table(key)]
    ]
    return NumberedMap(
        config=config,
        databases=tuple(databases),
        urls=tuple(
            NumberedUrl(number=number, database=one, url=url)
            for number, (one, url) in _numbered(stored, EntryKind.URL, urls)
        ),
        tables=tuple(
            NumberedTable(number=number, database=one, key=key, table=table, config=config)
            for number, (one, key, table, config) in _numbered(stored, EntryKind.TABLE, tables)
        ),
    )


def number_mapping(stored: StoredNumbers, mapping: Sequence[EntryName]) -> Mapping[EntryName, int]:
    """Return the numbers of tables of sources. Blocks.

    Raises:
        StateError: The numbers cannot be kept.
    """
    return stored.given(EntryKind.MAPPING, mapping)


def database_name(group: DatabaseConfig) -> EntryName:
    """Return what keeps the number of a group."""
    return (group.database,)


def url_name(group: DatabaseConfig, url: UrlConfig) -> EntryName:
    """Return what keeps the number of a source: its place may change, its sid does not."""
    return (group.database, *(() if url.sid is None else (url.sid,)))


def table_name(group: DatabaseConfig, table: TableName) -> EntryName:
    """Return what keeps the number of a table."""
    return group.database, table.schema, table.name


def _numbered(
    stored: StoredNumbers, kind: EntryKind, entries: Sequence[tuple[EntryName, T]]
) -> Iterable[tuple[int, T]]:
    numbers = stored.given(kind, [name for name, _ in entries])
    return [(numbers[name], entry) for name, entry in entries]


__all__ = [
    "EntryKind", "NumberedDatabase", "NumberedMap", "NumberedTable", "NumberedUrl", "database_name", "number",
    "number_mapping", "table_name", "url_name",
]  # fmt: skip
