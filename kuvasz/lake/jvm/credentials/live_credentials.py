"""Credentials of an open JDBC or REST catalog, and of the store of a JDBC one, as the map has them now.

Iceberg reads them once, when it opens a catalog. Here they are looked at before each use of a table, a second apart
at most, and put into the place of those before: the pool of connections, or the session of requests, takes them for
those to come, and the FileIO, which all tables of a JDBC catalog have in common, makes new clients. A half that is
read while the other one is written is refused by the store, and looked at again by the next attempt.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from kuvasz import log
from kuvasz.config.model import STORE_CREDENTIALS
from kuvasz.config.secrets import LiveTexts
from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.lake.files.store_access import StoreAccess
from kuvasz.lake.jvm.credentials import java_fields
from kuvasz.lake.jvm.jvm_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kuvasz.lake.jvm.credentials.catalog_login import CatalogLogin

_log = EventLog(__name__)

#: Between two looks, and the next one after credentials that nobody was let in by.
_LOOK_S = 1.0
_PAUSE_S = 10.0

#: For whoever is in the middle of something with clients of before.
_KEPT_S = 300.0


class LiveCredentials:
    """What one catalog is reached with. Safe to use from several threads.

    Args:
        jvm: Spark's JVM.
        catalog: Iceberg's catalog.
        login: Has the catalog be reached by other ones, if it lets anybody in by them.
        access: The properties of the store.
    """

    def __init__(self, jvm: Any, catalog: Any, login: CatalogLogin, access: Mapping[str, str]) -> None:  # noqa: ANN401 (Java objects)
        self._jvm = jvm
        self._catalog = catalog
        self._login = login
        self._lock = threading.Lock()
        self._next = 0.0
        # A catalog that lends has a store with credentials of each table.
        self._store, self._requests = ({}, access.catalog) if isinstance(access, StoreAccess) else (access, access)
        # What Spark's settings have.
        self._of_store = _some(_opened(self._store), STORE_CREDENTIALS)
        self._of_requests = _some(_opened(self._requests), login.names)
        self._earlier: list[tuple[float, Any]] = []  # clients that somebody may use still, and since when others do

    def renew(self, properties: Mapping[str, str]) -> None:
        """Have the catalog be reached by others, and ask for these from now on.

        Args:
            properties: The credentials are among them, or there are none.

        Raises:
            LakeError: Nobody is let in by them, and those before count; or it is another catalog than was expected.
        """
        found = _some(properties, self._login.names)
        with self._lock:
            with translated("credentials of the catalog"):
                self._login.connect(found)
            self._requests, self._of_requests = properties, found

    def settle(self) -> None:
        """Use what there is now.

        Raises:
            LakeError: It is another FileIO than was expected, or the JVM does not answer.
        """
        if time.monotonic() < self._next or not self._lock.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + _LOOK_S
            found = _some(self._store, STORE_CREDENTIALS) if isinstance(self._store, LiveTexts) else self._of_store
            if found != self._of_store:
                log.hide(found.values())
                with translated("credentials of the store"):
                    self._exchange(found)
                self._of_store = found
                _log.tell(Event.CREDENTIALS_RENEWED, what="store")
            found = _some(self._requests, self._login.names)
            if found != self._of_requests:
                self._connect(found)
            else:
                with translated("credentials of the catalog"):
                    self._login.keep()
        finally:
            self._lock.release()

    def _connect(self, found: dict[str, str]) -> None:
        log.hide(found.values())
        try:
            with translated("credentials of the catalog"):
                self._login.connect(found)
        except KuvaszError as error:
            # Those before go on: somebody may write the file first, and then tell the server.
            self._next = time.monotonic() + _PAUSE_S
            _log.tell(Event.CREDENTIALS_REFUSED, error=str(error))
        else:
            self._of_requests = found
            _log.tell(Event.CREDENTIALS_RENEWED, what="catalog")

    def _exchange(self, found: Mapping[str, str]) -> None:
        """Have the FileIO make its next clients by other credentials; whoever uses those before may go on."""
        io = java_fields.value(self._catalog, "io")
        properties = self._jvm.java.util.HashMap(io.properties())
        for name in STORE_CREDENTIALS:
            properties.remove(name)
        for name, value in found.items():
            properties.put(name, value)
        io.initialize(properties)
        clients = java_fields.field(io, "clientByPrefix")
        before = clients.get(io)
        clients.set(io, None)
        while self._earlier and time.monotonic() - self._earlier[0][0] >= _KEPT_S:
            with contextlib.suppress(Py4JError):
                for client in list(self._earlier[0][1].values()):
                    client.close()
            del self._earlier[0]
        if before is not None:
            self._earlier.append((time.monotonic(), before))

    # As `VendedTable`, for the handle of a table.

    def current(self, java: Any) -> Any:  # noqa: ANN401
        """Return the same table, which is reached with what there is now."""
        self.settle()
        return java

    def reading(self, java: Any) -> Any:  # noqa: ANN401
        """Return the same."""
        self.settle()
        return java

    @contextlib.contextmanager
    def doubting(self) -> Iterator[None]:
        """Look anew before the next use if the body fails."""
        try:
            yield
        except Exception:
            self._next = min(self._next, time.monotonic() + _LOOK_S)
            raise


def _some(properties: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    found = properties.now() if isinstance(properties, LiveTexts) else properties
    return {name: found[name] for name in names if name in found}


def _opened(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return what properties were when they were read first."""
    return properties.fixed if isinstance(properties, LiveTexts) else properties


__all__ = ["LiveCredentials"]
