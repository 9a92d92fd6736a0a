"""What is known of the columns of all sources of one lake table."""

from __future__ import annotations

from collections import Counter, UserDict
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.format.planning import OtherSources, names_by_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.lake.definition.definition import Definition


class _Filled(NamedTuple):
    """What a source fills and filled."""

    fields: frozenset[tuple[str, int | None]]  #: live columns: name, and field or 0; None: it goes by the name
    kept: frozenset[int]  #: ids of fields that took values of its columns, and do no longer
    names: frozenset[tuple[int, str]]  #: see `kuvasz.lake.format.planning.names_by_field`
    former: frozenset[tuple[str, int]]  #: names that live columns had before, and their fields


class KnownSources(UserDict[str, SourceColumns]):
    """Source -> what is known of its columns; `Definition.lock` is held for a change.

    Args:
        definition: The table's.
        properties: The properties of the Iceberg table, where it stands (`kuvasz.evolve.column_notes`).
    """

    def __init__(self, definition: Definition, properties: Mapping[str, str]) -> None:
        self._definition = definition
        self._filled: dict[str, _Filled] = {}  #: by source
        self._sources: Counter[_Filled] = Counter()  #: how many sources are alike
        self._kinds: dict[_Filled, _Filled] = {}  #: the one object that sources have which are alike
        super().__init__(column_notes.parse(properties, definition.name))

    @override
    def __setitem__(self, source: str, columns: SourceColumns) -> None:
        self._forget(source)
        super().__setitem__(source, columns)
        filled = _filled(columns)
        self._filled[source] = kind = self._kinds.setdefault(filled, filled)
        self._sources[kind] += 1

    @override
    def __delitem__(self, source: str) -> None:
        super().__delitem__(source)
        self._forget(source)

    def _forget(self, source: str) -> None:
        filled = self._filled.pop(source, None)
        if filled is not None:
            self._sources[filled] -= 1
            if not self._sources[filled]:
                del self._sources[filled], self._kinds[filled]

    def recall(self, properties: Mapping[str, str], sources: Iterable[str]) -> bool:
        """Know what the table has noted of sources; return whether that is something else.

        Then a change of ours is in the lake whose commit was not answered: schema and notes come in one.

        Args:
            properties: The properties of the Iceberg table, as of now.
            sources: Sources with rows: what is known of others may come with their first copy.
        """
        unlike = {
            source
            for source in sources
            if source in self and not column_notes.render(source, self[source]).items() <= properties.items()
        }
        noted = column_notes.parse(properties, self._definition.name) if unlike else {}
        found = {source: noted[source] for source in unlike & noted.keys() if noted[source] != self[source]}
        with self._definition.lock:
            self.update(found)
        return bool(found)

    def former_names(self) -> dict[str, str]:
        """Return the names that columns of sources had before -> the name of the field that they fill now."""
        found: dict[str, set[str]] = {}
        names = {field.field_id: field.name for field in self._definition.schema.fields}
        for name, field in (pair for filled in list(self._sources) for pair in filled.former):
            if field in names:
                found.setdefault(name, set()).add(names[field])
        return {name: fields.pop() for name, fields in found.items() if len(fields) == 1}

    def names_of_fields(self) -> dict[int, set[str]]:
        """Return the names that each field may have; see `kuvasz.lake.format.planning.strays`."""
        found: dict[int, set[str]] = {}
        for field, name in (pair for filled in list(self._sources) for pair in filled.names):
            found.setdefault(field, set()).add(name)
        return found

    def others(self, mine: str) -> OtherSources:
        """Return what sources other than one fill and filled; those that are alike are looked at once."""
        names: dict[str, set[int]] = {}
        kept: set[int] = set()
        own = self._filled.get(mine)
        for filled, sources in list(self._sources.items()):
            if sources > (filled == own):
                for name, field in filled.fields:
                    names.setdefault(name, set()).add(self._field_of(name) if field is None else field)
                kept |= filled.kept
        fields = frozenset(field for found in names.values() for field in found if field)
        return OtherSources(
            fields=fields, kept=frozenset(kept - {0}), names={name: frozenset(found) for name, found in names.items()}
        )

    def _field_of(self, name: str) -> int:
        field = self._definition.schema.by_name(name)
        return 0 if field is None else field.field_id


def _filled(columns: SourceColumns) -> _Filled:
    fields = {(column.name, column.field if column.is_bound else None) for column in columns.live.values()}
    kept: set[int] = set()
    for column in columns.columns.values():
        kept.update(column.left if column.is_live else (*column.left, column.field))
    former = {(name, column.field) for column in columns.live.values() for name in column.names[:-1]}
    return _Filled(frozenset(fields), frozenset(kept), names_by_field(columns), frozenset(former))


__all__ = ["KnownSources"]
