"""The last look at each table of one source, and which table the stream means by an OID or a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import Relation, TableName
from kuvasz.source.catalog.look import Look
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.context.source_tables import SourceTables


class LastLooks:
    """The looks of one source. From any thread.

    Args:
        source_tables: Which tables the source has now.
        target_of: Which target the changes of a relation go to; None: nobody says.
    """

    def __init__(self, source_tables: SourceTables, target_of: Callable[[Relation], str | None]) -> None:
        self._source_tables = source_tables
        self._target_of = target_of
        self._known: Source | None = None  #: of which the next two are
        self._specs: dict[TableName, SourceTableSpec] = {}
        self._members: dict[int, SourceTableSpec] = {}  #: by OID: whatever they are called
        self._looks: dict[int, Look] = {}  #: by OID
        self._spec_of: dict[int, SourceTableSpec] = {}  #: by OID
        self._oid_of: dict[str, int] = {}  #: by `SourceTableSpec.key`, the last one: a source may have many thousands

    def begin(self, tables: Iterable[tuple[SourceTableSpec, SourceTable]], at: int) -> None:
        """Take over what was seen at an LSN, and prepared in the lake."""
        for spec, table in tables:
            self.put(spec, Look(lsn=at, table=table))

    def spec(self, relation: Relation) -> SourceTableSpec | None:
        """Return the table of the map that a relation of the stream is; None if it is none."""
        self._know()
        # Whatever it is called: a name is how a table is found for the first time.
        return self._members.get(relation.oid) or self._spec_of.get(relation.oid) or self._unseen(relation)

    def _unseen(self, relation: Relation) -> SourceTableSpec | None:
        """Return the table of a relation that no look has shown: it may be gone, and another have its name now."""
        target, named = self._target_of(relation), self._specs.get(relation.table)
        if named is None or target in {None, named.identifier}:
            return named
        return next((spec for spec in self._specs.values() if spec.identifier == target), None)

    def _know(self) -> None:
        source = self._source_tables.source
        if source is not self._known:  # not at each message, for there may be thousands of tables
            self._specs = {spec.table: spec for spec in source.tables if not spec.member and not spec.is_collapse}
            self._members = {spec.oid: spec for spec in source.tables if spec.member}
            self._known = source

    def get(self, oid: int) -> Look | None:
        """Return the last look at a table; None if there is none that counts."""
        return self._looks.get(oid)

    def entry(self, oid: int) -> SourceTableSpec | None:
        """Return the entry of a table that was looked at; None if none was, by that OID."""
        return self._spec_of.get(oid)

    def put(self, spec: SourceTableSpec, seen: Look) -> None:
        """Take over a look at a table that is there."""
        assert seen.table is not None
        oid = seen.table.relation.oid
        other = self._oid_of.get(spec.key, oid)
        known = self._spec_of.get(other)
        if other != oid and known is not None and known.key == spec.key:
            # Another table has its place, and what is written to that one is nobody's.
            self._spec_of.pop(other, None)
            self._looks.pop(other, None)
        self._looks[oid], self._spec_of[oid], self._oid_of[spec.key] = seen, spec, oid

    def distrust(self) -> None:
        """Have the next message of each table be followed by a look, and the patrol compare with what was seen."""
        self._looks = {oid: dataclasses.replace(seen, lsn=0) for oid, seen in tuple(self._looks.items())}

    def drop(self, oid: int) -> None:
        """Have the next message be followed by a look, whatever it says."""
        self._looks.pop(oid, None)

    def all(self) -> Mapping[int, Look]:
        """Return the last looks as they are now, by OID."""
        return dict(self._looks)

    def oids(self) -> Mapping[str, int]:
        """Return the OID of each table that was looked at, by `SourceTableSpec.key`."""
        return {spec.key: oid for oid, spec in tuple(self._spec_of.items())}


__all__ = ["LastLooks"]
