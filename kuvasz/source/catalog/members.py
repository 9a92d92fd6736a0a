"""Tables as a regular expression over their names, or over those of their schemas, looks at them.

See the manual, section 53.11 "pg_class", and section 9.28.7 for ``pg_partition_ancestors``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kuvasz.model import TableName
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

_TABLES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, CASE WHEN c.relispartition THEN
    ARRAY(SELECT a.relid::oid::bigint FROM pg_partition_ancestors(c.oid) AS a (relid) WHERE a.relid <> c.oid) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE {which} AND c.relkind IN ('r', 'p') ORDER BY n.nspname, c.relname
"""

_OF_SCHEMAS = "n.nspname = ANY(%s::text[])"

_OF_NAMES = """
c.relname = ANY(%s::text[]) AND NOT starts_with(n.nspname, 'pg_') AND n.nspname <> 'information_schema'
"""


class Candidate(NamedTuple):
    """A table, partitioned or a partition or neither."""

    oid: int
    table: TableName
    ancestors: tuple[int, ...]  #: OIDs of what it is a partition of, up to the root


def load(connection: psycopg.Connection[Any], schemas: Iterable[str]) -> list[Candidate]:
    """Return the tables of some schemas, by name.

    Raises:
        SourceError: The query failed.
    """
    return _load(connection, _OF_SCHEMAS, schemas)


def named(connection: psycopg.Connection[Any], tables: Iterable[str]) -> list[Candidate]:
    """Return the tables of some names in whatever schema, but for PostgreSQL's own.

    Raises:
        SourceError: The query failed.
    """
    return _load(connection, _OF_NAMES, tables)


def _load(connection: psycopg.Connection[Any], which: str, names: Iterable[str]) -> list[Candidate]:
    with failure.translated(place(connection), "list the tables"):
        rows = connection.execute(_TABLES.format(which=which), (sorted(set(names)),)).fetchall()
    return [
        Candidate(oid, TableName(schema=schema, name=name), tuple(ancestors or ()))
        for oid, schema, name, ancestors in rows
    ]


__all__ = ["Candidate", "load", "named"]
