"""The table type history through the whole path: real PostgreSQL, Spark and Iceberg."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections import Counter

import duckdb
import pytest

from kuvasz.state.tables import State
from tests.support import model, oracle
from tests.support.items import BIG, Items, assert_holds, churn, copied_lsn, make_items, truncate, with_type
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.parametrize("sid", ["eu", pytest.param(None, marks=pytest.mark.slow)])
def test_every_version_is_there_with_its_time(database: Database, lake_folder: LakeFolder, sid: str | None) -> None:
    items = Items(database, lake_folder, "history", sid=sid)
    with items.running() as pipeline:
        churn(database)
        items.check(pipeline)
        truncate(database)
        churn(database)
        items.check(pipeline)


# Slow: that an index which is there is gone on with, test_clone.py shows with each run.
@pytest.mark.parametrize("lose_index", [pytest.param(False, marks=pytest.mark.slow), True])
def test_versions_go_on_after_a_restart(database: Database, lake_folder: LakeFolder, lose_index: bool) -> None:
    items = Items(database, lake_folder, "history")
    with items.running() as pipeline:
        churn(database)
        truncate(database)
        pipeline.wait_applied(database)
    churn(database)
    if lose_index:
        shutil.rmtree(lake_folder.folder / "state")
    with items.running() as pipeline:
        churn(database)
        items.check(pipeline)


def test_two_sources_with_composite_keys_and_transactions_in_parts(
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
        config = lake_folder.config(
            group({"eu": database, "us": other}, {"lines": {"type": "history"}}), memory="1MB",
            transaction_spill_bytes="64kB",
        )  # fmt: skip
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            at = {sid: copied_lsn(pipeline, f"shop_{sid}", "lines") for sid in observers}
            for one in (database, other):
                with one.connect() as session:
                    session.execute("UPDATE lines SET n = n + 1")
                    session.execute("DELETE FROM lines WHERE a = 3")
                    session.execute(f"INSERT INTO lines SELECT i, 'z', 1, {BIG} || i FROM generate_series(1, 90) i")
                    session.execute("UPDATE lines SET n = n + 1, a = a + 100")
                    session.execute("DELETE FROM lines WHERE b = 'z' AND a % 2 = 0")
                    session.execute("INSERT INTO lines VALUES (3, 'k3', 7, 'back'), (4, 'k4', 8, 'back')")
                    session.execute(f"UPDATE lines SET body = {BIG} || a WHERE a > 4")
                one.execute("UPDATE lines SET b = b || '!' WHERE a % 3 = 0")
                with one.connect() as session:
                    session.execute(f"INSERT INTO lines SELECT i, 'y', 1, {BIG} || i FROM generate_series(1, 60) i")
                    session.execute("TRUNCATE lines")
                    session.execute(f"INSERT INTO lines SELECT i, 'k' || i, 1, {BIG} FROM generate_series(3, 60) i")
                    session.execute("UPDATE lines SET n = 5 WHERE a < 9")
            pipeline.wait_applied(database, other)
            rows = [observers[sid].expected("lines", "history", at[sid], sid=sid) for sid in observers]
            pipeline.assert_equal("lines", *rows, key=("sid", "a", "b"))
    finally:
        drop_database(other)


POINT_IN_TIME = (
    "SELECT id, n FROM {table} WHERE kvsz_start <= TIMESTAMP '{at}' AND kvsz_end > TIMESTAMP '{at}' ORDER BY id"
)


def test_the_table_as_it_was_at_an_instant(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items VALUES (1, 10), (2, 20)")
    with Pipeline(with_type(lake_folder, {None: database}, "history"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        then = []
        for statement in ("UPDATE items SET n = 11 WHERE id = 1", "DELETE FROM items WHERE id = 2",
                          "INSERT INTO items VALUES (2, 22)", "TRUNCATE items"):  # fmt: skip
            rows = database.execute("SELECT id, n FROM items ORDER BY id")
            ((at,),) = database.execute("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::text || '+00:00'")
            then.append((at, rows))
            database.execute(statement)
        pipeline.wait_applied(database)
        table = oracle.open_table(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
        with duckdb.connect() as duck:
            duck.register("items", table.scan().to_arrow())
            for at, rows in then:
                query = POINT_IN_TIME.format(table="items", at=at)
                assert duck.execute(query).fetchall() == rows
                spark = POINT_IN_TIME.format(table=f"{lake_folder.catalog}.shop.items", at=at)
                assert [tuple(row) for row in lake_folder.session.sql(spark).collect()] == rows


def test_partitions_compaction_and_a_lost_index(database: Database, lake_folder: LakeFolder) -> None:
    items = Items(
        database, lake_folder, "history", options={"partition_by": ["bucket(2, id)"], "sort_by": ["n"]},
        maintenance={"interval": "50ms", "min_files": 2},
    )  # fmt: skip
    for number in range(2):
        if number:
            shutil.rmtree(lake_folder.folder / "state")
        with items.running() as pipeline:
            for _ in range(3):
                churn(database)
                pipeline.wait_applied(database)
            truncate(database)
            pipeline.wait_applied(database)
            upkeep = pipeline.app.lake.maintenance.upkeep
            wait_until(lambda: upkeep()["shop.items"].rewrites >= 1, "files were merged")  # noqa: B023
            churn(database)
            items.check(pipeline)


def test_truncate_of_two_tables_with_cascade(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE parents (id int PRIMARY KEY)")
    database.execute("CREATE TABLE kids (id int PRIMARY KEY, parent int REFERENCES parents)")
    observer = Observer(database, {"parents": ("id",), "kids": ("id",)})
    database.execute("INSERT INTO parents VALUES (1), (2)")
    config = lake_folder.config(
        group({"eu": database}, {"parents": {"type": "history"}, "kids": {"type": "history"}})
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
            assert_holds(pipeline, observer.expected(name, "history", at[name], sid="eu"), target=name)


def versions_of(pipeline: Pipeline) -> list[dict]:
    """All versions as PyIceberg reads them, which is as Spark does."""
    lake = pipeline.folder
    found = oracle.lake_rows_pyiceberg(lake.pyiceberg, "shop.items", catalog=lake.catalog)
    spark = oracle.lake_rows_spark(lake.session, f"{lake.catalog}.shop.items")
    oracle.assert_equal(found, spark, key=("id",))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows.elements()]


def assert_open_as_source(pipeline: Pipeline, database: Database) -> list[dict]:
    """The open versions are the source's rows, and no two versions of a key overlap; return all."""
    versions = versions_of(pipeline)
    source = oracle.source_rows(database.url, "items")
    now = Counter(tuple(row[name] for name in source.columns) for row in versions if row["kvsz_end"] == model.FOREVER)
    oracle.assert_equal(source, oracle.Rows(columns=source.columns, rows=now), key=("id",))
    by_key: dict[int, list[dict]] = {}
    for row in sorted(versions, key=lambda row: row["kvsz_start"]):
        assert row["kvsz_start"] < row["kvsz_end"], row
        assert not (row["kvsz_deleted"] and row["kvsz_end"] == model.FOREVER), row
        by_key.setdefault(row["id"], []).append(row)
    for known in by_key.values():
        for one, after in itertools.pairwise(known):
            assert one["kvsz_end"] <= after["kvsz_start"], (one, after)
    return versions


def resync(pipeline: Pipeline, *verbs: str) -> None:
    before = pipeline.app.lake.positions("shop.items")["shop_eu"].taken_us
    for verb in ("resync", *verbs):
        pipeline.tell(verb, "shop.items", "shop_eu")

    def is_copied() -> bool:
        now = pipeline.app.lake.positions("shop.items").get("shop_eu")
        return now is not None and now.taken_us > before

    wait_until(is_copied, f"it is copied again: {pipeline.errors()}")
    pipeline.wait_streaming()


def ended(versions: list[dict], columns: tuple[str, ...] = ("id", "n", "kvsz_start", "kvsz_end")) -> Counter:
    return Counter(tuple(row[name] for name in columns) for row in versions if row["kvsz_end"] != model.FOREVER)


@pytest.mark.parametrize(
    "layout",
    [pytest.param({}, marks=pytest.mark.slow), {"partition_by": ["bucket(2, id)"], "sort_by": ["name desc"]}],
)
def test_another_copy_keeps_the_past(database: Database, lake_folder: LakeFolder, layout: dict) -> None:
    make_items(database)
    config = lake_folder.config(group({"eu": database}, {"items": {"type": "history", **layout}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        churn(database)
        pipeline.wait_applied(database)
        before = assert_open_as_source(pipeline, database)
        pipeline.tell("pause", "shop.items", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.items", State.PAUSED)
        database.execute("UPDATE items SET n = 77 WHERE id = 2")
        database.execute("DELETE FROM items WHERE id = 3")
        database.execute("INSERT INTO items VALUES (500, 5, 'while paused', NULL)")
        resync(pipeline, "resume")
        after = assert_open_as_source(pipeline, database)
        new = ended(after) - ended(before)
        assert ended(before) <= ended(after)
        assert sorted(row[0] for row in new) == [2, 3]
        assert {row["id"] for row in after if row["kvsz_deleted"]} - {
            row["id"] for row in before if row["kvsz_deleted"]
        } == {3}  # fmt: skip
        assert len(after) == len(before) + 2
        churn(database)
        pipeline.wait_applied(database)
        assert ended(after) <= ended(assert_open_as_source(pipeline, database))
    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        truncate(database)
        pipeline.wait_applied(database)
        assert_open_as_source(pipeline, database)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        pytest.param("ALTER n TYPE bigint", 0, marks=pytest.mark.slow),
        pytest.param("ALTER n TYPE int USING n * 100", 2, marks=pytest.mark.slow),
        ("DROP name, ADD name text DEFAULT 'again', ADD r float DEFAULT random()", 19),
    ],
)
def test_versions_follow_a_rewritten_source_when_it_is_copied_again(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture, change: str, changed: int
) -> None:
    make_items(database)
    with Pipeline(with_type(lake_folder, {"eu": database}, "history"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 1 WHERE id < 3")
        pipeline.wait_applied(database)
        with caplog.at_level(logging.INFO, "kuvasz"):
            database.execute(f"ALTER TABLE items {change}")
            database.execute("UPDATE items SET n = 7 WHERE id = 20")
            pipeline.wait_applied(database)
        told = [record.what for record in caplog.records if getattr(record, "event", "") == "schema_changed"]
        assert any("versions that are open show what they showed" in what for what in told), told
        before = versions_of(pipeline)
        resync(pipeline)
        after = assert_open_as_source(pipeline, database)
        assert ended(before) <= ended(after)
        assert len(after) == len(before) + changed  # row 20 had a new version already
