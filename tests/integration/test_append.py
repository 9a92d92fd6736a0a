"""The table type append through the whole path: real PostgreSQL, Spark and Iceberg."""

from __future__ import annotations

import shutil

import pytest

from kuvasz.state.tables import State
from tests.support.items import BIG, ITEMS, Items, churn, copied_lsn, truncate, with_type
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.parametrize("sid", ["eu", pytest.param(None, marks=pytest.mark.slow)])
def test_every_row_that_ever_was_stays(database: Database, lake_folder: LakeFolder, sid: str | None) -> None:
    items = Items(database, lake_folder, "append", sid=sid)
    with items.running() as pipeline:
        churn(database)
        pipeline.wait_applied(database)
        truncate(database)
        items.check(pipeline)


# Slow: that an index which is there is gone on with, test_clone.py shows with each run.
@pytest.mark.parametrize("lose_index", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_restart_doubles_nothing_and_finds_the_newest_version(
    database: Database, lake_folder: LakeFolder, lose_index: bool
) -> None:
    items = Items(database, lake_folder, "append")
    with items.running() as pipeline:
        churn(database)
        with database.connect() as session:  # several versions of a key in one file, and of one transaction
            for n in range(3):
                session.execute(f"UPDATE items SET body = {BIG} || '{n}' WHERE id < 4")
        database.execute("UPDATE items SET n = 5 WHERE id < 3")
        pipeline.wait_applied(database)
    database.execute("UPDATE items SET n = 50 WHERE id < 5")
    if lose_index:
        shutil.rmtree(lake_folder.folder / "state")
    with items.running() as pipeline:
        database.execute("UPDATE items SET n = 51, id = id + 5000 WHERE id < 4")
        database.execute("UPDATE items SET n = 52 WHERE id > 5000")
        items.check(pipeline)


# Slow: test_history.py has it.
@pytest.mark.slow
def test_two_sources_with_composite_keys_and_a_large_transaction(
    database: Database, postgres18: object, lake_folder: LakeFolder
) -> None:
    other = create_database(postgres18)
    try:
        observers = {}
        for sid, one in {"eu": database, "us": other}.items():
            one.execute("CREATE TABLE lines (a int, b text, n int, body text, PRIMARY KEY (b, a))")
            one.execute("ALTER TABLE lines ALTER body SET STORAGE EXTERNAL")
            observers[sid] = Observer(one, {"lines": ("a", "b")})
            one.execute(f"INSERT INTO lines SELECT i % 9, 'k' || i, 0, {BIG} FROM generate_series(1, 50) i")
        tables = {"lines": {"type": "append"}}
        config = lake_folder.config(
            group({"eu": database, "us": other}, tables), memory="1MB", transaction_spill_bytes="64kB"
        )
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            at = {sid: copied_lsn(pipeline, f"shop_{sid}", "lines") for sid in observers}
            for one in (database, other):
                with one.connect() as session:
                    session.execute("UPDATE lines SET n = n + 1")
                    session.execute(f"INSERT INTO lines SELECT i, 'z', 1, {BIG} || i FROM generate_series(1, 90) i")
                    session.execute("UPDATE lines SET n = n + 1, a = a + 100")
                    session.execute("DELETE FROM lines WHERE b = 'z' AND a % 2 = 0")
                one.execute("UPDATE lines SET b = b || '!' WHERE a % 3 = 0")
            pipeline.wait_applied(database, other)
            rows = [observers[sid].expected("lines", "append", at[sid], sid=sid) for sid in observers]
            pipeline.assert_equal("lines", *rows, key=("sid", "a", "b"))
    finally:
        drop_database(other)


# Slow: test_history.py has it, of a table that is compacted otherwise than clones as well.
@pytest.mark.slow
def test_partitions_and_compaction(database: Database, lake_folder: LakeFolder) -> None:
    items = Items(
        database, lake_folder, "append", options={"partition_by": ["bucket(2, id)"]},
        maintenance={"interval": "50ms", "min_files": 2},
    )  # fmt: skip
    with items.running() as pipeline:
        for _ in range(4):
            churn(database)
            pipeline.wait_applied(database)
        wait_until(lambda: pipeline.app.lake.maintenance.upkeep()["shop.items"].rewrites >= 1, "files were merged")
        churn(database)
        items.check(pipeline)


def test_another_type_than_the_tables_is_refused(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items (id) VALUES (1)")
    with Pipeline(with_type(lake_folder, {"eu": database}, "append"), lake_folder) as pipeline:
        pipeline.wait_streaming()
    with Pipeline(with_type(lake_folder, {"eu": database}, "clone"), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        told = "\n".join(pipeline.errors())
        assert "table shop.items was made as append, and the map says clone" in told
        assert "hint: set `type: append`" in told
