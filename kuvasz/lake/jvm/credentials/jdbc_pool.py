"""The connections of an open JDBC catalog: those to come are made with other credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kuvasz.config.model import JDBC_CREDENTIALS
from kuvasz.lake.jvm.credentials import java_fields
from kuvasz.lake.jvm.credentials.catalog_login import CatalogLogin

if TYPE_CHECKING:
    from collections.abc import Mapping


class JdbcPool(CatalogLogin):
    """The pool.

    Args:
        jvm: Spark's JVM.
        catalog: Iceberg's catalog.
    """

    names = JDBC_CREDENTIALS

    def __init__(self, jvm: Any, catalog: Any) -> None:  # noqa: ANN401 (Java objects)
        self._jvm = jvm
        self._catalog = catalog

    @override
    def connect(self, properties: Mapping[str, str]) -> None:
        """See `CatalogLogin.connect`."""
        pool = java_fields.value(self._catalog, "connections")
        known = java_fields.field(pool, "properties")
        fresh = self._jvm.java.util.HashMap(known.get(pool))
        for name in JDBC_CREDENTIALS:
            if name in properties:
                fresh.put(name, properties[name])
            else:
                fresh.remove(name)
        trial = self._jvm.org.apache.iceberg.jdbc.JdbcClientPool(1, java_fields.value(pool, "dbUrl"), fresh)
        java_fields.method(trial, "newClient").invoke(trial, None).close()
        known.set(pool, fresh)  # who connects just now has read the ones before, all of them

    @override
    def keep(self) -> None:
        """See `CatalogLogin.keep`: a connection that was made stays."""
        return


__all__ = ["JdbcPool"]
