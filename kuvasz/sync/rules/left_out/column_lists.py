"""Which columns of a table its publication names, so that what the map leaves out stays at the source. Pure.

PostgreSQL refuses to drop or retype a column that a list names, and with REPLICA IDENTITY FULL every UPDATE of a
table that has one: whoever changes the source has to know of it. So the map asks for a list, table by table.

A list does not grow with its table. One of what `exclude` leaves is widened when a column is added, and rows that
came in between lack the column: that is mended by another copy, and so for clones alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import ReplicaIdentity, TableType
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.rules.left_out import row_filters
from kuvasz.sync.rules.targets import narrowed

#: The first version that has them.
_SINCE = 150000


def published(spec: SourceTableSpec, table: SourceTable, version: int) -> SourceTable:
    """Return a table with the columns that the map needs, and what its publication is to have of it.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it, with its key.
        version: The server's, as in server_version_num.
    """
    relation = narrowed(spec, table.relation)
    names = tuple(column.name for column in relation.columns)
    column_list = None
    if spec.config.column_list and version >= _SINCE:
        column_list = () if _is_full(table) else None if why_not(spec, table) else names
    row_filter = row_filters.wanted(spec, table)
    return dataclasses.replace(table, relation=relation, column_list=column_list, row_filter=row_filter)


def of_source(source: Source) -> Callable[[SourceTable, int], SourceTable]:
    """Return what does the same for all tables of a source; one that the map does not name stays as it is."""
    specs = {spec.table: spec for spec in source.tables}

    def published_of(table: SourceTable, version: int) -> SourceTable:
        spec = specs.get(table.table)
        return table if spec is None else published(spec, table, version)

    return published_of


def why_not(spec: SourceTableSpec, table: SourceTable) -> str:
    """Return why a table cannot have the list that the map asks for; empty if it can, or none is asked for."""
    if not spec.config.column_list:
        return ""
    if not table.can_update:
        return "only its INSERTs are published"
    if _is_full(table):
        return "it has REPLICA IDENTITY FULL, and a list would have its UPDATEs fail"
    if spec.config.columns is None and spec.config.type is not TableType.CLONE:
        return f"a list of what `exclude` leaves is widened by another copy, which a {spec.config.type} does not get"
    return ""


def is_stale(spec: SourceTableSpec, table: SourceTable) -> bool:
    """Whether the list that a table has cannot stay: it lacks a column that is taken, or has UPDATEs fail.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it, with what its messages have.
    """
    relation = table.relation
    if not spec.config.column_list or not relation.list_version or relation.sent is None:
        return False
    if not table.is_owned or _is_full(table):
        return table.is_owned
    wanted = {column.attnum for column in narrowed(spec, relation).columns}
    return not why_not(spec, table) and not wanted.issubset(relation.sent)


def breaks_updates(spec: SourceTableSpec, table: SourceTable) -> bool:
    """Whether UPDATE and DELETE fail at the source, for the list that a table has lacks what identifies its rows.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it, with what its messages have.
    """
    relation = table.relation
    if not spec.config.column_list or not relation.list_version or relation.sent is None or not table.is_owned:
        return False
    key = {column.attnum for column in relation.columns if column.is_key}
    return _is_full(table) or (table.can_update and not key.issubset(relation.sent))


def _is_full(table: SourceTable) -> bool:
    """Whether a list would have UPDATE and DELETE fail at the source."""
    return table.can_update and table.relation.identity is ReplicaIdentity.FULL


__all__ = ["breaks_updates", "is_stale", "of_source", "published", "why_not"]
