"""What a table of a source may lack in the lake though all of it is replicated as the map says. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.events import Event
from kuvasz.model import TableType
from kuvasz.source import sql
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.rules import keyless
from kuvasz.sync.rules.left_out import column_lists, row_filters


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One thing that a person may not have thought of."""

    check: str  #: as `kuvasz check` calls it
    found: str
    needed: str
    hint: str
    event: Event  #: that tells of it

    def sentence(self) -> str:
        """Return all of it."""
        return f"{self.found}; {self.hint}"


def of(spec: SourceTableSpec, table: SourceTable | None, sources: Sequence[Source]) -> list[Caveat]:
    """Return what is to be told of a table.

    Args:
        spec: What the map says of the table.
        table: As the catalog describes it, without a key of the map; None if there is no such table.
        sources: The source, as the map has it or as last seen: it takes in whatever one of them does.
    """
    if table is None or table.why_unsupported:
        return []
    return [
        *_without_children(table, sources),
        *_with_loose_key(spec, table),
        *_without_list(spec, table),
        *_without_filter(spec, table),
    ]


def _without_list(spec: SourceTableSpec, table: SourceTable) -> Iterator[Caveat]:
    """Yield that what the map leaves out does not stay at the source, though the map says so."""
    if why := column_lists.why_not(spec, table):
        yield Caveat(
            check="column_list", found=f"columns that the map leaves out do not stay at the source: {why}",
            needed="what a list of columns needs", event=Event.COLUMN_LIST_MISSING,
            hint="mend that, or take `column_list` out of the map; kuvasz itself leaves them out all the same",
        )  # fmt: skip


def _without_filter(spec: SourceTableSpec, table: SourceTable) -> Iterator[Caveat]:
    """Yield that rows outside the filter do not stay at the source, though the map says so."""
    if why := row_filters.why_not(spec, table):
        yield Caveat(
            check="row_filter", found=f"rows outside the filter do not stay at the source: {why}",
            needed="what a row filter needs", event=Event.ROW_FILTER_MISSING,
            hint="mend that, or take `row_filter` out of the map; kuvasz itself leaves them out all the same",
        )  # fmt: skip


def _without_children(table: SourceTable, sources: Sequence[Source]) -> Iterator[Caveat]:
    """Yield that tables inherit from this one whose rows a query of it shows, and the lake does not."""
    left = [child for child in table.children if not any(source.find(child) for source in sources)]
    names = ", ".join(str(child) for child in left)
    if left:
        yield Caveat(
            check="inheritance", found=f"the rows of {names}, which inherit from it, are not replicated",
            needed="all of them in the map", event=Event.CHILDREN_UNMAPPED,
            hint="map them too: each by itself, or with `partitions_regex` in this entry, for one target of all",
        )  # fmt: skip


def _with_loose_key(spec: SourceTableSpec, table: SourceTable) -> Iterator[Caveat]:
    """Yield that rows of one key become one, where the map has named a key that nothing keeps."""
    if spec.config.type in keyless.INSERTS_DO:
        return
    key = keyless.with_key(table, spec.config).relation.key if not table.relation.key else ()
    if key and not any(set(columns) <= set(key) for columns in table.unique):
        told = "nothing at the source keeps rows of one key apart: a later row of a key replaces the earlier"
        in_map = "; or take `key` out of the map, for a row to be matched as a whole"
        yield Caveat(
            check="unique_key", found=told, needed=f"a unique index over {', '.join(key)}, all NOT NULL",
            event=Event.KEY_NOT_UNIQUE,
            hint=f"{_unique(table, key)}{'' if spec.config.type is TableType.HISTORY else in_map}",
        )  # fmt: skip


def _unique(table: SourceTable, key: Sequence[str]) -> str:
    """Return the SQL that has the source keep rows of one key apart."""
    columns = ", ".join(f"ALTER COLUMN {sql.identifier(column)} SET NOT NULL" for column in key)
    return f"ALTER TABLE {sql.qualified(table.table)} {columns}, ADD UNIQUE ({sql.identifiers(key)})"


__all__ = ["Caveat", "of"]
