"""What is known of the columns of all sources of one lake table."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING

from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.format.planning import OtherSources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.evolve.known import KnownColumn
    from kuvasz.lake.definition.definition import Definition


class KnownSources(UserDict[str, SourceColumns]):
    """Source -> what is known of its columns; `Definition.lock` is held for a change.

    Args:
        definition: The table's.
        properties: The properties of the Iceberg table, where it stands (`kuvasz.evolve.column_notes`).
    """

    def __init__(self, definition: Definition, properties: Mapping[str, str]) -> None:
        super().__init__(column_notes.parse(properties, definition.name))
        self._definition = definition

    def former_names(self) -> dict[str, str]:
        """Return the names that columns of sources had before -> the name of the field that they fill now."""
        found: dict[str, set[str]] = {}
        names = {field.field_id: field.name for field in self._definition.schema.fields}
        for column in (column for columns in self.values() for column in columns.live.values()):
            if column.field in names:
                for name in column.names[:-1]:
                    found.setdefault(name, set()).add(names[column.field])
        return {name: fields.pop() for name, fields in found.items() if len(fields) == 1}

    def others(self, mine: str) -> OtherSources:
        """Return what sources other than one fill and filled."""
        names: dict[str, set[int]] = {}
        kept: set[int] = set()
        for columns in (columns for source, columns in self.items() if source != mine):
            for column in columns.live.values():
                names.setdefault(column.name, set()).add(self._field_of(column) or 0)
            for column in columns.columns.values():
                kept.update(column.left if column.is_live else (*column.left, column.field))
        fields = frozenset(field for found in names.values() for field in found if field)
        return OtherSources(
            fields=fields, kept=frozenset(kept - {0}), names={name: frozenset(found) for name, found in names.items()}
        )

    def _field_of(self, column: KnownColumn) -> int | None:
        if column.is_bound:
            return column.field or None
        field = self._definition.schema.by_name(column.name)
        return None if field is None else field.field_id


__all__ = ["KnownSources"]
