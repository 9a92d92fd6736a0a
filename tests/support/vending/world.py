"""kuvasz as a process on a catalog that lends, and on a store that takes nothing else."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests as http
from typing_extensions import override

from tests.support import oracle
from tests.support.stores import StoreProcess, free_port, is_open, served
from tests.support.waiting import wait_until

#: What all that is secret of a loan begins with.
PLANTED = ("PLANTEDKEY", "PLANTEDSECRET", "PLANTEDTOKEN")


class Vending:
    """The running catalog and store.

    Args:
        port: The catalog's.
    """

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}"

    @property
    def lake(self) -> dict[str, object]:
        """The section ``lake`` of a map that uses them; it has no credentials."""
        return {
            "type": "rest", "uri": self.uri, "warehouse": "s3://lent/wh", "properties": self.properties,
        }  # fmt: skip

    @property
    def properties(self) -> dict[str, str]:
        """Those of the catalog for whoever uses it."""
        return {"header.X-Iceberg-Access-Delegation": "vended-credentials", "client.region": "us-east-1"}

    def loans(self) -> dict[str, Any]:
        """How many loans there were, and what the store has refused: code -> times."""
        return http.get(f"{self.uri}/loans", timeout=10).json()

    def admit(self, token: str) -> None:
        """Have the catalog let in bearers of a token from now on, and nobody else."""
        http.post(f"{self.uri}/admit", json=[token], timeout=10).raise_for_status()

    def is_let_in(self, token: str) -> bool:
        """Whether the catalog answers a bearer of a token."""
        bearer = {"Authorization": f"Bearer {token}"}
        return http.get(f"{self.uri}/v1/config", headers=bearer, timeout=10).status_code != 401

    def live(self, seconds: float) -> None:
        """Have loans from now on live longer: for readers that load a table once, as engines do."""
        http.post(f"{self.uri}/life/{seconds:.1f}", timeout=10).raise_for_status()


@contextlib.contextmanager
def vending(life_s: float, *, apart: bool = False) -> Iterator[Vending]:
    """Run a catalog whose loans live for some seconds, and their store.

    Args:
        life_s: Their life.
        apart: Whether they stand in `storage-credentials`, not in `config`.
    """
    port, store = free_port(), free_port()
    command = [sys.executable, "-m", "tests.support.vending.server", str(port), str(store), str(life_s),
               "apart" if apart else "config"]  # fmt: skip
    root = Path(__file__).parents[3]
    with tempfile.TemporaryDirectory(prefix="kuvasz-vending-") as folder:
        log = Path(folder) / "log"
        program = ["env", f"PYTHONPATH={root}", *command]
        with served(program, log) as is_alive:
            wait_until(lambda: is_alive() and is_open(port) and is_open(store), "the catalog listens")
            yield Vending(port)


class VendedProcess(StoreProcess):
    """kuvasz on such a lake.

    Args:
        databases: The map's groups.
        vending: The catalog.
        maintenance: Options of the section ``maintenance`` that differ.
        conf: Settings of Spark besides.
        properties: Those of the catalog besides.
    """

    def __init__(
        self,
        databases: Sequence[Mapping[str, object]],
        vending: Vending,
        *,
        maintenance: Mapping[str, object] | None = None,
        conf: Mapping[str, object] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        section = {"master": "local[2]", "conf": dict(conf or {})}
        lake = vending.lake | {"properties": {**vending.properties, **(properties or {})}}
        super().__init__(databases, lake=lake, spark=section, maintenance=maintenance)

    @property
    @override
    def pyiceberg(self) -> dict[str, str]:
        lake = self.config.lake
        return {"type": "rest", "uri": lake.uri, "warehouse": lake.warehouse, **lake.properties}

    def assert_equal_for_pyiceberg(self, target: str, source: oracle.Rows) -> None:
        """A table has the source's rows for PyIceberg, which is lent its own credentials."""
        oracle.assert_equal(source, self.rows(target), key=("id",))

    def planted(self) -> list[str]:
        """Return what kuvasz has said, or left in its folders, with a part of a loan in it."""
        found = [line for line in self.output + [str(event) for event in self.events] if _has_planted(line)]
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return found + [str(file) for file in files if _has_planted(file.read_bytes().decode("latin-1"))]


def _has_planted(text: str) -> bool:
    return any(part in text for part in PLANTED)


__all__ = ["PLANTED", "VendedProcess", "Vending", "vending"]
