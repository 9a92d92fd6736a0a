"""The table type changelog through the whole path: real PostgreSQL, Spark and Iceberg."""

from __future__ import annotations

import shutil

import pytest

from kuvasz.state.tables import State
from tests.support.items import BIG, ITEMS, Items, assert_holds, churn, copied_lsn, truncate, with_type
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.parametrize(
    ("sid", "identity"),
    [
        ("eu", "DEFAULT"),
        (None, "FULL"),
        pytest.param(None, "DEFAULT", marks=pytest.mark.slow),
        pytest.param("eu", "FULL", marks=pytest.mark.slow),
    ],
)
def test_every_change_is_a_row(database: Database, lake_folder: LakeFolder, sid: str | None, identity: str) -> None:
    items = Items(database, lake_folder, "changelog", sid=sid, identity=identity)
    with items.running() as pipeline:
        churn(database)
        pipeline.wait_applied(database)
        truncate(database)
        items.check(pipeline)


# Slow: that an index which is there is gone on with, test_clone.py shows with each run.
@pytest.mark.parametrize("lose_index", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_large_transaction_is_numbered_through_also_after_a_restart(
    database: Database, lake_folder: LakeFolder, lose_index: bool
) -> None:
    items = Items(database, lake_folder, "changelog", memory="1MB", transaction_spill_bytes="64kB")
    with items.running() as pipeline:
        churn(database)
        with database.connect() as session:
            session.execute("UPDATE items SET n = n + 1")
            session.execute(f"INSERT INTO items SELECT i, 1, 'many', {BIG} || i FROM generate_series(5000, 5090) i")
            pipeline.wait_applied(database)  # parts are on their way, the transaction goes on
            session.execute("UPDATE items SET n = n + 1 WHERE id % 2 = 0")
            session.execute("TRUNCATE items")
            session.execute(f"INSERT INTO items SELECT i, 2, 'more', {BIG} || i FROM generate_series(1, 60) i")
        items.check(pipeline)
    with database.connect() as session:
        session.execute("UPDATE items SET n = n + 1")
        session.execute("UPDATE items SET n = n + 1, id = id + 100 WHERE id < 9")
    if lose_index:
        shutil.rmtree(lake_folder.folder / "state")
    with items.running() as pipeline:
        database.execute("UPDATE items SET n = 9 WHERE id > 100")
        items.check(pipeline)


def test_partitions_and_compaction(database: Database, lake_folder: LakeFolder) -> None:
    items = Items(
        database, lake_folder, "changelog", options={"partition_by": ["bucket(2, id)"]},
        maintenance={"interval": "50ms", "min_files": 2},
    )  # fmt: skip
    with items.running() as pipeline:
        for _ in range(4):
            churn(database)
            pipeline.wait_applied(database)
        wait_until(lambda: pipeline.app.lake.maintenance.upkeep()["shop.items"].rewrites >= 1, "files were merged")
        churn(database)
        items.check(pipeline)


def test_truncate_of_two_tables_with_cascade(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE parents (id int PRIMARY KEY)")
    database.execute("CREATE TABLE kids (id int PRIMARY KEY, parent int REFERENCES parents)")
    observer = Observer(database, {"parents": ("id",), "kids": ("id",)})
    database.execute("INSERT INTO parents VALUES (1)")
    config = lake_folder.config(
        group({"eu": database}, {"parents": {"type": "changelog"}, "kids": {"type": "changelog"}})
    )
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        at = {name: copied_lsn(pipeline, target=name) for name in ("parents", "kids")}
        database.execute("INSERT INTO kids VALUES (1, 1)")
        with database.connect() as session:
            session.execute("INSERT INTO kids VALUES (2, 1)")
            session.execute("TRUNCATE parents, kids CASCADE")
            session.execute("INSERT INTO parents VALUES (1)")
            session.execute("INSERT INTO kids VALUES (3, 1)")
        database.execute("TRUNCATE parents CASCADE")
        pipeline.wait_applied(database)
        for name in ("parents", "kids"):
            assert_holds(pipeline, observer.expected(name, "changelog", at[name], sid="eu"), target=name)


def test_a_column_of_its_own_at_the_source_is_refused(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute('ALTER TABLE items ADD "_op" text')
    with Pipeline(with_type(lake_folder, {"eu": database}, "changelog"), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert "has a column named _op, which the changelog table shop.items needs itself" in pipeline.errors()[0]
