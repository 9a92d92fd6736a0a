"""All that a database has of tables, and of what looks like one: what a map could be made of.

Partitions are part of their root and not listed. See the manual, section 53.11 "pg_class", and 53.18 "pg_depend" for
what belongs to an extension.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from kuvasz.model import TableName
from kuvasz.source import conninfo, failure
from kuvasz.source.catalog import introspect, sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from kuvasz.source.catalog.table import SourceTable

# Views, foreign and temporary tables, too: that they are left out has to be said.
_RELATIONS = """
SELECT n.nspname::text, c.relname::text, coalesce(e.extname::text, '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
    AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
LEFT JOIN pg_extension e ON e.oid = d.refobjid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'
ORDER BY n.nspname, c.relname
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What one database has."""

    location: str  #: ``user@host:port/database``
    database: str
    tables: tuple[SourceTable, ...]  #: by schema and name; also views and the like, with `why_unsupported`
    extensions: Mapping[TableName, str]  #: table -> the extension that it is a part of; others are not in it


def take(url: str) -> Inventory:
    """Return what a database has.

    Raises:
        ConfigError: The url cannot be read.
        SourceError: The server cannot be reached, or a query failed.
    """
    with contextlib.closing(conninfo.connect(url)) as connection:
        owners = _owners(connection)
        found = introspect.load_relations(connection, owners)
        return Inventory(
            location=conninfo.location(url),
            database=connection.info.dbname,
            tables=tuple(sizes.sized_unless_locked(connection, [found[one] for one in owners if one in found])),
            extensions={table: extension for table, extension in owners.items() if extension},
        )


def _owners(connection: psycopg.Connection[Any]) -> dict[TableName, str]:
    with failure.translated(conninfo.place(connection), "list the tables"):
        rows = connection.execute(_RELATIONS).fetchall()
    return {TableName(schema=schema, name=name): extension for schema, name, extension in rows}


__all__ = ["Inventory", "take"]
