"""What the text of values rests on beside the values themselves: labels of enums, attributes of composite types.

Types that come with every server rest on nothing, and the most common of them are written down.

``ALTER TYPE … RENAME VALUE``, ``ADD ATTRIBUTE`` and ``DROP ATTRIBUTE`` change how rows read that nobody touched, and
neither the table's catalog entry nor its stream tells of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.model import PgType
from kuvasz.source import failure
from kuvasz.source.conninfo import place

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

#: Below are the types whose OIDs PostgreSQL's source gives by hand, the same in every server, and that are never
#: altered; from here on they are given when it is built, when a cluster is made, or, from 16384 on, to what users
#: make (manual, section 68.2.2 "OID Assignment").
FIRST_GIVEN: Final = 10000

#: Of the former, the ones that most columns have (``pg_type.dat``): name -> OIDs of the type and of its array. They
#: are written down, for one server's answer must not count for another's: who owns a database may write into its
#: catalog.
_OIDS: Final = {
    "bool": (16, 1000), "bytea": (17, 1001), "int8": (20, 1016), "int2": (21, 1005), "int4": (23, 1007),
    "text": (25, 1009), "oid": (26, 1028), "json": (114, 199), "xml": (142, 143), "point": (600, 1017),
    "cidr": (650, 651), "float4": (700, 1021), "float8": (701, 1022), "macaddr8": (774, 775), "money": (790, 791),
    "macaddr": (829, 1040), "inet": (869, 1041), "bpchar": (1042, 1014), "varchar": (1043, 1015),
    "date": (1082, 1182), "time": (1083, 1183), "timestamp": (1114, 1115), "timestamptz": (1184, 1185),
    "interval": (1186, 1187), "timetz": (1266, 1270), "bit": (1560, 1561), "varbit": (1562, 1563),
    "numeric": (1700, 1231), "uuid": (2950, 2951), "tsvector": (3614, 3643), "jsonb": (3802, 3807),
}  # fmt: skip


def _types() -> dict[int, PgType]:
    found: dict[int, PgType] = {}
    for name, (oid, array_oid) in _OIDS.items():
        found[oid] = PgType(oid=oid, name=name)
        found[array_oid] = PgType(oid=array_oid, name=f"_{name}", element=found[oid])
    return found


#: OID -> type, those and their arrays.
BUILT_IN: Final = _types()

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
    wanted = sorted({oid for oid in oids if oid >= FIRST_GIVEN})
    if not wanted:
        return {}
    with failure.translated(place(connection), "read what the types are made of"):
        rows = connection.execute(_FACTS, (wanted,)).fetchall()
    return {oid: tuple(facts) for oid, facts in rows}


__all__ = ["BELOW", "BUILT_IN", "FIRST_GIVEN", "load"]
