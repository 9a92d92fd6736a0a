"""Whether a table, and what publishes it, are as they were when a slot stood where it stands.

A slot knows the oldest transaction that may still have been running where it stands (``catalog_xmin``): whatever an
older one wrote into the catalog was there by then (manual, section 54.19). So a row of the catalog that is older says
that what it tells has not changed since, and one that is not may have been written later. A new slot is as old as the
oldest of its server.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from kuvasz import lsn
from kuvasz.source import failure
from kuvasz.source.catalog import type_facts
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    import psycopg

#: The first version that publishes schemas.
_SCHEMAS_SINCE: Final = 150000

_BY_SCHEMA: Final = """
UNION ALL SELECT 'publication', n.xmin FROM pg_publication_namespace n
    JOIN pg_class c ON c.relnamespace = n.pnnspid WHERE c.oid = asked.oid AND n.pnpubid = asked.publication
"""

#: Rows of the catalog that say what messages of a table are: that it is sent, of what it is made, and by what its
#: rows are told apart.
_QUERY: Final = """
WITH RECURSIVE asked AS (
    SELECT %s::oid AS oid, (SELECT oid FROM pg_publication WHERE pubname = %s) AS publication
), rests (oid) AS (
    SELECT a.atttypid FROM pg_attribute a JOIN asked ON a.attrelid = asked.oid WHERE a.attnum > 0
    UNION SELECT below.oid FROM rests JOIN pg_type t ON t.oid = rests.oid CROSS JOIN {below}
)
SELECT s.confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text, (
    SELECT array_agg(DISTINCT found.what) FROM asked CROSS JOIN LATERAL (
        SELECT 'table' AS what, c.xmin FROM pg_class c WHERE c.oid = asked.oid
        UNION ALL SELECT 'schema', n.xmin FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
            WHERE c.oid = asked.oid
        UNION ALL SELECT 'columns', a.xmin FROM pg_attribute a WHERE a.attrelid = asked.oid AND a.attnum > 0
        UNION ALL SELECT 'defaults', d.xmin FROM pg_attrdef d WHERE d.adrelid = asked.oid
        UNION ALL SELECT 'types', t.xmin FROM pg_type t JOIN rests ON t.oid = rests.oid
        UNION ALL SELECT 'types', e.xmin FROM pg_enum e JOIN rests ON e.enumtypid = rests.oid
        UNION ALL SELECT 'types', a.xmin FROM pg_attribute a JOIN pg_type t ON a.attrelid = t.typrelid
            JOIN rests ON t.oid = rests.oid WHERE t.typtype = 'c' AND a.attnum > 0
        UNION ALL SELECT 'indexes', i.xmin FROM pg_index i WHERE i.indrelid = asked.oid
        UNION ALL SELECT 'inheritance', h.xmin FROM pg_inherits h WHERE asked.oid IN (h.inhrelid, h.inhparent)
        UNION ALL SELECT 'publication', p.xmin FROM pg_publication p WHERE p.oid = asked.publication
        UNION ALL SELECT 'publication', r.xmin FROM pg_publication_rel r
            WHERE r.prrelid = asked.oid AND r.prpubid = asked.publication
        {by_schema}
    ) AS found WHERE age(found.xmin) <= age(s.catalog_xmin)
) FROM pg_replication_slots s WHERE s.slot_name = %s AND s.catalog_xmin IS NOT NULL
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotPast:
    """Where a slot stands, and what may have changed since."""

    confirmed_lsn: int  #: transactions that committed before are sent no more
    wal_lsn: int  #: where the server's WAL ends
    altered: tuple[str, ...]  #: what is not proved to be as it was; of what is published nothing else is asked


def load(connection: psycopg.Connection[Any], slot: str, publication: str, oid: int) -> SlotPast | None:
    """Return what is known of a table since a slot stood where it stands; None if there is no such slot.

    That the publication has the table is known; that it had it all the time is what is asked.

    Args:
        connection: To the server that has the slot.
        slot: The slot's name.
        publication: The publication's.
        oid: The table's OID.

    Raises:
        SourceError: The query failed.
    """
    by_schema = _BY_SCHEMA if connection.info.server_version >= _SCHEMAS_SINCE else ""
    query = _QUERY.format(by_schema=by_schema, below=type_facts.BELOW)
    with failure.translated(place(connection), f"read slot {slot}"):
        row = connection.execute(query, (oid, publication, slot)).fetchone()
    if row is None or row[0] is None:
        return None
    confirmed, written, altered = row
    return SlotPast(confirmed_lsn=lsn.parse(confirmed), wal_lsn=lsn.parse(written), altered=tuple(altered or ()))


__all__ = ["SlotPast", "load"]
