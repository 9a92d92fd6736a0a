"""The last look at each table of one source, and which table the stream means by an OID or a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping

from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.model import Relation, TableName
from kuvasz.source.catalog import fingerprint
from kuvasz.source.catalog.look import Look
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.context.source_tables import SourceTables


class LastLooks:
    """The looks of one source. From any thread.

    Args:
        source_tables: Which tables the source has now.
        targets_of: Which targets the changes of a relation go to; none: nobody says.
    """

    def __init__(self, source_tables: SourceTables, targets_of: Callable[[Relation], Collection[str]]) -> None:
        self._source_tables = source_tables
        self._targets_of = targets_of
        self._known: Source | None = None  #: of which the next two are
        self._specs: dict[TableName, tuple[SourceTableSpec, ...]] = {}  #: several, where a table has routes
        self._members: dict[int, SourceTableSpec] = {}  #: by OID: whatever they are called
        self._looks: dict[int, Look] = {}  #: by OID
        self._specs_of: dict[int, tuple[SourceTableSpec, ...]] = {}  #: by OID
        self._oid_of: dict[str, int] = {}  #: by `SourceTableSpec.key`, the last one: a source may have many thousands

    def begin(self, tables: Iterable[tuple[SourceTableSpec, SourceTable]], at: int) -> None:
        """Take over what was seen at an LSN, and prepared in the lake."""
        tables = tuple(tables)
        keys = {spec.key for spec, _ in tables}
        for spec, table in tables:
            seen = self._looks.get(table.relation.oid)
            if seen is not None and self._is_news_to_others(seen, table, keys):
                self._enter(spec, table.relation.oid)  # and the next message is followed by a look, for all of them
            else:
                self.put(spec, Look(lsn=at, table=table))

    def _is_news_to_others(self, seen: Look, table: SourceTable, keys: Collection[str]) -> bool:
        """Whether other routes of a table follow it as it was: what is seen of it here was not prepared for them."""
        others = (one for one in self._specs_of.get(table.relation.oid, ()) if one.key not in keys)
        if not any(self._source_tables.is_streaming(one) for one in others):
            return False
        return seen.table is None or fingerprint.of(seen.table) != fingerprint.of(table)

    def specs(self, relation: Relation) -> tuple[SourceTableSpec, ...]:
        """Return the entries of the table that a relation of the stream is: several, where it has routes."""
        self._know()
        # Whatever it is called: a name is how a table is found for the first time.
        member = self._members.get(relation.oid)
        return (member,) if member is not None else self._specs_of.get(relation.oid) or self._unseen(relation)

    def _unseen(self, relation: Relation) -> tuple[SourceTableSpec, ...]:
        """Return the entries of a relation that no look has shown: it may be gone, and another have its name now."""
        targets, named = self._targets_of(relation), self._specs.get(relation.table, ())
        if not named or not targets or any(spec.identifier in targets for spec in named):
            return named
        return tuple(spec for found in self._specs.values() for spec in found if spec.identifier in targets)

    def _know(self) -> None:
        source = self._source_tables.source
        if source is not self._known:  # not at each message, for there may be thousands of tables
            self._specs = {}
            for spec in source.tables:
                if not spec.member and not spec.is_collapse:
                    self._specs[spec.table] = (*self._specs.get(spec.table, ()), spec)
            self._members = {spec.oid: spec for spec in source.tables if spec.member}
            self._known = source

    def get(self, oid: int) -> Look | None:
        """Return the last look at a table; None if there is none that counts."""
        return self._looks.get(oid)

    def entry(self, oid: int) -> SourceTableSpec | None:
        """Return the entry of a table that was looked at, the first of several; None if none was, by that OID."""
        return next(iter(self._specs_of.get(oid, ())), None)

    def put(self, spec: SourceTableSpec, seen: Look) -> None:
        """Take over a look at a table that is there."""
        assert seen.table is not None
        self._looks[seen.table.relation.oid] = seen
        self._enter(spec, seen.table.relation.oid)

    def _enter(self, spec: SourceTableSpec, oid: int) -> None:
        other = self._oid_of.get(spec.key, oid)
        known = self._specs_of.get(other, ())
        if other != oid and any(one.key == spec.key for one in known):
            # Another table has its place, and what is written to that one is nobody's.
            left = tuple(one for one in known if one.key != spec.key)
            self._specs_of[other] = left
            if not left:
                self._specs_of.pop(other, None)
                self._looks.pop(other, None)
        beside = tuple(one for one in self._specs_of.get(oid, ()) if one.is_beside(spec))
        self._specs_of[oid], self._oid_of[spec.key] = (*beside, spec), oid

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
        return {spec.key: oid for oid, specs in tuple(self._specs_of.items()) for spec in specs}


__all__ = ["LastLooks"]
