"""The types of one source's columns, for its stream: as few looks at the catalog as can be.

A stream that begins describes each of its tables once, many of them in one gulp, and a connection for each would
take longer than all of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

#: Those, as far as a server was asked for them: whoever has a thousand databases asks the first, not each of them.
_BUILT_IN: dict[int, PgType] = {}


class TypeCatalog:
    """A `kuvasz.route.assembler.TypeLookup`, for one thread at a time.

    A type that is the same in every server is asked for once, whatever the source; others may be altered, and are
    asked for each time.

    Args:
        url: Returns the url of the source, for a connection that is made now.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def __call__(self, oids: Iterable[int]) -> dict[int, PgType]:
        """Return types by OID; one that is not there is left out.

        Raises:
            SourceError: The catalog cannot be read.
        """
        wanted = set(oids)
        missing = wanted - _BUILT_IN.keys()
        asked = introspect.load_types(self._connected(), missing) if missing else {}
        _BUILT_IN.update({oid: found for oid, found in asked.items() if oid < _FIRST_GIVEN})
        return asked | {oid: _BUILT_IN[oid] for oid in wanted & _BUILT_IN.keys()}

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = conninfo.connect(self._url())
        return self._connection


__all__ = ["TypeCatalog"]
