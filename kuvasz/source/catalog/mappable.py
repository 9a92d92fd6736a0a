"""The tables that patterns of a map may take in.

Permanent ones, partitioned or not, outside PostgreSQL's own schemas and outside extensions; a partition is part of
its root. See the manual, section 53.11 "pg_class", and 53.26 "pg_index" for what tells rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz.config.patterns.found_tables import SeenTable
from kuvasz.model import TableName
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

_TABLES = """
SELECT n.nspname::text, c.relname::text, c.relreplident = 'f' OR EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND (i.indisprimary OR i.indisreplident)
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
    AND NOT starts_with(n.nspname, 'pg_') AND n.nspname <> 'information_schema' AND n.nspname LIKE ANY (%s::text[])
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND d.objsubid = 0 AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e')
ORDER BY n.nspname <> 'public', n.nspname, c.relname
"""


def load(connection: psycopg.Connection[Any], patterns: Iterable[TableName]) -> tuple[SeenTable, ...]:
    """Return the tables of the schemas that patterns mean, by name; those of ``public`` first.

    Raises:
        SourceError: The query failed.
    """
    schemas = sorted({_like(pattern.schema) for pattern in patterns})
    with failure.translated(place(connection), "list the tables"):
        rows = connection.execute(_TABLES, (schemas,)).fetchall()
    return tuple(
        SeenTable(table=TableName(schema=schema, name=name), has_key=has_key) for schema, name, has_key in rows
    )


def _like(pattern: str) -> str:
    for special in ("\\", "%", "_"):
        pattern = pattern.replace(special, f"\\{special}")
    return pattern.replace("*", "%")


__all__ = ["load"]
