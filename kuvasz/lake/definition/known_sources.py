"""What is known of the columns of all sources of one lake table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.format.planning import OtherSources, names_by_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kuvasz.lake.definition.definition import Definition

#: Sources of which a table has at hand what was read last: those that begin, or are looked at, side by side.
_AT_HAND: Final = 32


class _Kind(NamedTuple):
    """What is one thing for all sources that are alike: what they fill and filled, and most of how it is noted."""

    shape: tuple[tuple[str, str], ...]  #: the properties that all of their notes rest on
    fields: frozenset[tuple[str, int | None]]  #: live columns: name, and field or 0; None: it goes by the name
    kept: frozenset[int]  #: ids of fields that took values of its columns, and do no longer
    names: frozenset[tuple[int, str]]  #: see `kuvasz.lake.format.planning.names_by_field`
    former: frozenset[tuple[str, int]]  #: names that live columns had before, and their fields


class _Note(NamedTuple):
    """What is known of one source, as it stands in the properties."""

    text: str
    kind: _Kind


class KnownSources(MutableMapping[str, SourceColumns]):
    """Source -> what is known of its columns; `Definition.lock` is held for a change.

    It is kept as it is noted, in 0.2 kB for a table of six columns instead of 2.6: of a thousand sources nobody asks
    but when one begins, changes or is looked at.

    Args:
        definition: The table's.
        properties: The properties of the Iceberg table, where it stands (`kuvasz.evolve.column_notes`).
    """

    def __init__(self, definition: Definition, properties: Mapping[str, str]) -> None:
        self._definition = definition
        self._noted: dict[str, _Note] = {}  #: by source
        self._sources: Counter[_Kind] = Counter()  #: how many sources are alike
        self._kinds: dict[_Kind, _Kind] = {}  #: the one object that sources have which are alike
        #: by source: what was read last, and from which note
        self._at_hand: dict[str, tuple[_Note, SourceColumns]] = {}
        for source, columns in column_notes.parse(properties, definition.name).items():
            self._note(source, column_notes.noted(properties, source), columns)

    @override
    def __getitem__(self, source: str) -> SourceColumns:
        noted = self._noted[source]
        at_hand = self._at_hand.get(source)
        if at_hand is not None and at_hand[0] is noted:
            return at_hand[1]
        columns = column_notes.parse(_properties(source, noted), self._definition.name)[source]
        self._take(source, noted, columns)
        return columns

    @override
    def __setitem__(self, source: str, columns: SourceColumns) -> None:
        self._take(source, self._note(source, column_notes.render(source, columns), columns), columns)

    @override
    def __delitem__(self, source: str) -> None:
        self._forget(self._noted.pop(source))
        self._at_hand.pop(source, None)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._noted)

    @override
    def __len__(self) -> int:
        return len(self._noted)

    @override
    def __contains__(self, source: object) -> bool:
        return source in self._noted  # without reading what is known of it

    def oid_of(self, source: str) -> int | None:
        """Return the OID of a source's table, without reading what else is known of it; None: nothing is."""
        noted = self._noted.get(source)
        if noted is None:
            return None
        return self[source].oid if column_notes.is_earlier(noted.text) else column_notes.oid_of(noted.text)

    def rendered(self, source: str) -> dict[str, str]:
        """Return the properties that say what is known of a source, as they are written now; none: nothing is."""
        noted = self._noted.get(source)
        if noted is None:
            return {}
        if column_notes.is_earlier(noted.text):
            return column_notes.render(source, self[source])
        return _properties(source, noted)

    def _note(self, source: str, properties: Mapping[str, str], columns: SourceColumns) -> _Note:
        before = self._noted.get(source)
        if before is not None:
            self._forget(before)
        name = column_notes.PREFIX + source
        kind = _kind(tuple(one for one in properties.items() if one[0] != name), columns)
        kind = self._kinds.setdefault(kind, kind)
        self._sources[kind] += 1
        self._noted[source] = noted = _Note(properties[name], kind)
        return noted

    def _forget(self, noted: _Note) -> None:
        self._sources[noted.kind] -= 1
        if not self._sources[noted.kind]:
            del self._sources[noted.kind], self._kinds[noted.kind]

    def _take(self, source: str, noted: _Note, columns: SourceColumns) -> None:
        if len(self._at_hand) >= _AT_HAND:
            self._at_hand = {}
        self._at_hand[source] = noted, columns

    def recall(self, properties: Mapping[str, str], sources: Iterable[str]) -> bool:
        """Know what the table has noted of sources; return whether that is something else.

        Then a change of ours is in the lake whose commit was not answered: schema and notes come in one.

        Args:
            properties: The properties of the Iceberg table, as of now.
            sources: Sources with rows: what is known of others may come with their first copy.
        """
        mine = ((source, self._noted.get(source)) for source in sources)
        unlike = {
            source for source, noted in mine
            if noted is not None and not _properties(source, noted).items() <= properties.items()
        }  # fmt: skip
        found = column_notes.parse(properties, self._definition.name) if unlike else {}
        found = {source: found[source] for source in unlike & found.keys() if found[source] != self[source]}
        with self._definition.lock:
            self.update(found)
        return bool(found)

    def former_names(self) -> dict[str, str]:
        """Return the names that columns of sources had before -> the name of the field that they fill now."""
        found: dict[str, set[str]] = {}
        names = {field.field_id: field.name for field in self._definition.schema.fields}
        for name, field in (pair for kind in list(self._sources) for pair in kind.former):
            if field in names:
                found.setdefault(name, set()).add(names[field])
        return {name: fields.pop() for name, fields in found.items() if len(fields) == 1}

    def names_of_fields(self) -> dict[int, set[str]]:
        """Return the names that each field may have; see `kuvasz.lake.format.planning.strays`."""
        found: dict[int, set[str]] = {}
        for field, name in (pair for kind in list(self._sources) for pair in kind.names):
            found.setdefault(field, set()).add(name)
        return found

    def others(self, mine: str) -> OtherSources:
        """Return what sources other than one fill and filled; those that are alike are looked at once."""
        names: dict[str, set[int]] = {}
        kept: set[int] = set()
        noted = self._noted.get(mine)
        own = None if noted is None else noted.kind
        for kind, sources in list(self._sources.items()):
            if sources > (kind is own):
                for name, field in kind.fields:
                    names.setdefault(name, set()).add(self._field_of(name) if field is None else field)
                kept |= kind.kept
        fields = frozenset(field for found in names.values() for field in found if field)
        return OtherSources(
            fields=fields, kept=frozenset(kept - {0}), names={name: frozenset(found) for name, found in names.items()}
        )

    def _field_of(self, name: str) -> int:
        field = self._definition.schema.by_name(name)
        return 0 if field is None else field.field_id


def _properties(source: str, noted: _Note) -> dict[str, str]:
    return {column_notes.PREFIX + source: noted.text, **dict(noted.kind.shape)}


def _kind(shape: tuple[tuple[str, str], ...], columns: SourceColumns) -> _Kind:
    fields = {(column.name, column.field if column.is_bound else None) for column in columns.live.values()}
    kept: set[int] = set()
    for column in columns.columns.values():
        kept.update(column.left if column.is_live else (*column.left, column.field))
    former = {(name, column.field) for column in columns.live.values() for name in column.names[:-1]}
    return _Kind(shape, frozenset(fields), frozenset(kept), names_by_field(columns), frozenset(former))


__all__ = ["KnownSources"]
