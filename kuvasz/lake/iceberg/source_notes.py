"""What Iceberg tables remember of their sources' tables, for whoever asks the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.lake.format import gaps
from kuvasz.ports import SourceNotes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.lake.iceberg.tables import Tables
    from kuvasz.ports import Gap, LakeColumn


class IcebergSourceNotes(SourceNotes):
    """See `kuvasz.ports.SourceNotes`; they are properties of the tables (`kuvasz.lake.table.notes`).

    Args:
        tables: The tables of the lake.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @override
    def columns(self, target: str, source: str) -> SourceColumns | None:
        """See `kuvasz.ports.SourceNotes.columns`."""
        table = self._tables.get(target)
        return None if table is None else table.columns.known.get(source)

    @override
    def oid(self, target: str, source: str) -> int | None:
        """See `kuvasz.ports.SourceNotes.oid`."""
        table = self._tables.get(target)
        return None if table is None else table.columns.known.oid_of(source)

    @override
    def lake_columns(self, target: str) -> Sequence[LakeColumn]:
        """See `kuvasz.ports.SourceNotes.lake_columns`."""
        table = self._tables.get(target)
        return () if table is None else table.definition.schema.columns()

    @override
    def partitions(self, target: str, source: str) -> frozenset[str] | None:
        """See `kuvasz.ports.SourceNotes.partitions`."""
        table = self._tables.get(target)
        return None if table is None else table.notes.partitions(source)

    @override
    def remember_partitions(self, target: str, source: str, partitions: frozenset[str]) -> None:
        """See `kuvasz.ports.SourceNotes.remember_partitions`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.remember_partitions(source, partitions)

    @override
    def published(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.SourceNotes.published`."""
        return self._tables[target].notes.published(source)

    @override
    def published_of(self, target: str, sources: Sequence[str]) -> Mapping[str, str | None]:
        """See `kuvasz.ports.SourceNotes.published_of`."""
        return self._tables[target].notes.published_of(sources)

    @override
    def remember_published(self, target: str, source: str, published: str) -> None:
        """See `kuvasz.ports.SourceNotes.remember_published`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.remember_published(source, published)

    @override
    def skipped(self, target: str, source: str) -> bool:
        """See `kuvasz.ports.SourceNotes.skipped`."""
        return self._tables[target].notes.skipped(source)

    @override
    def parked(self, target: str, source: str) -> str | None:
        """See `kuvasz.ports.SourceNotes.parked`."""
        return self._tables[target].notes.parked(source)

    @override
    def park(self, target: str, source: str, log_id: str | None) -> None:
        """See `kuvasz.ports.SourceNotes.park`."""
        table = self._tables[target]
        with table.lock.asking():
            table.notes.park(source, log_id)

    @override
    def gap(self, target: str, source: str) -> Gap | None:
        """See `kuvasz.ports.SourceNotes.gap`."""
        table = self._tables[target]
        return None if source in table.positions else gaps.open_one(table.notes.gaps(source))


__all__ = ["IcebergSourceNotes"]
