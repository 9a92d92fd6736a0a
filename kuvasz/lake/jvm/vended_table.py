"""The Java object of a table whose catalog vends credentials: loaded anew before they end.

Iceberg's FileIO of a table has the credentials that the table was loaded with, and keeps them: a look at the catalog
brings new metadata, and no new credentials. `VendedCredentialsProvider` would renew them from an endpoint that few
catalogs name, and of S3 alone.
"""

from __future__ import annotations

import collections
import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from kuvasz.lake.files.store_access import lease_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kuvasz.lake.files.store_access import Lease, StoreAccess
    from kuvasz.lake.jvm.credentials.live_credentials import LiveCredentials

#: How many earlier objects are kept: Iceberg closes the FileIO of one that nobody has, and a scan may use it still.
_KEPT = 2

#: Seconds between two loads because something failed.
_DOUBT_S = 2.0


class VendedTable:
    """Loads one table again and again. Safe to use from several threads.

    Args:
        jvm: Spark's JVM.
        java: Iceberg's table, just loaded.
        name: `namespace.table`.
        load: Loads it anew.
        access: Is told what each load brings.
        credentials: What the catalog is asked with.
    """

    def __init__(
        self, jvm: Any, java: Any, name: str, load: Callable[[], Any], access: StoreAccess,  # noqa: ANN401 (Java objects)
        credentials: LiveCredentials,
    ) -> None:  # fmt: skip
        self._jvm = jvm
        self._name = name
        self._load = load
        self._access = access
        self._credentials = credentials
        self._lock = threading.Lock()
        self._kept: collections.deque[Any] = collections.deque(maxlen=_KEPT)
        self._newest = java
        self._doubted = False
        self._taken_at = time.monotonic()
        self._lease = self._take(java)

    def current(self, java: Any) -> Any:  # noqa: ANN401
        """Return the table with fresh credentials in the place of `java`, at least as new as that."""
        self._credentials.settle()
        self._renew()
        newest = self._newest
        if newest is not java:
            newest.refresh()
        return newest

    def reading(self, java: Any) -> Any:  # noqa: ANN401
        """Return a table with fresh credentials whose metadata is the same as that of `java`."""
        self._credentials.settle()
        self._renew()
        newest = self._newest
        if newest is java:
            return java
        iceberg = self._jvm.org.apache.iceberg
        operations = iceberg.StaticTableOperations(java.operations().current(), newest.io())
        return iceberg.BaseTable(operations, self._name)

    @contextlib.contextmanager
    def doubting(self) -> Iterator[None]:
        """Load anew before the next use if the body fails: a catalog may take credentials back before they end."""
        try:
            yield
        except Exception:
            self._doubted = True
            raise

    @property
    def _is_due(self) -> bool:
        if self._doubted and time.monotonic() > self._taken_at + _DOUBT_S:
            return True
        return self._lease is not None and self._lease.is_due

    def _renew(self) -> None:
        if self._is_due:
            with self._lock:
                if self._is_due:
                    java = self._load()
                    self._lease = self._take(java)
                    self._kept.append(self._newest)
                    self._newest, self._doubted, self._taken_at = java, False, time.monotonic()

    def _take(self, java: Any) -> Lease | None:  # noqa: ANN401
        io = java.io()
        to_json = self._jvm.org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString
        credentials = []
        with contextlib.suppress(Py4JError):  # a FileIO that has none of its own
            credentials = [(str(one.prefix()), json.loads(to_json(one.config()))) for one in io.credentials()]
        lease = lease_of(self._name, str(java.location()), json.loads(to_json(io.properties())), credentials)
        if lease is not None:
            self._access.take(lease, self._renew)
        return lease


__all__ = ["VendedTable"]
