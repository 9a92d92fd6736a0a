"""The session of an open REST catalog, by which all of its tables are let in: it gets other credentials.

Iceberg makes it when it opens the catalog, and hands it to the client of each table. A new one is made of other
credentials and tried; what it says to the server is then put into the one that all have. The new one renews by itself
the token that a server gave for a `credential`, as Iceberg's sessions do, so what it says by now is put there again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from typing_extensions import override

from kuvasz.config.model import REST_CREDENTIALS
from kuvasz.lake.jvm.credentials import java_fields
from kuvasz.lake.jvm.credentials.catalog_login import CatalogLogin

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What one session has of another: its headers, and what the next token is asked for by.
_SAID: Final = ("headers", "config")

_ANSWER: Final = "org.apache.iceberg.rest.responses.ConfigResponse"


class RestSession(CatalogLogin):
    """The session.

    Args:
        jvm: Spark's JVM.
        catalog: Iceberg's catalog.
    """

    names = REST_CREDENTIALS

    def __init__(self, jvm: Any, catalog: Any) -> None:  # noqa: ANN401 (Java objects)
        self._jvm = jvm
        self._catalog = catalog
        self._newest: Any = None  # None: the catalog's own
        self._token = ""

    @override
    def connect(self, properties: Mapping[str, str]) -> None:
        """See `CatalogLogin.connect`: the catalog has to answer to them."""
        rest = self._jvm.org.apache.iceberg.rest
        sessions = java_fields.value(self._catalog, "sessionCatalog")
        client = java_fields.value(sessions, "client")
        known = self._jvm.java.util.HashMap(sessions.properties())
        for name in self.names:
            known.remove(name)
            if name in properties:
                known.put(name, properties[name])
        session = rest.auth.AuthManagers.loadAuthManager("kuvasz", known).catalogSession(client, known)
        try:
            asked = self._jvm.java.util.HashMap()
            if known.containsKey("warehouse"):
                asked.put("warehouse", known.get("warehouse"))
            kind = sessions.getClass().getClassLoader().loadClass(_ANSWER)
            refuse = rest.ErrorHandlers.defaultErrorHandler()
            path, headers = rest.ResourcePaths.config(), self._jvm.java.util.HashMap()
            client.withAuthSession(session).get(path, asked, kind, headers, refuse)
            self._say(session)
        except BaseException:
            with contextlib.suppress(Py4JError):
                session.stopRefreshing()
            raise
        before, self._newest = self._newest, session
        if before is not None:
            before.stopRefreshing()

    @override
    def keep(self) -> None:
        """See `CatalogLogin.keep`: the newest session may have another token by now."""
        if self._newest is not None and str(self._newest.token()) != self._token:
            self._say(self._newest)

    def _say(self, session: Any) -> None:  # noqa: ANN401 (a Java object)
        """Have the session that all have say what another one says."""
        token = str(session.token())
        shared = java_fields.value(java_fields.value(self._catalog, "sessionCatalog"), "catalogAuth")
        for name in _SAID:
            java_fields.field(shared, name).set(shared, java_fields.value(session, name))
        self._token = token


__all__ = ["RestSession"]
