"""Where the kuvasz that replicates answers, in a document: who may read the coordinator's tables may steer it."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import urllib.parse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kuvasz.config.model import ClusterRole
from kuvasz.errors import ConfigError, StateError
from kuvasz.state.coordinator.documents import Documents
from kuvasz.state.ports import ServerAddress, StoredAddress

if TYPE_CHECKING:
    from kuvasz.state.coordinator.lease import ClusterLease

_NAME = "server"


class AddressDocument(StoredAddress):
    """The document; where several apply, each has one of its own.

    Args:
        documents: Where it is.
        lease: The lease of this process, which says what that does, and who else applies.
        node: Returns the name that this machine's process goes by; None: it has none.
    """

    def __init__(self, documents: Documents, lease: ClusterLease, node: Callable[[], str | None]) -> None:
        self._documents = documents
        self._lease = lease
        self._node = node

    @property
    @override
    def place(self) -> str:
        return self._documents.place

    @property
    def _name(self) -> str:
        return f"{_NAME}/{self._lease.node}" if self._lease.role is ClusterRole.APPLY else _NAME

    @override
    def find(self) -> ServerAddress | None:
        """See `StoredAddress.find`: of several the one of this machine's process, if it is among them."""
        with contextlib.suppress(StateError):
            return next((found for found in self.all() if found.url), None)
        return None

    @override
    def all(self) -> Sequence[ServerAddress]:
        """See `StoredAddress.all`."""
        documents, own = self._documents.all(), self._node()
        living = sorted(self._lease.living_appliers(), key=lambda node: (node != own, node))
        shared = {node: _address(documents.get(f"{_NAME}/{node}")) for node in living}
        if any(shared.values()):
            unknown = ServerAddress(url="", token="")
            return [dataclasses.replace(found or unknown, node=node) for node, found in shared.items()]
        return [found for found in [_address(documents.get(_NAME))] if found is not None]

    @override
    def leave(self, address: ServerAddress) -> None:
        """See `StoredAddress.leave`."""
        found = {"url": address.url, "token": address.token, "host": socket.gethostname()}
        try:
            self._documents.put({self._name: found})
        except StateError as error:
            raise ConfigError(f"cluster.coordinator: {error.message}", hint=error.hint) from error

    @override
    def remove(self, address: ServerAddress) -> None:
        """See `StoredAddress.remove`."""
        with contextlib.suppress(StateError):
            if _address(self._documents.get(self._name)) == address:
                self._documents.put({self._name: None})


def _address(found: Any) -> ServerAddress | None:  # noqa: ANN401 (JSON)
    with contextlib.suppress(KeyError, TypeError):
        return (
            None if found is None else ServerAddress(url=_reached(found["url"], found["host"]), token=found["token"])
        )
    return None


def _reached(url: str, host: str) -> str:
    """Return a url as this machine reaches it: of another one's the loopback address is of no use."""
    if host == socket.gethostname():
        return url
    parts = urllib.parse.urlsplit(url)
    if parts.hostname in {"127.0.0.1", "::1", "localhost"}:
        return parts._replace(netloc=f"{host}:{parts.port}").geturl()
    return url


__all__ = ["AddressDocument"]
