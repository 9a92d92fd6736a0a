"""The tutorials, typed in as they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import scratch
from tests.support.stores import S3
from tests.support.tutorial import ROOT, Tutorial

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

#: A server of one's own: roles and databases of the tutorials are nobody else's.
ROOM = {"max_replication_slots": "100", "max_wal_senders": "100", "max_connections": "300"}


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(scratch.new_folder("kuvasz-tutorial-") / "data", settings=ROOM) as running:
        yield running


@pytest.fixture
def read(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Carries a page out, with what is otherwise here than it says."""
    begun = []

    def carry_out(name: str, **instead: str) -> None:
        environment = {"PGPORT": str(server.port), "KUVASZ_SERVER__ADDRESS": "127.0.0.1:0"}
        begun.append(Tutorial(tmp_path, environment, {"localhost": "127.0.0.1", **instead}))
        begun[-1].carry_out(ROOT / "docs" / f"tutorial-{name}.md")

    yield carry_out
    for one in begun:
        one.end()


@pytest.mark.timeout(900)
def test_the_first_database(read: Callable[..., None]) -> None:
    read("database")


@pytest.mark.timeout(900)
def test_fifty_tenants(read: Callable[..., None]) -> None:
    read("tenants")


@pytest.mark.timeout(900)
def test_an_object_store(read: Callable[..., None], server: EmbeddedPostgres, s3: S3) -> None:
    here = {"http://127.0.0.1:9000": s3.endpoint, "127.0.0.1:5432": f"127.0.0.1:{server.port}"}
    read("object-store", **here, **{"//lake/warehouse": f"//{S3.bucket}/tutorial/warehouse"})
