"""A lake whose catalog is a REST server in this process: its tables' files, metadata too, are in a local folder."""

from __future__ import annotations

import collections
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import flask
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override
from werkzeug.serving import WSGIRequestHandler, make_server

from kuvasz.config.model import Config
from tests.support import client_ports
from tests.support.lake import LakeFolder
from tests.support.vending.admission import Admission
from tests.support.vending.catalog import RestCatalog, application
from tests.support.waiting import wait_until

#: What a server does with a commit of several tables; it is given what commits.
Fault: TypeAlias = Callable[[Callable[[], Any]], Any]

JOINT = "POST /v1/transactions/commit"


def _noting(clients: set[int]) -> type[WSGIRequestHandler]:
    """Return what serves connections and notes the ports of the clients whose connections are open."""

    class Noting(WSGIRequestHandler):
        @override
        def handle(self) -> None:
            clients.add(self.client_address[1])
            try:
                super().handle()
            finally:
                clients.discard(self.client_address[1])

    return Noting


class RestServer:
    """The running catalog.

    Args:
        warehouse: Its folder.
        delay_s: By how much each answer is late.
    """

    def __init__(self, warehouse: Path, *, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.catalog = RestCatalog(f"file://{warehouse}", None, {})
        self.faults: list[Fault] = []  #: of the next commits of several tables, in turn
        self.endpoints: list[str] | None = None  #: those that it says it offers; None: it does not say
        self.refusal: int | None = None  #: of whoever asks whether it commits several tables; None: it does
        self.requests: collections.Counter[str] = collections.Counter()  #: "METHOD rule" -> how many
        self.admission = Admission()
        app = application(self.catalog)
        self.admission.guard(app)
        app.before_request(self._note)
        self._clients: set[int] = set()
        handler = _noting(self._clients)
        self._server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rest catalog", daemon=True
        )  # fmt: skip
        self._thread.start()

    def _note(self) -> Any:
        name = f"{flask.request.method} {flask.request.url_rule}"
        self.requests[name] += 1
        time.sleep(self._delay_s)
        if name.startswith("GET /v1/config") and self.endpoints is not None:
            return {"defaults": {}, "overrides": {}, "endpoints": self.endpoints}
        return self._joint(flask.request.get_json()["table-changes"]) if name == JOINT else None

    def _joint(self, changes: list[Any]) -> Any:
        if not changes and self.refusal is not None:
            return refuse(self.refusal, "Refused")
        return self.faults.pop(0)(lambda: self.catalog.commit_all(changes)) if changes and self.faults else None

    def settle(self) -> None:
        """Wait until all is done that those had asked who are gone."""
        wait_until(lambda: set(self._clients) <= client_ports.of_the_living(), "what those asked is done")

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def lose_connection() -> Any:
    """End the connection of the request that is served, without an answer."""
    flask.request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return "", 204


def refuse(code: int, kind: str, **headers: str) -> Any:
    """Answer with an error as the REST specification has it."""
    body = {"error": {"message": f"refused with {code}", "type": kind, "code": code}}
    return body, code, headers


class RestCatalogFolder(LakeFolder):
    """A lake whose catalog is a REST server."""

    def __init__(self, session: SparkSession, *, format_version: int = 3) -> None:
        super().__init__(session, format_version=format_version)
        self.server = RestServer(self.folder / "wh")

    @property
    @override
    def pyiceberg(self) -> dict[str, str]:
        tokens = list(self.server.admission.tokens)[-1:]  # of a door that is not open to all
        let_in = {"token": tokens[0]} if tokens else {}
        return {"type": "rest", "uri": self.server.uri, "warehouse": f"file://{self.folder}/wh", **let_in}

    @override
    def config(
        self,
        databases: list[dict],
        maintenance: Mapping[str, object] | None = None,
        lake: Mapping[str, object] | None = None,
        **pipeline: Any,
    ) -> Config:
        section = {"type": "rest", "uri": self.server.uri, **(lake or {})}
        return super().config(databases, maintenance, section, **pipeline)

    @override
    def remove(self) -> None:
        self.server.close()
        super().remove()


@pytest.fixture
def rest_catalog(spark_session: SparkSession) -> Iterator[RestCatalogFolder]:
    """A lake with its catalog behind REST."""
    folder = RestCatalogFolder(spark_session)
    yield folder
    folder.remove()


@contextlib.contextmanager
def rest_server(folder: Path) -> Iterator[RestServer]:
    """Run a catalog."""
    server = RestServer(folder)
    try:
        yield server
    finally:
        server.close()


__all__ = ["JOINT", "RestCatalogFolder", "RestServer", "lose_connection", "refuse", "rest_server"]
