"""What the text of values rests on beside the values themselves: labels of enums, attributes of composite types.

``ALTER TYPE … RENAME VALUE``, ``ADD ATTRIBUTE`` and ``DROP ATTRIBUTE`` change how rows read that nobody touched, and
neither the table's catalog entry nor its stream tells of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

#: OIDs below are of types that come with the server and are never altered (manual, section 68.2.2).
_FIRST_GIVEN = 10000

#: Facts of one type that are told apart: they are noted with the lake's table, and written anew with all that is
#: committed to it. What rests on more, as an enum of thousands of labels, has one fact, which any change changes.
_MOST: Final = 1000

#: The types that a type `t` rests on itself.
BELOW: Final = """
LATERAL (
    SELECT t.typelem WHERE t.typelem <> 0
    UNION SELECT t.typbasetype WHERE t.typbasetype <> 0
    UNION SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    UNION SELECT a.atttypid FROM pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS below (oid)
"""

# A fact holds as long as it is there: a label that is added changes no row and is a fact of its own; an attribute
# that is added or dropped changes all rows and gives the type another fact. Names of attributes are in no value.
# A label that was renamed and has its name back had another one in messages: which labels one transaction wrote is a
# fact as well.
_FACTS = f"""
WITH RECURSIVE rests (root, oid) AS (
    SELECT wanted, wanted FROM unnest(%s::oid[]) AS wanted
    UNION
    SELECT rests.root, below.oid FROM rests JOIN pg_type t ON t.oid = rests.oid CROSS JOIN {BELOW})
SELECT rests.root::bigint, CASE WHEN count(*) > {_MOST}
    THEN ARRAY[left(md5(string_agg(md5(facts.fact), ' ' ORDER BY md5(facts.fact))), 8)]
    ELSE array_agg(left(md5(facts.fact), 8) ORDER BY left(md5(facts.fact), 8)) END
FROM rests JOIN pg_type t ON t.oid = rests.oid
CROSS JOIN LATERAL (
    SELECT 'label ' || e.oid || ' ' || e.enumlabel FROM pg_enum e WHERE e.enumtypid = t.oid
    UNION ALL SELECT 'written ' || e.xmin::text || ' ' || string_agg(e.oid::text, ' ' ORDER BY e.oid)
    FROM pg_enum e WHERE e.enumtypid = t.oid GROUP BY e.xmin::text
    UNION ALL SELECT 'domain ' || t.oid || ' ' || t.typbasetype || ' ' || t.typtypmod WHERE t.typtype = 'd'
    UNION ALL SELECT 'attributes ' || t.oid || ' ' || coalesce((
        SELECT string_agg(a.attnum || ' ' || a.atttypid || ' ' || a.atttypmod, ', ' ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '')
    WHERE t.typtype = 'c') AS facts (fact)
GROUP BY rests.root
"""


def load(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return what values of types rest on, by OID, types below them included; each fact is a short hash.

    Types of which nothing can be altered are left out.

    Raises:
        SourceError: The query failed.
    """
    wanted = sorted({oid for oid in oids if oid >= _FIRST_GIVEN})
    if not wanted:
        return {}
    with failure.translated(place(connection), "read what the types are made of"):
        rows = connection.execute(_FACTS, (wanted,)).fetchall()
    return {oid: tuple(facts) for oid, facts in rows}


__all__ = ["BELOW", "load"]
