"""Catalogs and stores by configuration alone: PostgreSQL as the catalog, S3 as the store."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.config.load import load
from kuvasz.errors import LakeError
from kuvasz.lake.executors.spool import Spool
from kuvasz.lake.files.file_io import file_io
from kuvasz.lake.iceberg.conditions import prove_warehouse
from kuvasz.route.hashing import worker_of
from tests.support.lake import Pipeline, group
from tests.support.oracle import assert_equal, source_rows
from tests.support.postgres import Database
from tests.support.stores import CATALOG_USER, S3, PostgresCatalogFolder, StoreProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE {} (id bigint PRIMARY KEY, n int, name text, price numeric(12,2), at timestamptz DEFAULT now())"
FILL = "INSERT INTO {} SELECT i, i % 7, 'item ' || i, i * 1.25 FROM generate_series(1, {}) i"
TABLES = [f"items_{number}" for number in range(6)]
assert len({worker_of(f"shop.{table}", 4) for table in TABLES}) > 1


def test_workers_commit_side_by_side_through_a_postgresql_catalog(
    database: Database, postgres_catalog: PostgresCatalogFolder
) -> None:
    for table in TABLES:
        database.execute(ITEMS.format(table))
        database.execute(FILL.format(table, 200))
    config = postgres_catalog.config(group({"eu": database}, dict.fromkeys(TABLES)), workers=4)
    with Pipeline(config, postgres_catalog) as pipeline:
        pipeline.wait_streaming()
        for n in range(5):
            for table in TABLES:
                database.execute(f"UPDATE {table} SET n = {n} WHERE id % 5 = {n}")
            database.execute(f"DELETE FROM {TABLES[n]} WHERE id = 7")
        pipeline.wait_applied(database)
        for table in TABLES:
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))
    catalog = postgres_catalog.database
    assert catalog.execute("SELECT count(*) FROM iceberg_tables WHERE metadata_location IS NOT NULL") == [(6,)]
    owners = catalog.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE tablename LIKE 'iceberg%'")
    assert owners == [(CATALOG_USER,)]


def test_a_catalog_server_that_drops_its_connections_is_asked_again(
    database: Database, postgres_catalog: PostgresCatalogFolder
) -> None:
    database.execute(ITEMS.format("items"))
    database.execute(FILL.format("items", 100))
    with Pipeline(postgres_catalog.config(group({"eu": database}, {"items": None})), postgres_catalog) as pipeline:
        pipeline.wait_streaming()
        for n in range(3):
            ended = postgres_catalog.database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = %s",
                (CATALOG_USER, postgres_catalog.database.name),
            )
            assert ended
            database.execute(f"UPDATE items SET n = {n}")
            database.execute(f"DELETE FROM items WHERE id = {n + 1}")
            pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_another_user_of_the_catalog_counts_while_kuvasz_runs(
    database: Database, postgres_catalog: PostgresCatalogFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before may not log in any more; what was read while nothing could be committed is in the lake after."""
    catalog, heir = postgres_catalog.database, f"heir_of_{postgres_catalog.database.name}"
    database.execute(ITEMS.format("items"))
    database.execute(FILL.format("items", 100))
    config = postgres_catalog.config(group({"eu": database}, {"items": None}))
    catalog.execute(f"CREATE ROLE {heir} LOGIN IN ROLE {CATALOG_USER}")
    try:
        with Pipeline(config, postgres_catalog) as pipeline:
            pipeline.wait_streaming()
            catalog.execute(f"ALTER ROLE {CATALOG_USER} NOLOGIN")
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = %s"
            assert catalog.execute(ended, (CATALOG_USER, catalog.name))
            database.execute("UPDATE items SET n = -1")
            wait_until(lambda: "a commit failed and is tried again" in caplog.text, "it is refused")

            async def take_over(user: str) -> tuple[str, ...]:
                lake = config.lake.model_copy(update={"properties": {"jdbc.user": user, "jdbc.password": "any"}})
                found = pipeline.app.difference(config.model_copy(update={"lake": lake}))
                await asyncio.to_thread(pipeline.app.ask_lake, found)
                pipeline.app.take_over(found)
                return found.held

            with pytest.raises(LakeError, match=f"{heir}_not"):
                pipeline.call(take_over(f"{heir}_not"))
            assert pipeline.app.config.lake == config.lake, "whom nobody lets in is none to go by"
            assert pipeline.call(take_over(heir)) == ()
            pipeline.wait_applied(database)
            users = catalog.execute("SELECT DISTINCT usename FROM pg_stat_activity WHERE usename IN (%s, %s)",
                                    (heir, CATALOG_USER))  # fmt: skip
            assert users == [(heir,)]
            catalog.execute(f"ALTER ROLE {CATALOG_USER} LOGIN")  # for the engines that look now
            pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    finally:
        catalog.execute(f"ALTER ROLE {CATALOG_USER} LOGIN")
        catalog.execute(f"REASSIGN OWNED BY {heir} TO {CATALOG_USER}; DROP OWNED BY {heir}; DROP ROLE {heir}")


def test_s3_is_a_store_by_configuration_alone(
    database: Database, s3: S3, new_store_process: Callable[..., StoreProcess]
) -> None:
    kuvasz = streamed_to_s3(database, s3, new_store_process)
    assert [key for key in s3.keys("plain/") if key.endswith("-dv.puffin")]
    assert not [key for key in s3.keys("plain/") if "_kuvasz" in key]
    assert_equal(source_rows(database.url, "items", sid="eu"), kuvasz.rows("items"), key=("id",))


@pytest.mark.slow
@pytest.mark.timeout(1500)  # a Spark that knows nothing of kuvasz takes minutes where the machine is busy
def test_s3_is_read_again_without_the_state_folder_and_by_everybody(
    database: Database, s3: S3, new_store_process: Callable[..., StoreProcess]
) -> None:
    kuvasz = streamed_to_s3(database, s3, new_store_process)
    shutil.rmtree(kuvasz.folder / "state")
    database.execute("UPDATE items SET n = 100 WHERE id < 50")
    database.execute("DELETE FROM items WHERE id BETWEEN 60 AND 70")
    assert kuvasz.start("--until-caught-up").wait() == 0, kuvasz.report()
    assert kuvasz.found("index_read", table="shop.items"), kuvasz.report()
    kuvasz.assert_equal_everywhere("items", source_rows(database.url, "items", sid="eu"))


def streamed_to_s3(database: Database, s3: S3, new_store_process: Callable[..., StoreProcess]) -> StoreProcess:
    """Return a kuvasz that has copied and followed a table, and was stopped."""
    database.execute(ITEMS.format("items"))
    database.execute("ALTER TABLE items ALTER name SET STORAGE EXTERNAL")
    database.execute(FILL.format("items", 2000))
    database.execute("UPDATE items SET name = repeat('long ', 2000) WHERE id IN (5, 6)")
    lake = {"warehouse": f"s3://{S3.bucket}/plain", "properties": s3.properties}
    kuvasz = new_store_process(group({"eu": database}, {"items": None}), lake=lake).start()
    kuvasz.wait_event("copied", table="shop.items")
    database.execute("UPDATE items SET n = n + 1 WHERE id % 3 = 0")  # leaves a large value out: read by position
    database.execute("DELETE FROM items WHERE id % 5 = 0 AND id <> 5")
    kuvasz.wait_confirmed(database)
    kuvasz.terminate()
    return kuvasz


#: Everything all the time.
EAGER = {"interval": "200ms", "min_files": 2, "max_dead_percent": 10, "target_file_size": "64kB",
         "snapshot_age": "1s", "snapshots_kept": 3}  # fmt: skip

#: `kuvasz` four days later.
LATER = """
import sys, time
now = time.time
time.time = lambda: now() + 4 * 86400
from kuvasz import cli
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_maintenance_on_s3(database: Database, s3: S3, new_store_process: Callable[..., StoreProcess]) -> None:
    for table in ("items", "items_2"):
        database.execute(ITEMS.format(table))
        database.execute(FILL.format(table, 300))
    lake = {"warehouse": f"s3://{S3.bucket}/kept", "properties": s3.properties}
    tables = dict.fromkeys(("items", "items_2"))
    kuvasz = new_store_process(group({"eu": database}, tables), lake=lake, maintenance=EAGER).start()
    kuvasz.wait_event("copied", 2)
    for n in range(6):
        for table in tables:
            database.execute(f"UPDATE {table} SET n = {n} WHERE id % 7 = {n}")
            database.execute(f"DELETE FROM {table} WHERE id = {n + 1}")
        kuvasz.wait_confirmed(database)
    kuvasz.wait_event("compacted", 2, table="shop.items")
    kuvasz.wait_until(lambda: kuvasz.snapshots("items") <= 4, "snapshots were expired")
    kuvasz.wait_until(lambda: len(s3.keys("kept/shop/items/data/")) < 16, "what only they needed is gone")
    kuvasz.terminate()
    assert not kuvasz.found("maintenance_failed"), kuvasz.report()

    orphans = [f"kept/shop/{table}/data/kvsz-orphan.parquet" for table in tables]
    foreign = "kept/shop/items/data/theirs.parquet"
    for key in (*orphans, foreign):
        s3.client.put_object(Bucket=S3.bucket, Key=key, Body=b"x")
    verb = [
        sys.executable,
        "-c",
        LATER,
        "maintain",
        "--full",
        "--json",
        "--table",
        "items",
        "--config",
        str(kuvasz.map),
    ]
    done = subprocess.run(verb, check=True, capture_output=True, text=True, timeout=300)
    (shown,) = json.loads(done.stdout)
    assert (shown["files"], shown["delete_files"], shown["dead_rows"], shown["error"]) == (1, 0, 0, None)
    left = s3.keys("kept/")
    assert orphans[0] not in left
    assert orphans[1] in left, "it is another table's"
    assert foreign in left
    for table in tables:
        assert_equal(source_rows(database.url, table, sid="eu"), kuvasz.rows(table), key=("id",))


# Slow: a further catalog.
@pytest.mark.slow
def test_maintenance_with_a_postgresql_catalog(database: Database, postgres_catalog: PostgresCatalogFolder) -> None:
    database.execute(ITEMS.format("items"))
    database.execute(FILL.format("items", 300))
    config = postgres_catalog.config(group({"eu": database}, {"items": None}), maintenance=EAGER)
    with Pipeline(config, postgres_catalog) as pipeline:
        pipeline.wait_streaming()
        for n in range(7):
            database.execute(f"UPDATE items SET n = {n} WHERE id % 7 = {n}")
            pipeline.wait_applied(database)
        lake = pipeline.app.lake
        wait_until(
            lambda: (upkeep := lake.maintenance.upkeep().get("shop.items")) and upkeep.rewrites, "files were merged"
        )
        wait_until(lambda: pipeline.snapshots("items") <= 4, "snapshots were expired")
        table = lake.table("shop.items")
        orphan = Path(table.definition.location.removeprefix("file://")) / "data" / "kvsz-orphan.parquet"
        orphan.write_bytes(b"x")
        with lake.maintenance.maintainer._turn:  # as it does itself: expiry would take files away between two looks
            removed = lake.maintenance.maintainer._orphans.remove(table, -60.0)
        assert [path.rpartition("/")[2] for path in removed] == [orphan.name]
        shown = lake.maintenance.run("shop.items", full=True)
        assert (shown.files, shown.delete_files, shown.error) == (1, 0, None)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_a_warehouse_that_refuses_us_says_so_and_where(s3: S3, tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(
        "lake:\n"
        f"  uri: jdbc:sqlite:{tmp_path}/catalog.db\n"
        f"  warehouse: s3://{S3.bucket}/closed\n"
        "  properties:\n"
        + "".join(f"    {name}: '{value}'\n" for name, value in s3.properties.items())
        + "databases: [{database: shop, urls: [{url: 'postgresql:///shop'}], tables: {items: }}]\n"
    )
    config = load(file, {}).config
    with s3.checking_credentials(), pytest.raises(LakeError) as caught:
        prove_warehouse(config)
    assert caught.value.message.startswith(f"the warehouse s3://{S3.bucket}/closed cannot be written: ")
    assert "ACCESS_DENIED" in caught.value.message
    assert "kuvasz-secret" not in str(caught.value)
    assert caught.value.hint == "check `lake.warehouse`, `lake.properties` and the permissions"
    prove_warehouse(config)


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_a_spool_in_a_shared_store_loses_only_what_is_a_day_old(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, properties = f"file://{tmp_path}/wh/_kuvasz_spool", {}
    if store == "s3":
        s3: S3 = request.getfixturevalue("s3")
        folder, properties = f"s3://{S3.bucket}/spool/_kuvasz_spool", s3.properties
    Spool(folder, properties).clear()  # nothing there yet
    path, slices = Spool(folder, properties).write([b"abc", b"defg"])
    assert [piece.read(properties) for piece in slices] == [b"abc", b"defg"]
    Spool(folder, properties).clear()
    assert slices[0].read(properties) == b"abc"
    later = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    Spool(folder, properties).clear()
    assert not file_io(properties, path).new_input(path).exists()
