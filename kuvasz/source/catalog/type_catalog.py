"""The types of one source's columns, for its stream: as few looks at the catalog as can be.

A stream that begins describes each of its tables once, many of them in one gulp, and a connection for each would
take longer than all of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kuvasz.model import PgType
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg


#: Below are the types whose OIDs PostgreSQL's source gives by hand, the same in every server; from here on they are
#: given when it is built, when a cluster is made, or, from 16384 on, to what users make (manual, section 68.2.2
#: "OID Assignment").
_FIRST_GIVEN = 10000

#: Of those, the ones that most columns have (``pg_type.dat``): name -> OIDs of the type and of its array. They are
#: written down, for one server's answer must not count for another's: who owns a database may write into its catalog.
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


class TypeCatalog:
    """A `kuvasz.route.assembler.TypeLookup`, for one thread at a time.

    The most common ones are known, a type that is the same in every server is asked for once; others may be altered,
    and are asked for each time.

    Args:
        url: Returns the url of the source, for a connection that is made now.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._built_in = dict(BUILT_IN)
        self._connection: psycopg.Connection[Any] | None = None

    def __call__(self, oids: Iterable[int]) -> dict[int, PgType]:
        """Return types by OID; one that is not there is left out.

        Raises:
            SourceError: The catalog cannot be read.
        """
        wanted = set(oids)
        missing = wanted - self._built_in.keys()
        asked = introspect.load_types(self._connected(), missing) if missing else {}
        self._built_in |= {oid: found for oid, found in asked.items() if oid < _FIRST_GIVEN}
        return asked | {oid: self._built_in[oid] for oid in wanted & self._built_in.keys()}

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = conninfo.connect(self._url())
        return self._connection


__all__ = ["BUILT_IN", "TypeCatalog"]
