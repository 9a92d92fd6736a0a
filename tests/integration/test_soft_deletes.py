"""`deletes: soft`: what a source deletes stays in the lake with the time of it, over restarts and a lost slot."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kuvasz.config.model import Config
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES: dict[str, dict[str, Any]] = {
    "items": {"mask": {"hidden": "hmac"}},
    "few": {"filter": "n > 0"},
    "made": {"set": {"id": "id", "twice": "n * 2"}},
    "parts": {"partition_by": ["bucket(4, id)"], "sort_by": ["n"]},
}
BIG = "repeat(md5(random()::text), 200)"


def make_config(folder: LakeFolder, database: Database, deletes: str) -> Config:
    tables = {name: options | {"deletes": deletes} for name, options in TABLES.items()}
    (databases,) = group({"eu": database}, tables)
    return folder.config([databases | {"on_slot_lost": "repair"}], mask_secret="a secret of some length")


def rows(pipeline: Pipeline, table: str) -> dict[int, dict[str, Any]]:
    lake = pipeline.folder
    found = lake.session.table(f"{lake.catalog}.shop.`{table}`").toArrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def gone(pipeline: Pipeline, table: str) -> set[int]:
    return {key for key, row in rows(pipeline, table).items() if row["_deleted_at"] is not None}


def lives(pipeline: Pipeline, table: str) -> set[int]:
    return rows(pipeline, table).keys() - gone(pipeline, table)


def fill(database: Database) -> None:
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, body text, hidden text)")
        database.execute(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL")
        database.execute(f"INSERT INTO {name} SELECT i, i, {BIG}, 'h' FROM generate_series(1, 9) i")
    database.execute("ALTER TABLE few REPLICA IDENTITY FULL")


def check_verified(lake: LakeFolder, config: Config) -> None:
    """All tables equal their sources; a row that is not there, or not as it was, dead or alive, is found."""
    reports = verify.reports(config, session=lake.session)
    assert {report.target: (report.error, report.differences) for report in reports} == {
        f"shop.{name}": ("", 0) for name in TABLES
    }
    for planted in (
        "DELETE FROM {} WHERE id = 1", "UPDATE {} SET n = -5 WHERE id = 6",
        "UPDATE {} SET _deleted_at = NULL WHERE id = 4", "UPDATE {} SET _deleted_at = now() WHERE id = 8",
    ):  # fmt: skip
        lake.session.sql(planted.format(f"{lake.catalog}.shop.items"))
    (report,) = verify.reports(config, table="shop.items", session=lake.session)
    assert {(one.kind, one.key[-1]) for one in report.keys} == {
        ("missing", "1"), ("changed", "6"), ("extra", "4"), ("missing", "8"),
    }  # fmt: skip


def test_deleted_rows_stay(database: Database, lake_folder: LakeFolder) -> None:
    begun(database, lake_folder)
    with Pipeline(make_config(lake_folder, database, "hard"), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert any("keeps deleted rows, and the map says `deletes: hard`" in error for error in pipeline.errors())


@pytest.mark.slow
@pytest.mark.parametrize("format_version", [3, 2])
def test_deleted_rows_stay_over_a_lost_slot_and_truncates(
    database: Database, spark_session: SparkSession, format_version: int
) -> None:
    lake = LakeFolder(spark_session, format_version=format_version)
    config, was = begun(database, lake)
    database.execute("DELETE FROM items WHERE id IN (4, 5)")
    database.execute("INSERT INTO items VALUES (1, 1, 'again', 'h'), (30, 1, 'x', 'h')")
    database.execute("TRUNCATE parts")
    database.execute("SELECT pg_drop_replication_slot('kuvasz_shop_eu')")
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
        assert gone(pipeline, "items") == {2, 4, 5}
        assert rows(pipeline, "items")[4]["body"] == was[4]["body"]
        assert lives(pipeline, "items") == {1, 3, 6, 7, 8, 20, 30}
        assert (gone(pipeline, "parts"), lives(pipeline, "parts")) == (set(range(1, 10)) | {20}, set())
        database.execute("INSERT INTO parts VALUES (1, 1, 'x', 'h')")
        database.execute("TRUNCATE few")
        database.execute("UPDATE items SET n = 6 WHERE id = 6")
        database.execute("DELETE FROM items WHERE id = 7")
        pipeline.wait_applied(database)
        assert (lives(pipeline, "few"), len(gone(pipeline, "few"))) == (set(), 10)
        assert (lives(pipeline, "parts"), len(gone(pipeline, "parts"))) == ({1}, 9)
        assert gone(pipeline, "items") == {2, 4, 5, 7}
    check_verified(lake, config)
    lake.remove()


def begun(database: Database, lake: LakeFolder) -> tuple[Config, dict[int, dict]]:
    """Follow tables that are to keep deleted rows; returns their map, and the rows of one before any was deleted."""
    fill(database)
    with Pipeline(make_config(lake, database, "hard"), lake) as pipeline:
        pipeline.wait_streaming()
        database.execute("DELETE FROM items WHERE id = 9")
        pipeline.wait_applied(database)
    config = make_config(lake, database, "soft")
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
        was = rows(pipeline, "items")
        for name in TABLES:
            database.execute(f"UPDATE {name} SET n = 11 WHERE id = 1")
            database.execute(f"DELETE FROM {name} WHERE id = 1")
            database.execute(f"UPDATE {name} SET id = 20 WHERE id = 2")
            database.execute(f"DELETE FROM {name} WHERE id = 3")
            database.execute(f"INSERT INTO {name} VALUES (3, 33, 'new', 'h')")
        database.execute("UPDATE few SET n = 0 WHERE id = 4")
        database.execute("UPDATE few SET n = -1 WHERE id = 4")
        pipeline.wait_applied(database)
        assert (gone(pipeline, "items"), gone(pipeline, "parts")) == ({1, 2}, {1, 2})
        assert (gone(pipeline, "few"), gone(pipeline, "made")) == ({1, 2, 4}, {1, 2})
        assert rows(pipeline, "made")[1]["twice"] == 22
        found = rows(pipeline, "items")
        assert found[1] == was[1] | {"n": 11, "_deleted_at": found[1]["_deleted_at"]}
        assert abs(datetime.datetime.now(datetime.UTC) - found[1]["_deleted_at"]) < datetime.timedelta(minutes=5)
        assert found[20] == was[2] | {"id": 20}
        assert (found[3]["body"], 9 in found) == ("new", False)
    return config, was
