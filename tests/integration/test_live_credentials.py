"""Credentials in files of the map are exchanged while kuvasz runs: it goes on with the new ones."""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests as http

from tests.support import keyed_store
from tests.support.lake import Pipeline, group
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database
from tests.support.rest_catalog import RestCatalogFolder
from tests.support.stores import StoreProcess, free_port, is_open, served
from tests.support.vending.admission import Admission
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def endpoint() -> Iterator[str]:
    port = free_port()
    program = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.support.keyed_store", str(port)]
    with tempfile.TemporaryDirectory() as folder, served(program, Path(folder) / "log") as is_alive:
        wait_until(lambda: is_alive() and is_open(port), "the store listens")
        yield f"http://127.0.0.1:{port}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_other_keys_count_without_a_restart(
    database: Database, new_store_process: Callable[..., StoreProcess], endpoint: str, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(f"{keyed_store.FIRST}\n")
    (tmp_path / "secret").write_text("a secret\n")
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i")
    properties = {
        "s3.endpoint": endpoint, "s3.path-style-access": "true", "client.region": "us-east-1",
        "s3.access-key-id": f"${{file:{key}}}", "s3.secret-access-key": f"${{file:{tmp_path}/secret}}",
    }  # fmt: skip
    lake = {"warehouse": f"s3://{keyed_store.BUCKET}/wh", "properties": properties}
    kuvasz = new_store_process(group({"eu": database}, {"items": None}), lake=lake).start()
    kuvasz.wait_event("copied", table="shop.items")
    for number, name in enumerate(("SECONDKEY", "THIRDKEY"), start=1):
        key.write_text(f"{name}\n")
        (tmp_path / "secret").write_text(f"another secret {number}\n")
        http.post(f"{endpoint}/key/{name}", timeout=10).raise_for_status()
        database.execute(f"UPDATE items SET n = {number} WHERE id % 3 = {number}")
        database.execute(f"INSERT INTO items VALUES ({1000 + number}, 0)")
        kuvasz.wait_confirmed(database)
    assert_equal(source_rows(database.url, "items", sid="eu"), kuvasz.rows("items"), key=("id",))
    told = [event for event in kuvasz.events if event["event"] == "credentials_renewed"]
    assert [event["what"] for event in told] == ["store", "store"]
    assert not any("another secret" in str(event) for event in kuvasz.events)
    kuvasz.terminate()


class Door:
    """A REST catalog that lets in by what a file has, and kuvasz."""

    def __init__(self, lake: RestCatalogFolder, name: str, file: Path, database: Database) -> None:
        self.lake, self.file, self.database = lake, file, database
        database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
        database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 100) i")
        properties = {name: f"${{file:{file}}}"}
        self.config = lake.config(group({"eu": database}, {"items": None}), lake={"properties": properties})

    @property
    def admission(self) -> Admission:
        return self.lake.server.admission

    def go_on(self, pipeline: Pipeline) -> None:
        """Something changes, and comes."""
        self.database.execute("UPDATE items SET n = n + 1 WHERE id % 3 = 0")
        self.database.execute("INSERT INTO items SELECT max(id) + 1, 0 FROM items")
        pipeline.wait_applied(self.database)
        pipeline.assert_equal("items", source_rows(self.database.url, "items", sid="eu"))


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was said of credentials."""
    return [
        (record.__dict__["event"], record.__dict__.get("what", ""))
        for record in caplog.records
        if record.__dict__.get("event", "").startswith("credentials_")
    ]


def test_another_token_of_a_rest_catalog_counts_without_a_restart(
    database: Database, rest_catalog: RestCatalogFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Open tables have it as well; of one that the catalog does not know yet, the one before goes on."""
    caplog.set_level(logging.INFO, "kuvasz")
    (tmp_path / "token").write_text("first\n")
    rest_catalog.server.admission.admit("first")
    door = Door(rest_catalog, "token", tmp_path / "token", database)
    with Pipeline(door.config, rest_catalog) as pipeline:
        pipeline.wait_streaming()
        for name in ("second", "third"):
            door.file.write_text(f"{name}\n")
            door.admission.admit(name)
            door.go_on(pipeline)
        assert told(caplog) == [("credentials_renewed", "catalog")] * 2
        door.file.write_text("unknown yet\n")
        while ("credentials_refused", "") not in told(caplog):
            door.go_on(pipeline)
        door.go_on(pipeline)
        door.admission.admit("unknown yet")
        door.go_on(pipeline)
    assert told(caplog)[-1] == ("credentials_renewed", "catalog")
    assert "unknown yet" not in str([record.__dict__ for record in caplog.records])


def test_another_secret_of_a_client_of_a_rest_catalog_counts_without_a_restart(
    database: Database, rest_catalog: RestCatalogFolder, tmp_path: Path
) -> None:
    """The token that it gets for that one is renewed before it ends."""
    (tmp_path / "client").write_text("kuvasz:first\n")
    rest_catalog.server.admission.admit(kuvasz="first")
    door = Door(rest_catalog, "credential", tmp_path / "client", database)
    with Pipeline(door.config, rest_catalog) as pipeline:
        pipeline.wait_streaming()
        door.admission.life_s = 3.0
        door.admission.grace_s = 10.0  # a client renews it 0.3 s before it ends, if its machine lets it
        door.file.write_text("kuvasz:second\n")
        door.admission.admit(kuvasz="second")
        known = len(door.admission.given)
        door.go_on(pipeline)
        first = door.admission.given[known:]
        while any(door.admission.tokens[token] > time.time() for token in first):
            door.go_on(pipeline)
        door.go_on(pipeline)
