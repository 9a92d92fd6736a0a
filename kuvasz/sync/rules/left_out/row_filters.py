"""Which rows of a table its publication sends, so that others stay at the source. Pure.

UPDATE and DELETE fail at the source as soon as a row filter reads a column that is not in the replica identity, and
the server asks nobody before it has another one. So the map asks for a row filter, table by table, and it reads what
is in the replica identity now.

A row that enters comes as an INSERT, and one that leaves as a DELETE: to a clone that is what its own filter makes of
an UPDATE. What was sent by another condition lacks rows: a table whose filter changes is copied again, or compared.
"""

from __future__ import annotations

from kuvasz.config.sources import SourceTableSpec
from kuvasz.source.catalog import membership
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules.left_out.copy_condition import published_condition


def wanted(spec: SourceTableSpec, table: SourceTable) -> str:
    """Return the row filter that the publication is to have of a table; empty: none.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it.
    """
    if not spec.config.row_filter or _why_not(spec, table):
        return ""
    condition, columns = _condition(spec, table)
    return membership.marked(condition, columns) if columns else ""


def why_not(spec: SourceTableSpec, table: SourceTable) -> str:
    """Return why a table cannot have the row filter that the map asks for; empty if it can, or none is asked for."""
    if not spec.config.row_filter:
        return ""
    if why := _why_not(spec, table):
        return why
    return "" if _condition(spec, table)[1] else "PostgreSQL can decide nothing of it by the replica identity alone"


def _why_not(spec: SourceTableSpec, table: SourceTable) -> str:
    if not table.may_filter:
        return "its server is older than PostgreSQL 15"
    if not table.can_update:
        return "only its INSERTs are published"
    if spec.member:
        return "it is one of several tables of a target"
    if table.kind is TableKind.PARTITIONED:
        return "a partition that comes later may have another replica identity, and its UPDATEs would fail"
    return ""


def _condition(spec: SourceTableSpec, table: SourceTable) -> tuple[str, frozenset[int]]:
    """Return what PostgreSQL can decide, with built-in types and collations, and the columns that it reads."""
    enums = {column.attnum for column in table.relation.columns if column.pg_type.category == "e"}
    return published_condition(spec, table.relation, table.identity - table.own_collations - enums)


def is_stale(spec: SourceTableSpec, table: SourceTable) -> bool:
    """Whether the row filter that a table has cannot stay: rows are to come by another one, or UPDATEs fail.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it, with the mark of its row filter.
    """
    return table.is_owned and table.filter_mark not in {"", membership.mark_of(wanted(spec, table))}


def breaks_updates(table: SourceTable) -> bool:
    """Whether UPDATE and DELETE fail at the source, for the row filter reads what does not identify rows any more.

    Args:
        table: As the catalog describes it, with the mark of its row filter.
    """
    return table.is_owned and not membership.columns_of(table.filter_mark).issubset(table.identity)


__all__ = ["breaks_updates", "is_stale", "wanted", "why_not"]
