"""The types of one source's columns, for its stream: as few looks at the catalog as can be.

A stream that begins describes each of its tables once, many of them in one gulp, and a connection for each would
take longer than all of their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.source.catalog.type_facts import BUILT_IN, FIRST_GIVEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg

    from kuvasz.model import PgType


class TypeCatalog:
    """A `kuvasz.route.assembler.TypeLookup`, for one thread at a time.

    The most common ones are known, a type that is the same in every server is asked for once; others may be altered,
    and are asked for each time.

    Args:
        url: Returns the url of the source, for a connection that is made now.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._asked: dict[int, PgType] = {}  # of those that are the same in every server
        self._connection: psycopg.Connection[Any] | None = None

    def __call__(self, oids: Iterable[int]) -> dict[int, PgType]:
        """Return types by OID; one that is not there is left out.

        Raises:
            SourceError: The catalog cannot be read.
        """
        wanted = set(oids)
        known = {oid: found for oid in wanted if (found := BUILT_IN.get(oid) or self._asked.get(oid)) is not None}
        missing = wanted - known.keys()
        if not missing:
            return known
        asked = introspect.load_types(self._connected(), missing)
        self._asked |= {oid: found for oid, found in asked.items() if oid < FIRST_GIVEN}
        return asked | known

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
