"""Finds the tables of one source by their OIDs: what the map calls a table is how it is found for the first time.

Once the lake has rows of a table, the table is known by its OID (`kuvasz.evolve.known`): a new name, or another
schema, changes nothing about whose rows come. Only where another table has the name that the map says, nobody knows
which of the two is meant; then the entry means the one of that name, and its target refuses it until a person has
decided.
Called in threads, never on the event loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kuvasz.source.catalog import introspect

if TYPE_CHECKING:
    from kuvasz.config.sources import Source, SourceTableSpec
    from kuvasz.model import TableName
    from kuvasz.sync.context.source_context import SourceContext


def located(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    tables: Mapping[str, tuple[TableName, int]],
) -> Mapping[str, TableName]:
    """Return by what names tables are found now, by their keys; those that are gone are left out.

    Args:
        connection: To the source.
        tables: Key -> the name that the map has, and the OID of the table whose rows the lake has.

    Raises:
        SourceError: The catalog cannot be read.
    """
    found = introspect.names_of(connection, [oid for _, oid in tables.values()]) if tables else {}
    names = {key: (mapped, found[oid]) for key, (mapped, oid) in tables.items() if oid in found}
    moved = [mapped for mapped, name in names.values() if name != mapped]
    taken = introspect.tables_named(connection, moved) if moved else frozenset()
    return {key: mapped if mapped in taken else name for key, (mapped, name) in names.items()}


def renamed(
    connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
    source: Source,
    oids: Mapping[str, int],
) -> Source:
    """Return a source with its tables by the names that they have now.

    Args:
        connection: To the source.
        source: As the map has it.
        oids: Key -> OID of the table whose rows the lake has.

    Raises:
        SourceError: The catalog cannot be read.
    """
    known = {
        spec.key: (spec.table, oids[spec.key]) for spec in source.tables if oids.get(spec.key) and not spec.member
    }
    names = located(connection, known)
    tables = tuple(dataclasses.replace(spec, table=names.get(spec.key, spec.table)) for spec in source.tables)
    return dataclasses.replace(source, tables=tables)


class Renames:
    """The names that tables of one source have now.

    Args:
        context: The context of the source.
        attach: Has the lake load a table's target; returns the OID of the table whose rows it has, 0 if it has none.
    """

    def __init__(self, context: SourceContext, attach: Callable[[SourceTableSpec], int]) -> None:
        self._source = context.source.name
        self._source_tables = context.source_tables
        self._claim = context.shared.routes.claim
        self._attach = attach

    def learn(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        specs: Iterable[SourceTableSpec],
    ) -> None:
        """Learn which names these tables have now, and have all know them by these.

        Raises:
            SourceError: The catalog cannot be read.
            LakeError: The lake cannot be read.
        """
        known: dict[str, tuple[TableName, int]] = {}
        mine = {spec.key: spec for spec in specs if not spec.member}
        for spec in mine.values():
            if oid := self._attach(spec):
                self._claim(self._source, spec, oid)
                known[spec.key] = self._source_tables.mapped(spec), oid
        for key, name in located(connection, known).items():
            self._source_tables.rename(mine[key], name)


__all__ = ["Renames", "located", "renamed"]
