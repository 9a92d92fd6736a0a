"""Keys of the store, in files of the map, are exchanged while kuvasz runs: it goes on with the new ones."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests as http

from tests.support import keyed_store
from tests.support.lake import group
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database
from tests.support.stores import StoreProcess, free_port, is_open, served
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
