"""What can be done with a table that has no key at the source. Pure."""

from __future__ import annotations

import dataclasses

from kuvasz.config.model import TableConfig
from kuvasz.model import TableType
from kuvasz.source.catalog.table import SourceTable

#: Table types that need not know which row was changed.
INSERTS_DO = frozenset({TableType.APPEND, TableType.CHANGELOG})


def why_not(table: SourceTable, config: TableConfig) -> str:
    """Return why a table without a key cannot be replicated as the map wants it; empty if it can."""
    if with_key(table, config).relation.key:
        return ""
    if not table.is_whole_row:
        return "" if config.type in INSERTS_DO else table.why_no_key
    if config.type is TableType.HISTORY:
        return f"a history needs a key: {table.why_no_key}"
    if config.type is TableType.CLONE and config.set is not None and config.key is not None:
        return f"`key` names columns of `set`, which have to come from a key: {table.why_no_key}"
    return ""


def with_key(table: SourceTable, config: TableConfig) -> SourceTable:
    """Return a table with REPLICA IDENTITY FULL keyed by the map's columns; as it is if that does not do."""
    key = None if config.set is not None else config.key  # of the target's columns then
    names = {column.name for column in table.relation.columns}
    if not key or not table.is_whole_row or not set(key) <= names:
        return table
    columns = tuple(dataclasses.replace(column, is_key=column.name in key) for column in table.relation.columns)
    return dataclasses.replace(table, relation=dataclasses.replace(table.relation, columns=columns))


def has_only_inserts(table: SourceTable) -> bool:
    """Whether nothing but its INSERTs may be published: UPDATE and DELETE would fail at the source."""
    return not table.can_update
