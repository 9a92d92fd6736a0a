"""The rights kuvasz needs at a source, as SQL that a DBA can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.source import publication, sql

if TYPE_CHECKING:
    from collections.abc import Collection

    from kuvasz.source.catalog.table import SourceTable

#: The rights a role needs, and no more, where a publication is made beforehand by the tables' owner.
LEAST_PRIVILEGES: Final = """\
CREATE ROLE {role} LOGIN REPLICATION PASSWORD '…';
GRANT CONNECT ON DATABASE {database} TO {role};
GRANT USAGE ON SCHEMA {schemas} TO {role};
GRANT SELECT ON TABLE {tables} TO {role};
{publication}
"""


def least_privileges(role: str, database: str, name: str, tables: Collection[SourceTable]) -> str:
    """Return the SQL by which a DBA makes a role, with no right too many, and the publication it reads.

    Args:
        role: The role to make.
        database: The real name of the database.
        name: The publication's name, `kuvasz.source.publication.object_name`.
        tables: What the map wants; the partitions of a partitioned table are read one by one, so they are named.
    """
    names = [table.table for table in tables] + [leaf.table for table in tables for leaf in table.leaves]
    return LEAST_PRIVILEGES.format(
        role=sql.identifier(role), database=sql.identifier(database),
        schemas=sql.identifiers(sorted({name.schema for name in names})),
        tables=", ".join(sql.qualified(name) for name in names),
        publication=publication.create_statement(name, tables),
    )  # fmt: skip
