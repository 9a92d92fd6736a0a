"""A catalog that lends credentials of seconds, table by table: every reader and writer has fresh ones."""

from __future__ import annotations

import itertools
import pickle
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.files.store_access import StoreAccess, lease_of
from tests.support import scratch
from tests.support.lake import group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.vending.world import VendedProcess, Vending, vending

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE {} (id bigint PRIMARY KEY, n int, name text, price numeric(12,2), at timestamptz DEFAULT now())"
FILL = "INSERT INTO {} SELECT i, i % 7, 'item ' || i, i * 1.25 FROM generate_series(1, {}) i"

#: Everything all the time.
EAGER = {"interval": "2s", "min_files": 2, "max_dead_percent": 10, "target_file_size": "64kB", "snapshot_age": "1s",
         "snapshots_kept": 3}  # fmt: skip


@pytest.fixture
def new_process() -> Iterator[Callable[..., VendedProcess]]:
    """Makes `VendedProcess` objects that are gone after the test."""
    made: list[VendedProcess] = []

    def make(database: Database, tables: Mapping[str, object], store: Vending, **options: Any) -> VendedProcess:
        made.append(VendedProcess(group({"eu": database}, tables), store, **options))
        return made[-1]

    yield make
    for process in made:
        process.remove()


def fill(database: Database, table: str, rows: int) -> None:
    database.execute(ITEMS.format(table))
    database.execute(f"ALTER TABLE {table} ALTER name SET STORAGE EXTERNAL")
    database.execute(FILL.format(table, rows))
    database.execute(f"UPDATE {table} SET name = repeat('long ', 2000) WHERE id IN (5, 6)")


def change(database: Database, table: str, n: int) -> None:
    database.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 7 = {n % 7}")  # leaves large values out
    database.execute(f"DELETE FROM {table} WHERE id = {n + 10}")
    database.execute(f"INSERT INTO {table} SELECT max(id) + 1, {n}, 'new' FROM {table}")


def load(database: Database, tables: list[str], kuvasz: VendedProcess, seconds: float) -> float:
    """Change tables for a time, and return the longest wait until a change was in the lake."""
    end, n, longest = time.monotonic() + seconds, 0, 0.0
    while time.monotonic() < end:
        n += 1
        for table in tables:
            change(database, table, n)
        begin = time.monotonic()
        kuvasz.wait_confirmed(database)
        longest = max(longest, time.monotonic() - begin)
    return longest


def test_commits_go_on_over_many_lives_of_credentials(
    database: Database, new_process: Callable[..., VendedProcess]
) -> None:
    fill(database, "items", 500)
    with vending(6.0) as store:
        kuvasz = new_process(database, {"items": None}, store).start()
        kuvasz.wait_event("copied", table="shop.items")
        load(database, ["items"], kuvasz, 12.0)
        kuvasz.terminate()
        assert kuvasz.planted() == []
        assert store.loans()["refused"].keys() <= {"ExpiredToken"}  # of six seconds a busy machine may lose three
        store.live(300.0)
        kuvasz.assert_equal_for_pyiceberg("items", source_rows(database.url, "items", sid="eu"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commits_go_on_while_the_token_of_the_catalog_is_exchanged_as_well(
    database: Database, new_process: Callable[..., VendedProcess], tmp_path: Path
) -> None:
    """Who lends knows kuvasz by a token, which counts no more once there is another one."""
    fill(database, "items", 500)
    file = tmp_path / "token"
    file.write_text("FIRSTTOKEN\n")
    with vending(6.0, apart=True) as store:
        store.admit("FIRSTTOKEN")
        kuvasz = new_process(database, {"items": None}, store, properties={"token": f"${{file:{file}}}"}).start()
        kuvasz.wait_event("copied", table="shop.items")
        tokens = ("FIRSTTOKEN", "SECONDTOKEN", "THIRDTOKEN")
        for number, (before, token) in enumerate(itertools.pairwise(tokens), start=1):
            load(database, ["items"], kuvasz, 8.0)  # longer than a loan
            file.write_text(f"{token}\n")
            store.admit(token)
            assert (store.is_let_in(before), store.is_let_in(token)) == (False, True)
            lent = store.loans()["count"]
            load(database, ["items"], kuvasz, 8.0)
            assert len(kuvasz.found("credentials_renewed")) == number, kuvasz.report()
            assert store.loans()["count"] > lent, "what it writes with was lent to the new bearer"
        assert not kuvasz.found("table_failed"), kuvasz.report()
        kuvasz.terminate()
        assert store.loans()["refused"].keys() <= {"ExpiredToken"}
        assert kuvasz.planted() == []
        assert not [line for line in [*kuvasz.output, *map(str, kuvasz.events)] if "DTOKEN" in line]
        store.live(300.0)
        kuvasz.assert_equal_for_pyiceberg("items", source_rows(database.url, "items", sid="eu"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_minutes_under_load_with_credentials_of_thirty_seconds(
    database: Database, new_process: Callable[..., VendedProcess]
) -> None:
    tables = ["items", "items_2", "late"]
    for table in tables:
        fill(database, table, 2000)
    events = scratch.new_folder("kuvasz-spark-events-")
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"}
    with vending(30.0, apart=True) as store:
        kuvasz = new_process(
            database, {"items": None, "items_2": {"type": "history"}}, store, conf=conf, maintenance=EAGER
        ).start()
        kuvasz.wait_event("copied", 2)
        longest = load(database, ["items", "items_2"], kuvasz, 240.0)
        assert not kuvasz.found("table_failed"), kuvasz.report()
        kuvasz.terminate()
        shutil.rmtree(kuvasz.folder / "state")  # the index is read again from the files
        kuvasz.write_map(group({"eu": database}, {"items": None, "items_2": {"type": "history"}, "late": None}))
        kuvasz.start()
        kuvasz.wait_event("copied", table="shop.late")
        longest = max(longest, load(database, tables, kuvasz, 60.0))
        kuvasz.wait_event("compacted", table="shop.items")
        kuvasz.terminate()
        loans = store.loans()
        assert loans["refused"] == {}
        assert loans["count"] > 20
        assert longest < 30.0
        assert kuvasz.start("verify").wait() == 0, kuvasz.report()
        assert kuvasz.planted() == []
        assert not [file for file in events.rglob("*") if file.is_file() and b"PLANTED" in file.read_bytes()]
        store.live(300.0)
        for table in ("items", "late"):
            kuvasz.assert_equal_everywhere(table, source_rows(database.url, table, sid="eu"))
    shutil.rmtree(events)


def test_credentials_that_have_arrived_are_renewed_where_they_are() -> None:
    import requests as http

    with vending(2.0, apart=True) as store:
        fields = [{"id": 1, "name": "id", "type": "long", "required": True}]
        http.post(f"{store.uri}/v1/namespaces", json={"namespace": ["shop"]}, timeout=10).raise_for_status()
        made = http.post(
            f"{store.uri}/v1/namespaces/shop/tables",
            json={"name": "items", "schema": {"type": "struct", "fields": fields}}, timeout=10,
        ).json()  # fmt: skip
        location = made["metadata"]["location"]
        lake = store.lake
        properties = lake["properties"]
        assert isinstance(properties, dict)
        access = StoreAccess(
            properties, {"type": "rest", "uri": store.uri, "warehouse": "s3://lent/wh", **properties}
        )
        credentials = [(one["prefix"], one["config"]) for one in made["storage-credentials"]]
        lease = lease_of("shop.items", location, made["config"], credentials)
        assert lease is not None
        access.take(lease)
        there = pickle.loads(pickle.dumps(access))
        time.sleep(2.5)
        path = f"{location}/data/one"
        with file_io(there, path).new_output(path).create() as stream:
            stream.write(b"kuvasz")
        with file_io(there, path).new_input(path).open() as stream:
            assert stream.read() == b"kuvasz"
        assert store.loans()["refused"] == {}
        assert "PLANTED" not in repr(there) + str(access) + repr(lease)
