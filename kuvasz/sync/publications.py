"""The publications of one source: that of whole tables, and that of tables of which only INSERTs may be published.

Called in threads, never on the event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import SourceError, SourceRefused
from kuvasz.model import TableName
from kuvasz.source import conninfo, inserts, publication, slots
from kuvasz.source.table import SourceTable
from kuvasz.sync import keyless
from kuvasz.sync.basis import Basis
from kuvasz.sync.targets import narrowed

_log = logging.getLogger(__name__)


class Publications:
    """One source's publications.

    Args:
        basis: Of the source.
        forget: Has a table copied again.
    """

    def __init__(self, basis: Basis, *, forget: Callable[[SourceTableSpec], None]) -> None:
        self.name = basis.source.object_name
        self.inserts_name = inserts.object_name(self.name)
        self._source = basis.source.name
        self._url = basis.url
        self._roster = basis.roster
        self._requests = basis.requests
        self._forget = forget
        self.refused: dict[str, SourceRefused] = {}  #: why tables cannot be published, by `SourceTableSpec.key`

    def fit(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        usable: Sequence[tuple[SourceTableSpec, SourceTable]],
        specs: Sequence[SourceTableSpec],
    ) -> Sequence[SourceTable]:
        """Make both publications fit; returns the tables of which only INSERTs are published.

        Args:
            connection: To the source.
            usable: What is to be published.
            specs: Those of them that are looked at: they do not stream now.

        Raises:
            SourceRefused: None of the tables can be published; what keeps one of them from it is in `refused`.
            SourceError: They cannot be changed.
        """
        # A column list made by hand may leave out what the map does.
        full = [_narrowed(spec, table) for spec, table in usable if not keyless.has_only_inserts(table)]
        partial = [_narrowed(spec, table) for spec, table in usable if keyless.has_only_inserts(table)]
        self._refuse(connection, full, partial)
        self._fit(connection, self.name, full, specs)
        if partial or publication.load(connection, self.inserts_name) is not None:
            self._fit(connection, self.inserts_name, partial, specs, inserts.OPERATIONS)
        return partial

    def _refuse(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        full: Sequence[SourceTable],
        partial: Sequence[SourceTable],
    ) -> None:
        """Find out which tables cannot be published."""
        found: dict[TableName, SourceRefused] = {}
        for name, tables, operations in (
            (self.name, full, publication.ALL_OPERATIONS), (self.inserts_name, partial, inserts.OPERATIONS),
        ):  # fmt: skip
            if tables:
                current = publication.load(connection, name)
                found |= publication.refusals(connection, current, name, tables, operations)
        if found and len(found) == len(full) + len(partial):
            raise next(iter(found.values()))
        self.refused = {spec.key: found[spec.table] for spec in self._roster.source.tables if spec.table in found}

    def withdraw(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        usable: Sequence[tuple[SourceTableSpec, SourceTable]],
    ) -> None:
        """Publish no more than these tables, none of which can be replicated now.

        Raises:
            SourceError: The publications cannot be changed.
        """
        if publication.load(connection, self.name) is not None:
            # A table without key must not stay published: the application's own UPDATE would fail.
            self.fit(connection, usable, [])

    def _fit(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        name: str,
        tables: Sequence[SourceTable],
        specs: Sequence[SourceTableSpec],
        operations: Sequence[str] = publication.ALL_OPERATIONS,
    ) -> None:
        """Make a publication fit; tables that were copied once and are not in it now missed changes."""
        refused = {spec.table for spec in self._roster.source.tables if spec.key in self.refused}
        left = [table for table in tables if table.table in refused]
        tables = [table for table in tables if table.table not in refused]
        planned = publication.plan(publication.load(connection, name), name, tables, operations, left=left)
        for spec in self._roster.source.tables:
            if spec.table in planned.added and self._roster.position(spec) is not None:
                _log.warning("a table was not published for a while and is copied again", extra={
                    "event": "copied_again", "source": self._source, "table": spec.identifier})  # fmt: skip
                # Before it is published again: after a crash nothing else would tell of the gap.
                if spec in specs:
                    self._forget(spec)
                else:  # it streams beside what is looked at
                    self._roster.resync(spec, is_due=True)
                    self._requests.send(spec.key)
        done = publication.carry_out(connection, name, planned)
        if done.statements or done.tidying:
            _log.info("publication changed", extra={"event": "publication", "source": self._source,
                      "statements": [*done.statements, *done.tidying]})  # fmt: skip

    def may_name_inserts(
        self,
        connection: Any,  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        taken: slots.ExportedSnapshot | None,
    ) -> bool:
        """Whether the stream may name the publication of INSERTs alone from where it goes on.

        Args:
            connection: To the source.
            taken: Of the slot, if it was created just now.

        Raises:
            SourceError: The source does not answer.
        """
        if taken is not None:
            inserts.mark(connection, self.inserts_name, taken.consistent_point)
            return True
        from_lsn = inserts.since(connection, self.inserts_name)
        state = slots.describe(connection, self.name)
        confirmed = None if state is None else state.confirmed_flush_lsn
        return from_lsn is not None and confirmed is not None and confirmed >= from_lsn

    def inserts_since(self) -> int | None:
        """Return the LSN from which the stream may name the publication of INSERTs alone; None: not known now."""
        try:
            with contextlib.closing(conninfo.connect(self._url)) as connection:
                return inserts.since(connection, self.inserts_name)
        except SourceError:
            return None  # the reader finds out that the source is gone


def _narrowed(spec: SourceTableSpec, table: SourceTable) -> SourceTable:
    """Return a table with the columns that the map takes."""
    return dataclasses.replace(table, relation=narrowed(spec, table.relation))


__all__ = ["Publications"]
