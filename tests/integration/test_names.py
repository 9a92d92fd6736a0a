"""Names change hands, and what the printed hints say is done: no table streams without its rows."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from kuvasz.sync import watches
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def begin(database: Database) -> None:
    for number, name in enumerate("ab"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, {number} FROM generate_series(1, 3) i")


def state(pipeline: Pipeline, name: str) -> State:
    return pipeline.states()["shop", f"shop.{name}"]


def resync(pipeline: Pipeline, name: str) -> None:
    """Do what the hint of a table in error says."""
    wait_until(lambda: state(pipeline, name) is State.ERROR, f"{name} stops")
    assert any(f"kuvasz resync --table shop.{name}" in error for error in pipeline.errors())
    pipeline.tell("resync", f"shop.{name}", "shop")


def test_two_tables_that_swap_their_names(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PATROL_S", 1.0)
    begin(database)
    config = lake_folder.config(group({None: database}, dict.fromkeys("ab")), workers=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE a RENAME TO t; ALTER TABLE b RENAME TO a; ALTER TABLE t RENAME TO b")
        for name in "ab":
            database.execute(f"INSERT INTO {name} VALUES (10, 10)")
        for name in "ab":
            resync(pipeline, name)
            wait_until(lambda name=name: state(pipeline, name) is State.STREAMING, f"{name} is back")
        for name in "ab":
            database.execute(f"INSERT INTO {name} VALUES (20, 20)")
        pipeline.wait_applied(database)
        for name in "ab":
            pipeline.assert_equal(name, source_rows(database.url, name))


def test_a_table_that_takes_the_name_of_another_one(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PATROL_S", 1.0)
    begin(database)
    config = lake_folder.config(group({None: database}, dict.fromkeys("ab")), workers=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("DROP TABLE a; ALTER TABLE b RENAME TO a")
        database.execute("INSERT INTO a VALUES (10, 10)")
        resync(pipeline, "a")
        wait_until(lambda: any("its rows go to shop.b" in error for error in pipeline.errors()), "it is told")
        database.execute("INSERT INTO a VALUES (20, 20)")
        wait_until(lambda: len(pipeline.rows("b")) == 5, "b follows it")
    with Pipeline(config, lake_folder) as pipeline:
        database.execute("INSERT INTO a VALUES (30, 30)")
        wait_until(lambda: any("its rows go to shop.b" in error for error in pipeline.errors()), "it is told again")
        wait_until(lambda: len(pipeline.rows("b")) == 6, "b still follows it")
        pipeline.assert_equal("b", source_rows(database.url, "a"))
        assert state(pipeline, "a") is State.ERROR
