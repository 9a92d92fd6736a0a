"""Credentials of an open JDBC catalog, and of its store, as files and commands of the map have them now.

Iceberg reads them once, when it opens a catalog. Here they are looked at before each use of a table, a second apart
at most, and put into the place of those before: the pool of connections takes them for those to come, and the FileIO,
which all tables of the catalog have in common, makes new clients. A half that is read while the other one is written
is refused by the store, and looked at again by the next attempt.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from kuvasz import log
from kuvasz.config.model import JDBC_CREDENTIALS, STORE_CREDENTIALS
from kuvasz.config.secrets import LiveTexts
from kuvasz.errors import LakeError
from kuvasz.events import Event, EventLog
from kuvasz.lake.jvm.jvm_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
        connect: Has the catalog connect by other properties from now on, if it is let in by them.
        store: The properties of the store.
    """

    def __init__(
        self, jvm: Any, catalog: Any, connect: Callable[[Mapping[str, str]], None], store: Mapping[str, str]  # noqa: ANN401 (Java objects)
    ) -> None:  # fmt: skip
        self._jvm = jvm
        self._catalog = catalog
        self._connect = connect
        self._lock = threading.Lock()
        self._next = 0.0
        self._store = self._connections = store
        opened = store.fixed if isinstance(store, LiveTexts) else store  # what Spark's settings have
        self._of_store = _some(opened, STORE_CREDENTIALS)
        self._of_connections = _some(opened, JDBC_CREDENTIALS)
        self._earlier: list[tuple[float, Any]] = []  # clients that somebody may use still, and since when others do

    def follow(self, connections: Mapping[str, str]) -> None:
        """Ask these properties for the credentials of connections from now on; they are in use."""
        with self._lock:
            self._connections, self._of_connections = connections, _some(connections, JDBC_CREDENTIALS)

    def settle(self) -> None:
        """Use what there is now.

        Raises:
            LakeError: It is another FileIO than was expected, or the JVM does not answer.
        """
        if not isinstance(self._store, LiveTexts) and not isinstance(self._connections, LiveTexts):
            return
        if time.monotonic() < self._next or not self._lock.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + _LOOK_S
            found = _some(self._store, STORE_CREDENTIALS)
            if found != self._of_store:
                log.hide(found.values())
                with translated("credentials of the store"):
                    self._exchange(found)
                self._of_store = found
                _log.tell(Event.CREDENTIALS_RENEWED, what="store")
            found = _some(self._connections, JDBC_CREDENTIALS)
            if found != self._of_connections:
                self._reconnect(found)
        finally:
            self._lock.release()

    def _reconnect(self, found: dict[str, str]) -> None:
        log.hide(found.values())
        try:
            self._connect(found)
        except LakeError as error:  # those before go on: somebody may write the file first, and then tell the server
            self._next = time.monotonic() + _PAUSE_S
            _log.tell(Event.CREDENTIALS_REFUSED, error=str(error))
        else:
            self._of_connections = found
            _log.tell(Event.CREDENTIALS_RENEWED, what="catalog")

    def _exchange(self, found: Mapping[str, str]) -> None:
        """Have the FileIO make its next clients by other credentials; whoever uses those before may go on."""
        io = self._catalog_field("io")
        properties = self._jvm.java.util.HashMap(io.properties())
        for name in STORE_CREDENTIALS:
            properties.remove(name)
        for name, value in found.items():
            properties.put(name, value)
        io.initialize(properties)
        clients = _field(io, "clientByPrefix")
        before = clients.get(io)
        clients.set(io, None)
        while self._earlier and time.monotonic() - self._earlier[0][0] >= _KEPT_S:
            with contextlib.suppress(Py4JError):
                for client in list(self._earlier[0][1].values()):
                    client.close()
            del self._earlier[0]
        if before is not None:
            self._earlier.append((time.monotonic(), before))

    def _catalog_field(self, name: str) -> Any:  # noqa: ANN401
        return _field(self._catalog, name).get(self._catalog)

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


def _field(of: Any, name: str) -> Any:  # noqa: ANN401 (Java objects)
    """Return a field that a Java object has of its own class."""
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


__all__ = ["LiveCredentials"]
