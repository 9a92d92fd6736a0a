"""A REST catalog in memory, after Iceberg's REST specification, that lends credentials with each table it loads."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any

import flask

from tests.support.vending.loans import Loans
from tests.support.vending.metadata import Builder, Conflict, Json, new, require

_SEPARATOR = "\x1f"


class Missing(Exception):
    """No such namespace or table."""


class RestCatalog:
    """Namespaces and tables.

    Args:
        warehouse: `s3://bucket/folder`.
        loans: Lends.
        config: What every loan has besides: the store's address.
        apart: Whether loans stand in `storage-credentials`, not in `config`.
    """

    def __init__(self, warehouse: str, loans: Loans, config: Mapping[str, str], *, apart: bool = False) -> None:
        self._warehouse = warehouse
        self._loans = loans
        self._config = dict(config)
        self._apart = apart
        self._lock = threading.Lock()
        self._namespaces: dict[str, Json] = {}
        self._tables: dict[tuple[str, str], tuple[str, Json]] = {}
        self._versions = 0

    # Namespaces

    def make_namespace(self, name: str, properties: Json) -> None:
        """Make a namespace."""
        self._namespaces.setdefault(name, properties)

    def namespaces(self) -> list[str]:
        """All of them."""
        return list(self._namespaces)

    def has_namespace(self, name: str) -> bool:
        """Whether there is such a one."""
        return name in self._namespaces

    # Tables

    def tables(self, namespace: str) -> list[str]:
        """The names of those in a namespace."""
        return [name for of, name in self._tables if of == namespace]

    def has(self, namespace: str, name: str) -> bool:
        """Whether there is such a one."""
        return (namespace, name) in self._tables

    def drop(self, namespace: str, name: str) -> None:
        """Forget a table."""
        self._tables.pop((namespace, name))

    def create(self, namespace: str, request: Json) -> Json:
        """Make a table."""
        name = request["name"]
        location = request.get("location") or f"{self._warehouse}/{namespace.replace(_SEPARATOR, '/')}/{name}"
        metadata = new(request, location)
        if not request.get("stage-create"):
            self._put((namespace, name), metadata)
        return self._loaded((namespace, name), metadata)

    def load(self, namespace: str, name: str) -> Json:
        """Load a table, with a loan."""
        if (namespace, name) not in self._tables:
            raise Missing(f"Table does not exist: {namespace}.{name}")
        return self._loaded((namespace, name), self._tables[namespace, name][1])

    def commit(self, namespace: str, name: str, request: Json) -> Json:
        """Commit to a table."""
        with self._lock:
            if (namespace, name) not in self._tables:
                raise Missing(f"Table does not exist: {namespace}.{name}")
            _, metadata = self._tables[namespace, name]
            require(metadata, request["requirements"])
            changed = Builder(metadata).apply(request["updates"])
            self._put((namespace, name), changed)
        return {"metadata-location": self._tables[namespace, name][0], "metadata": changed}

    def _put(self, table: tuple[str, str], metadata: Json) -> None:
        self._versions += 1
        self._tables[table] = f"{metadata['location']}/metadata/{self._versions:08}.metadata.json", metadata

    def _loaded(self, table: tuple[str, str], metadata: Json) -> Json:
        loan = self._loans.lend(metadata["location"])
        secret = {
            "s3.access-key-id": loan.key, "s3.secret-access-key": loan.secret, "s3.session-token": loan.token,
            "s3.session-token-expires-at-ms": str(int(loan.ends * 1000)),
        }  # fmt: skip
        answer: Json = {"metadata": metadata, "config": self._config if self._apart else self._config | secret}
        if self._apart:
            answer["storage-credentials"] = [{"prefix": metadata["location"], "config": self._config | secret}]
        if table in self._tables:
            answer["metadata-location"] = self._tables[table][0]
        return answer


def application(catalog: RestCatalog) -> flask.Flask:
    """Return the server of a catalog."""
    app = flask.Flask("catalog")
    _serve_errors(app)
    _serve_namespaces(app, catalog)
    _serve_tables(app, catalog)
    return app


def _serve_errors(app: flask.Flask) -> None:
    @app.errorhandler(Missing)
    def missing(error: Missing) -> Any:
        kind = "NoSuchTableException" if "Table" in str(error) else "NoSuchNamespaceException"
        return {"error": {"message": str(error), "type": kind, "code": 404}}, 404

    @app.errorhandler(Conflict)
    def conflict(error: Conflict) -> Any:
        return {"error": {"message": str(error), "type": "CommitFailedException", "code": 409}}, 409


def _serve_namespaces(app: flask.Flask, catalog: RestCatalog) -> None:
    @app.get("/v1/config")
    def config() -> Any:
        return {"defaults": {}, "overrides": {}}

    @app.route("/v1/namespaces", methods=["GET", "POST"])
    def namespaces() -> Any:
        if flask.request.method == "GET":
            return {"namespaces": [name.split(_SEPARATOR) for name in catalog.namespaces()]}
        body = flask.request.get_json()
        catalog.make_namespace(_SEPARATOR.join(body["namespace"]), body.get("properties", {}))
        return {"namespace": body["namespace"], "properties": body.get("properties", {})}

    @app.route("/v1/namespaces/<namespace>", methods=["GET", "HEAD"])
    def namespace(namespace: str) -> Any:
        if not catalog.has_namespace(_name(namespace)):
            raise Missing(f"Namespace does not exist: {namespace}")
        return {"namespace": _name(namespace).split(_SEPARATOR), "properties": {}}


def _serve_tables(app: flask.Flask, catalog: RestCatalog) -> None:
    @app.route("/v1/namespaces/<namespace>/tables", methods=["GET", "POST"])
    def tables(namespace: str) -> Any:
        where = _name(namespace)
        if flask.request.method == "POST":
            return catalog.create(where, flask.request.get_json())
        found = [{"namespace": where.split(_SEPARATOR), "name": name} for name in catalog.tables(where)]
        return {"identifiers": found}

    @app.route("/v1/namespaces/<namespace>/tables/<name>", methods=["GET", "POST", "HEAD", "DELETE"])
    def table(namespace: str, name: str) -> Any:
        where = _name(namespace)
        if flask.request.method == "POST":
            return catalog.commit(where, name, flask.request.get_json())
        if not catalog.has(where, name):
            raise Missing(f"Table does not exist: {where}.{name}")
        if flask.request.method == "DELETE":
            catalog.drop(where, name)
            return "", 204
        return ("", 204) if flask.request.method == "HEAD" else catalog.load(where, name)

    @app.post("/v1/namespaces/<namespace>/tables/<name>/metrics")
    def metrics(namespace: str, name: str) -> Any:
        return "", 204


def _name(text: str) -> str:
    return urllib.parse.unquote(text)


__all__ = ["RestCatalog", "application"]
