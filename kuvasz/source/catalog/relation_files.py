"""The files of tables that may be written without WAL while they are published.

A table that a publication names cannot be made unlogged, but one that is published with its schema, or with all
tables, can (manual, "ALTER TABLE", SET LOGGED | UNLOGGED). Both write it into another file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kuvasz.source import failure
from kuvasz.source.catalog.partitions import HORIZON
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

_FILES = f"""
SELECT c.oid::bigint, c.relfilenode::bigint, c.xmin::text::bigint, {HORIZON}
FROM pg_class c WHERE c.oid = ANY(%s::oid[]) AND c.relkind = 'r'
    AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prrelid = c.oid)
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelationFile:
    """The file of one table as it is now."""

    file: int  #: relfilenode
    file_xid: int  #: transaction that gave it that file, or changed its catalog entry otherwise since
    horizon: int  #: each transaction below was over, as `partitions.HORIZON` has it


def load(connection: psycopg.Connection[Any], oids: Collection[int]) -> dict[int, RelationFile]:
    """Return the files of those tables that no publication names, by OID; partitioned ones have none.

    Raises:
        SourceError: The query failed.
    """
    with failure.translated(place(connection), "read the files of tables"):
        rows = connection.execute(_FILES, (list(oids),)).fetchall() if oids else []
    return {oid: RelationFile(file=file, file_xid=xid, horizon=horizon) for oid, file, xid, horizon in rows}


__all__ = ["RelationFile", "load"]
