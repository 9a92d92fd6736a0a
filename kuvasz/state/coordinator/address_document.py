"""Where the kuvasz that replicates answers, in a document: who may read the coordinator's tables may steer it."""

from __future__ import annotations

import contextlib
import socket
import urllib.parse

from typing_extensions import override

from kuvasz.errors import ConfigError, StateError
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import ServerAddress, StoredAddress

_NAME = "server"


class AddressDocument(StoredAddress):
    """The document.

    Args:
        documents: Where it is.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    @property
    @override
    def place(self) -> str:
        return self._documents.place

    @override
    def find(self) -> ServerAddress | None:
        """See `StoredAddress.find`."""
        with contextlib.suppress(StateError, KeyError, TypeError):
            found = self._documents.get(_NAME)
            return (
                None
                if found is None
                else ServerAddress(url=_reached(found["url"], found["host"]), token=found["token"])
            )
        return None

    @override
    def leave(self, address: ServerAddress) -> None:
        """See `StoredAddress.leave`."""
        try:
            self._documents.put({_NAME: {"url": address.url, "token": address.token, "host": socket.gethostname()}})
        except StateError as error:
            raise ConfigError(f"cluster.coordinator: {error.message}", hint=error.hint) from error

    @override
    def remove(self, address: ServerAddress) -> None:
        """See `StoredAddress.remove`."""
        with contextlib.suppress(StateError):
            if self.find() == address:
                self._documents.put({_NAME: None})


def _reached(url: str, host: str) -> str:
    """Return a url as this machine reaches it: of another one's the loopback address is of no use."""
    if host == socket.gethostname():
        return url
    parts = urllib.parse.urlsplit(url)
    if parts.hostname in {"127.0.0.1", "::1", "localhost"}:
        return parts._replace(netloc=f"{host}:{parts.port}").geturl()
    return url


__all__ = ["AddressDocument"]
