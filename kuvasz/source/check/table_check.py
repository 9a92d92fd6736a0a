"""The part of the pre-flight that looks at tables and the publication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kuvasz import typemap
from kuvasz.config import names as map_names
from kuvasz.model import LakeType, Wire
from kuvasz.source import inserts, publication, sql
from kuvasz.source.catalog import introspect
from kuvasz.source.check.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import psycopg

    from kuvasz.model import Column, TableName
    from kuvasz.source.catalog.table import SourceTable
    from kuvasz.source.check.finding import PreflightReport
    from kuvasz.source.check.server_check import Rights
    from kuvasz.source.publication import Publication, PublicationChanges

_FITS = "fits, or may be made so"

#: Gives a table, and its server's version, as its publication is to have it.
AsPublished: TypeAlias = "Callable[[SourceTable, int], SourceTable]"


def as_found(table: SourceTable, version: int) -> SourceTable:  # noqa: ARG001 (it is no matter of versions)
    """Return a table of which its publication is to have everything."""
    return table


#: Base types that are text by nature.
_TEXTS = frozenset({"text", "varchar", "bpchar", "char", "name", "citext", "xml", "json", "jsonb"})


class TableCheck:
    """Looks at the tables of one source through an open session.

    Args:
        report: Takes what is found.
        connection: The session.
        rights: What its role may do.
        is_primary: Whether publications can be made there.
        is_heard: Whether they are another group's to make.
    """

    def __init__(
        self,
        report: PreflightReport,
        connection: psycopg.Connection[Any],
        rights: Rights,
        *,
        is_primary: bool,
        is_heard: bool = False,
    ) -> None:
        self._report = report
        self._connection = connection
        self._rights = rights
        self._is_primary = is_primary
        self._is_heard = is_heard
        self._inserts_do: frozenset[TableName] = frozenset()
        self._as_published: AsPublished = as_found

    def run(
        self,
        names: Collection[TableName],
        inserts_do: Collection[TableName] = (),
        as_published: AsPublished | None = None,
    ) -> None:
        """Carry out every check on these tables.

        Args:
            names: The tables' names.
            inserts_do: The tables that may do with INSERTs alone, if they have no key.
            as_published: Gives a table with what its publication is to have of it.
        """
        self._inserts_do = frozenset(inserts_do)
        self._as_published = as_published or as_found
        self._report.run("tables", "a readable catalog", lambda: self._tables(names))

    def _tables(self, names: Collection[TableName]) -> None:
        loaded = introspect.load_relations(self._connection, names, inserts.with_inserts(self._report.source))
        for name in dict.fromkeys(names):
            table = loaded.get(name)
            if table is None:
                self._missing(name)
            else:
                self._table(table)
        wanted = {table.relation.oid for table in loaded.values()}
        for table in loaded.values():
            self._ancestors(table, wanted)
        fit = [table for table in loaded.values() if table.can_update and not table.why_unsupported]
        if self._is_primary:
            self._report.run("publication", _FITS, lambda: self._publication(fit, self._report.source))
        partial = [
            table for table in loaded.values()
            if not table.can_update and not table.why_unsupported and table.table in self._inserts_do
        ]  # fmt: skip
        if self._is_primary and partial:
            second = inserts.object_name(self._report.source)
            self._report.run("publication", _FITS, lambda: self._publication(partial, second, inserts.OPERATIONS))

    def _missing(self, name: TableName) -> None:
        tables = introspect.list_tables(self._connection, partitions=True)
        alike = [str(table) for table in tables if table.name.lower() == name.name.lower()]
        hint = f"; did you mean {', '.join(alike)}?" if alike else ""
        fix = f"{map_names.missing(name)}{hint}"
        self._report.add("table", "missing", "exists", ok=False, table=name, fix=fix)

    def _table(self, table: SourceTable) -> None:
        name, why = table.table, table.why_unsupported
        fix = "take it out of the map"
        self._report.add("table", why or table.kind.value, "a table", ok=not why, table=name, fix=fix)
        if why:
            return
        self._select(table)
        self._key(table)
        self._columns(table)
        if table.has_policies:
            self._report.add(
                "row_security", "hides rows", "all rows visible", ok=False, table=name,
                fix=f"ALTER ROLE {sql.identifier(self._rights.role)} BYPASSRLS;",
            )  # fmt: skip

    def _ancestors(self, table: SourceTable, wanted: Collection[int]) -> None:
        error = publication.within_wanted(table, wanted)
        if error is not None:
            self._report.add(
                "partition", error.message, "no table of the map above it", ok=False, table=table.table,
                fix=error.hint or "",
            )  # fmt: skip

    def _select(self, table: SourceTable) -> None:
        role = sql.identifier(self._rights.role)
        tables = ", ".join(sql.qualified(one) for one in table.unreadable)
        schemas = sql.identifiers(sorted({one.schema for one in table.unreadable}))
        self._report.add(
            "select", f"denied on {tables}" if tables else "granted", "SELECT", ok=not tables, table=table.table,
            fix=f"GRANT USAGE ON SCHEMA {schemas} TO {role}; GRANT SELECT ON TABLE {tables} TO {role};",
        )  # fmt: skip

    def _key(self, table: SourceTable) -> None:
        key = table.relation.key
        why, _, mend = table.why_no_key.partition("; ")
        has_inserts = not table.can_update and table.table in self._inserts_do
        if has_inserts:
            why = f"{why}: only its INSERTs are replicated"
        self._report.add(
            "key", ", ".join(key) if key else why, "a key", ok=bool(key), table=table.table, fix=mend,
            severity=Severity.ADVICE if table.can_update or has_inserts else Severity.REQUIRED,
        )  # fmt: skip

    def _columns(self, table: SourceTable) -> None:
        if table.generated:
            self._report.add(
                "generated_columns", ", ".join(table.generated), "none", ok=False, severity=Severity.ADVICE,
                table=table.table, fix="they are left out of copy and stream; compute them with `set` if wanted",
            )  # fmt: skip
        odd = [column for column in table.relation.columns if is_kept_as_text(column)]
        if odd:
            value = ", ".join(f"{column.name} {column.pg_type.name}" for column in odd)
            self._report.add(
                "types", value, "types of the lake", ok=False, severity=Severity.ADVICE, table=table.table,
                fix="they arrive as PostgreSQL's text; cast them with `set`, or give a numeric decimal(p,s)",
            )  # fmt: skip

    def _publication(
        self,
        tables: Collection[SourceTable],
        name: str,
        operations: Sequence[str] = publication.ALL_OPERATIONS,
    ) -> None:
        current = publication.load(self._connection, name)
        version = self._connection.info.server_version
        changes = publication.plan(
            current, name, [self._as_published(table, version) for table in tables], operations
        )
        if not changes.statements and not changes.relisted:
            self._report.add("publication", "fits", _FITS, ok=True)
            return
        if self._is_heard:
            for table, why in publication.unfit(changes, name).items():
                self._report.add(
                    "publication", why, "as this map has it", ok=False, table=table, fix=publication.HEARD_HINT
                )  # fmt: skip
            return
        lacking = self._lacking(current, changes, tables)
        value = f"{self._rights.role} {' and '.join(lacking)}" if lacking else "may be made so"
        self._report.add(
            "publication", value, _FITS, ok=not lacking, fix=" ".join((*changes.statements, *changes.relisting))
        )

    def _lacking(
        self, current: Publication | None, changes: PublicationChanges, tables: Collection[SourceTable]
    ) -> list[str]:
        """Return what the role cannot do of what the changes need (manual, "CREATE PUBLICATION", notes)."""
        if self._rights.is_superuser:
            return []
        foreign = [table.table for table in tables if table.table in changes.added and not table.is_owned]
        lacking = [f"does not own {', '.join(str(table) for table in foreign)}"] if foreign else []
        if current is None and not self._rights.may_create:
            lacking.append(f"has no CREATE on database {self._connection.info.dbname}")
        if current is not None and not current.is_owned:
            lacking.append("does not own the publication")
        return lacking


def is_kept_as_text(column: Column) -> bool:
    """Return whether a column that is not text by nature arrives as PostgreSQL's text."""
    base = column.pg_type
    while base.base is not None:
        base = base.base
    if base.category == "e" or base.name in _TEXTS:
        return False
    value = typemap.value_type(column.pg_type, column.typmod)
    return value.kind is LakeType.STRING and value.wire is Wire.TEXT
