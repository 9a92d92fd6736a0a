"""Changes of the table properties with what is known of columns, and of the shapes that they rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.evolve import column_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.evolve.known import SourceColumns
    from kuvasz.lake.jvm.iceberg_table import IcebergTable


class ColumnNotes:
    """The notes of the columns of one table, whose lock is held; see `kuvasz.evolve.column_notes`.

    A shape goes with the last note that rests on it. Iceberg removes a property whatever another process committed
    meanwhile, so what was removed is looked at once more.

    Args:
        table: The Iceberg table. What it showed at its last look counts.
    """

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._is_converted = False  #: whether no note is left of those that earlier versions wrote
        self._removed: dict[str, str] = {}  #: shapes that a commit was to remove, with their text

    def is_earlier(self, source: str) -> bool:
        """Whether a source's note is as earlier versions of kuvasz wrote it."""
        return column_notes.is_earlier(self._table.properties.get(column_notes.PREFIX + source, ""))

    def change(self, source: str, columns: SourceColumns) -> dict[str, str | None]:
        """Return what a commit has to set, or where None to remove, so that a source's columns are known.

        Notes that earlier versions wrote are written anew with it, whosever they are.
        """
        properties = self._table.properties
        found = self._converted(properties) | column_notes.render(source, columns)
        return found | dict.fromkeys(self._unused({**properties, **found}))

    def without(self, source: str) -> list[str]:
        """Return what a commit has to remove, so that nothing is known of a source's columns."""
        name = column_notes.PREFIX + source
        return [name, *self._unused({key: text for key, text in self._table.properties.items() if key != name})]

    def mend(self) -> None:
        """Put back shapes that were just removed, and that a commit of another process had made needed meanwhile."""
        removed, self._removed = self._removed, {}
        if not removed:
            return
        properties = self._table.properties
        lost = removed.keys() & column_notes.named(properties) - properties.keys()
        if lost:
            self._table.set_properties({name: removed[name] for name in lost})

    def _converted(self, properties: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        if not self._is_converted:
            sources = column_notes.earlier(properties)
            self._is_converted = not sources
            for source in sources:
                name = column_notes.PREFIX + source
                (columns,) = column_notes.parse({name: properties[name]}, self._table.name).values()
                found |= column_notes.render(source, columns)
        return found

    def _unused(self, properties: Mapping[str, str]) -> set[str]:
        unused = column_notes.unused(properties)
        self._removed = {name: properties[name] for name in unused}
        return unused


__all__ = ["ColumnNotes"]
