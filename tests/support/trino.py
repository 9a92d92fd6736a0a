"""A real Trino server that reads a lake by its catalog in PostgreSQL; `make trino` fetches it."""

from __future__ import annotations

import base64
import collections
import contextlib
import datetime
import decimal
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests as http

from tests.support import oracle
from tests.support.stores import CATALOG_USER, PostgresCatalogFolder, free_port, served
from tests.support.waiting import wait_until

HOME = Path(__file__).parents[2] / "build" / "trino"

needs_trino = pytest.mark.skipif(not (HOME / "java").is_file(), reason="Trino is not here: `make trino` fetches it")

#: What Trino asks of a JVM (its documentation, "Deploying Trino", "JVM config").
_JVM = (
    "-Xmx1g", "-XX:+UseG1GC", "-Djdk.attach.allowAttachSelf=true", "-Duser.timezone=UTC",
    "--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)  # fmt: skip

#: Without the last one times come in milliseconds.
_HEADERS = {"X-Trino-User": "test", "X-Trino-Catalog": "lake", "X-Trino-Time-Zone": "UTC",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}  # fmt: skip

#: Between two questions for more rows.
_PAUSE_S = 0.05


class Trino:
    """A server whose catalog `lake` is that of a lake."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_up(self) -> bool:
        """Whether it takes queries."""
        with contextlib.suppress(http.RequestException):
            return not http.get(f"{self._url}/v1/info", timeout=10).json()["starting"]
        return False

    def rows(self, statement: str) -> oracle.Rows:
        """Return what a statement answers, in the oracle's form; one that answers nothing has no rows.

        Raises:
            AssertionError: Trino refuses it.
        """
        found: list[oracle.Rows] = []

        def is_answered() -> bool:
            found.extend(one for one in [self._asked(statement)] if one is not None)
            return bool(found)

        wait_until(is_answered, "a node of Trino takes queries")
        return found[0]

    def _asked(self, statement: str) -> oracle.Rows | None:
        """Return what a statement answers; None while the server has not found out that it has a node: itself."""
        answer = http.post(f"{self._url}/v1/statement", statement.encode(), headers=_HEADERS, timeout=60).json()
        columns: list[Mapping[str, str]] = []
        rows: collections.Counter = collections.Counter()
        while True:
            if answer.get("error", {}).get("errorName") == "NO_NODES_AVAILABLE":
                return None
            assert "error" not in answer, f"{answer['error']['message']}: {statement}"
            columns = answer.get("columns", columns)
            kinds = [column["type"] for column in columns]
            for row in answer.get("data", ()):
                rows[tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True))] += 1
            if "nextUri" not in answer:
                return oracle.Rows(columns=tuple(column["name"] for column in columns), rows=rows)
            time.sleep(0 if "data" in answer else _PAUSE_S)
            answer = http.get(answer["nextUri"], headers=_HEADERS, timeout=60).json()


def _value(value: Any, kind: str) -> Any:
    """Return the oracle's form of a value of Trino's JSON."""
    if value is None:
        return None
    name, _, inner = kind.removesuffix(")").partition("(")
    if name == "array":
        return tuple(_value(one, inner) for one in value)
    if name == "map":
        return tuple(sorted((key, _value(one, inner.partition(",")[2].strip())) for key, one in value.items()))
    return _MAKERS["instant" if kind.endswith("with time zone") else name](value)


def _same(value: Any) -> Any:
    return value


#: By the name of the type; of `timestamp(6) with time zone` by another one.
_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("boolean", "integer", "bigint", "varchar", "uuid"), _same),
    "real": lambda value: oracle.canonical(float(np.float32(value))),
    "double": lambda value: oracle.canonical(float(value)),
    "decimal": decimal.Decimal,
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "instant": lambda value: datetime.datetime.fromisoformat(value.removesuffix(" UTC") + "+00:00"),
    "varbinary": base64.b64decode,
}


@contextlib.contextmanager
def trino_of(lake: PostgresCatalogFolder) -> Iterator[Trino]:
    """Run a server for a lake."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-trino-"))
    port, database = free_port(), lake.database
    server = {
        "coordinator": "true", "node-scheduler.include-coordinator": "true", "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}", "catalog.config-dir": str(folder / "catalogs"),
        "plugin.dir": str(HOME / "plugin"), "query.max-memory": "256MB", "query.max-memory-per-node": "256MB",
    }  # fmt: skip
    catalog = {
        "connector.name": "iceberg", "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.catalog-name": lake.catalog,
        "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:postgresql://127.0.0.1:{database.server.port}/{database.name}",
        "iceberg.jdbc-catalog.connection-user": CATALOG_USER, "iceberg.jdbc-catalog.connection-password": "any",
        "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{lake.folder}/wh",
        "fs.native-local.enabled": "true", "local.location": "/",
    }  # fmt: skip
    (folder / "catalogs").mkdir()
    for file, properties in (("config", server), ("catalogs/lake", catalog)):
        lines = [f"{name}={value}" for name, value in properties.items()]
        (folder / f"{file}.properties").write_text("\n".join(lines))
    node = {
        "node.environment": "test", "node.id": socket.gethostname() + str(port), "node.data-dir": str(folder),
        "node.bind-ip": "127.0.0.1", "node.internal-address": "127.0.0.1",
        "config": str(folder / "config.properties"),
    }  # fmt: skip
    java = (HOME / "java").read_text().strip()
    options = [f"-D{name}={value}" for name, value in node.items()]
    command = [java, "-cp", f"{HOME}/lib/*", *_JVM, *options, "io.trino.server.TrinoServer"]
    try:
        with served(command, folder / "server.log") as is_alive:
            trino = Trino(port)
            wait_until(lambda: is_alive() and trino.is_up(), "Trino takes queries")
            yield trino
    finally:
        shutil.rmtree(folder, ignore_errors=True)
