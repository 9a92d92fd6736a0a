"""Prepared transactions: nothing of them is in the lake before they are committed, whoever does that and when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.sync import watches
from tests.support.items import copied_lsn
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.oracle import assert_equal, lake_rows_pyiceberg, source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

KINDS = ("clone", "append", "history", "changelog")

#: What is prepared, of rows that are there and one that comes: {0} is the table.
CHANGES = """
INSERT INTO {0} VALUES (10, 0); UPDATE {0} SET n = n + 1 WHERE id IN (1, 10); DELETE FROM {0} WHERE id = 2
"""


@pytest.fixture(autouse=True)
def given_up(database: Database) -> Iterator[None]:
    """Have none be left that would keep its database."""
    yield
    for (name,) in database.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        end(database, "ROLLBACK", name)


def prepare(database: Database, name: str, *statements: str) -> None:
    with database.connect() as session:
        for statement in statements:
            session.execute(statement)
        session.execute(f"PREPARE TRANSACTION '{name}'")


def end(database: Database, how: str, name: str) -> None:
    with database.connect(autocommit=True) as session:
        session.execute(f"{how} PREPARED '{name}'")


@pytest.mark.parametrize("is_restarted", [False, True], ids=["while it runs", "over a restart"])
def test_they_come_when_they_are_committed_and_never_when_they_are_not(
    database: Database, lake_folder: LakeFolder, *, is_restarted: bool
) -> None:
    """What others commit between goes by: the lake has it, and the slot moves, before the prepared one is over."""
    for kind in KINDS:
        database.execute(f"CREATE TABLE {kind} (id int PRIMARY KEY, n int)")
    observer = Observer(database, dict.fromkeys(KINDS, ("id",)))
    for kind in KINDS:
        database.execute(f"INSERT INTO {kind} VALUES (1, 1), (2, 2), (3, 3)")
    config = lake_folder.config(group({"eu": database}, {kind: {"type": kind} for kind in KINDS}))

    def assert_right(pipeline: Pipeline) -> None:
        pipeline.wait_applied(database)
        for kind in KINDS:
            expected = observer.expected(kind, kind, copied[kind], sid="eu")
            found = lake_rows_pyiceberg(lake_folder.pyiceberg, f"shop.{kind}", catalog=lake_folder.catalog)
            assert_equal(expected, found, key=("sid", "id"))

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        copied = {kind: copied_lsn(pipeline, target=kind) for kind in KINDS}
        for kind in KINDS:
            prepare(database, f"kept {kind}", CHANGES.format(kind))
            prepare(database, f"given up {kind}", f"INSERT INTO {kind} VALUES (20, 0)")
            database.execute(f"UPDATE {kind} SET n = 7 WHERE id = 3")
        assert_right(pipeline)
        if not is_restarted:
            for kind in KINDS:
                end(database, "COMMIT", f"kept {kind}")
                end(database, "ROLLBACK", f"given up {kind}")
            assert_right(pipeline)
    if not is_restarted:
        return
    end(database, "COMMIT", "kept clone")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert_right(pipeline)
        for kind in KINDS:
            if kind != "clone":
                end(database, "COMMIT", f"kept {kind}")
            end(database, "ROLLBACK", f"given up {kind}")
        assert_right(pipeline)


def test_one_that_changes_a_table_keeps_that_one_alone(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the table locked, and no session that anybody could end."""
    monkeypatch.setattr(watches, "PATROL_S", 0.3)
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        prepare(
            database, "shape", "INSERT INTO items VALUES (3, 3)", "ALTER TABLE items ADD m int DEFAULT 7",
            "UPDATE items SET m = 8 WHERE id = 1", "TRUNCATE others", "INSERT INTO others VALUES (9, 9)",
        )  # fmt: skip
        database.execute("CREATE TABLE more (id int PRIMARY KEY)")
        ((now,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
        wait_until(lambda: pipeline.app.progress.confirmable("shop_eu") >= now, "the slot moves on")
        assert len(pipeline.rows("items")) == len(pipeline.rows("others")) == 2
        end(database, "COMMIT", "shape")
        for table in ("items", "others"):
            pipeline.wait_streaming()
            pipeline.wait_applied(database)
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))


def told(caplog: pytest.LogCaptureFixture) -> list[list[str]]:
    """By whom a slot is kept waiting, each time that it was said."""
    return [one.__dict__["blockers"] for one in caplog.records if one.__dict__.get("event") == "slot_waits"]


def test_a_first_copy_waits_for_one_and_says_for_which(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    prepare(database, "the night run", "INSERT INTO items VALUES (1, 1)")
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        wait_until(lambda: ["a prepared transaction, 'the night run'"] in told(caplog), "it is named")
        end(database, "COMMIT", "the night run")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert pipeline.rows("items") == [(1, 1)]
