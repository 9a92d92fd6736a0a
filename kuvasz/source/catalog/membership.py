"""By which catalog rows a publication has published a table, so that it is seen whether it did so all the time.

A table that is taken out of a publication and put in again looks as it did before, and what changed in between is in
no stream. But each clause that names a table is a row of its own with an OID of its own (manual, sections 53.41
"pg_publication_rel" and 53.40 "pg_publication_namespace"), and what a publication sends is in its own row, which
another transaction writes when it is altered. So whoever finds the same rows knows that nothing was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self

from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

#: The first version that publishes schemas.
_SCHEMAS_SINCE = 150000

#: A table that leaves a schema and comes back has another row in pg_depend.
_BY_SCHEMA = """
(SELECT 'schema ' || n.oid || ':' || n.xmin || ':' || coalesce((SELECT min(d.xmin::text) FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.objid = t.oid AND d.objsubid = 0
        AND d.refclassid = 'pg_namespace'::regclass), '')
FROM pg_publication_namespace n JOIN pg_class c ON c.oid = t.oid AND c.relnamespace = n.pnnspid
WHERE n.pnpubid = p.oid)
"""

_ROWS = """
SELECT t.oid::bigint, p.oid || ':' || p.xmin, array_remove(ARRAY[
    CASE WHEN p.puballtables THEN 'all' END,
    (SELECT 'table ' || r.oid || ':' || r.xmin FROM pg_publication_rel r
     WHERE r.prpubid = p.oid AND r.prrelid = t.oid),
    {by_schema}], NULL)
FROM pg_publication p CROSS JOIN unnest(%s::oid[]) AS t (oid) WHERE p.pubname = %s
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The catalog rows by which a publication publishes one table."""

    publication: str  #: its own row: OID and transaction
    clauses: frozenset[str]  #: rows that name the table or its schema

    def goes_on_from(self, earlier: Self) -> bool:
        """Return whether the table was published alike at each moment since an earlier look."""
        return self.publication == earlier.publication and not self.clauses.isdisjoint(earlier.clauses)

    def render(self) -> str:
        """Return what `parse` reads."""
        return ", ".join((self.publication, *sorted(self.clauses)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what was rendered."""
        publication, *clauses = text.split(", ")
        return cls(publication=publication, clauses=frozenset(clauses))


def load(connection: psycopg.Connection[Any], publication: str, oids: Collection[int]) -> Mapping[int, Membership]:
    """Return how a publication publishes tables now, by their OIDs; one that it does not publish is left out.

    Raises:
        SourceError: The query failed.
    """
    has_schemas = connection.info.server_version >= _SCHEMAS_SINCE
    query = _ROWS.format(by_schema=_BY_SCHEMA if has_schemas else "NULL")
    with failure.translated(place(connection), f"read publication {publication}"):
        rows = connection.execute(query, (list(oids), publication)).fetchall() if oids else []
    return {oid: Membership(publication=row, clauses=frozenset(found)) for oid, row, found in rows if found}


__all__ = ["Membership", "load"]
