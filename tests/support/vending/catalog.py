"""A REST catalog in memory, after Iceberg's REST specification, that may lend credentials with each table."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
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
        warehouse: `s3://bucket/folder`, or a local folder, where files of metadata are written as well.
        loans: Lends; None: nothing is lent.
        config: What every loan has besides: the store's address.
        apart: Whether loans stand in `storage-credentials`, not in `config`.
    """

    def __init__(
        self, warehouse: str, loans: Loans | None, config: Mapping[str, str], *, apart: bool = False
    ) -> None:
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
        self._tables = {table: kept for table, kept in self._tables.items() if table != (namespace, name)}

    def create(self, namespace: str, request: Json) -> Json:
        """Make a table."""
        name = request["name"]
        location = request.get("location") or f"{self._warehouse}/{namespace.replace(_SEPARATOR, '/')}/{name}"
        metadata = new(request, location)
        place = None if request.get("stage-create") else self._put((namespace, name), metadata)
        return self._loaded(place, metadata)

    def load(self, namespace: str, name: str) -> Json:
        """Load a table, with a loan."""
        found = self._tables.get((namespace, name))
        if found is None:
            raise Missing(f"Table does not exist: {namespace}.{name}")
        return self._loaded(*found)

    def commit(self, namespace: str, name: str, request: Json) -> Json:
        """Commit to a table."""
        with self._lock:
            changed = self._changed((namespace, name), request)
            place = self._put((namespace, name), changed)
        return {"metadata-location": place, "metadata": changed}

    def commit_all(self, requests: Iterable[Json]) -> None:
        """Commit to several tables at once: to all or to none."""
        with self._lock:
            made = {}
            for request in requests:
                table = _SEPARATOR.join(request["identifier"]["namespace"]), request["identifier"]["name"]
                made[table] = self._written(self._changed(table, request))
            self._tables = {**self._tables, **made}

    def moment(self) -> dict[str, str]:
        """Where the metadata of each table is, all at one moment."""
        return {name: place for (_, name), (place, _) in self._tables.items()}

    def _changed(self, table: tuple[str, str], request: Json) -> Json:
        if table not in self._tables:
            raise Missing(f"Table does not exist: {'.'.join(table)}")
        _, metadata = self._tables[table]
        require(metadata, request["requirements"])
        return Builder(metadata).apply(request["updates"])

    def _put(self, table: tuple[str, str], metadata: Json) -> str:
        written = self._written(metadata)
        self._tables = {**self._tables, table: written}
        return written[0]

    def _written(self, metadata: Json) -> tuple[str, Json]:
        self._versions += 1
        place = f"{metadata['location']}/metadata/{self._versions:08}.metadata.json"
        if place.startswith("file:"):
            file = Path(urllib.parse.urlparse(place).path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(metadata))
        return place, metadata

    def _loaded(self, place: str | None, metadata: Json) -> Json:
        answer: Json = {"metadata": metadata, "config": self._config}
        if place is not None:
            answer["metadata-location"] = place
        if self._loans is not None:
            self._lend(self._loans, metadata["location"], answer)
        return answer

    def _lend(self, loans: Loans, location: str, answer: Json) -> None:
        loan = loans.lend(location)
        secret = {
            "s3.access-key-id": loan.key, "s3.secret-access-key": loan.secret, "s3.session-token": loan.token,
            "s3.session-token-expires-at-ms": str(int(loan.ends * 1000)),
        }  # fmt: skip
        if self._apart:
            answer["storage-credentials"] = [{"prefix": location, "config": self._config | secret}]
        else:
            answer["config"] = self._config | secret


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

    @app.post("/v1/transactions/commit")
    def transaction() -> Any:
        catalog.commit_all(flask.request.get_json()["table-changes"])
        return "", 204


def _name(text: str) -> str:
    return urllib.parse.unquote(text)


__all__ = ["RestCatalog", "application"]
