"""A job that ends when all is there: what it waits for, and what it says of what is not."""

from __future__ import annotations

import logging

import pytest

from kuvasz import failpoints
from kuvasz.errors import ChangesLost, SchemaError
from kuvasz.lake.commit import lanes
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import lake_rows_pyiceberg, source_rows
from tests.support.partitioned import EVENTS, run
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("items", "others")


def fill(database: Database) -> None:
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 100) i")


def test_a_table_that_is_tried_again_is_waited_for(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its catalog does not answer for a moment, and the changes of the other one are there by then."""
    fill(database)
    config = lake_folder.config(group({None: database}, dict.fromkeys(TABLES)))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    for table in TABLES:
        database.execute(f"UPDATE {table} SET n = 1")
    monkeypatch.setattr(lanes, "BOUND_S", 0.5)
    monkeypatch.setattr("kuvasz.failpoints._armed", failpoints._parse("before_commit:sleep=6"))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
        assert [record for record in caplog.records if getattr(record, "event", "") == "table_failed"]
        for table in TABLES:
            job.assert_equal(table, source_rows(database.url, table))


def test_a_table_that_waits_for_a_person_is_told_by_the_exit_code(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fill(database)
    config = lake_folder.config(group({None: database}, dict.fromkeys(TABLES)))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    database.execute("UPDATE items SET n = 1")
    database.execute("ALTER TABLE items DROP CONSTRAINT items_pkey; DELETE FROM others WHERE id < 10")
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == SchemaError("").exit_code
        job.assert_equal("others", source_rows(database.url, "others"))
    assert "caught_up" in {getattr(record, "event", "") for record in caplog.records}


@pytest.mark.parametrize("kind", ["history", "changelog"])
def test_what_becomes_of_partitions_while_nobody_looks_is_waited_for(
    database: Database, lake_folder: LakeFolder, kind: str
) -> None:
    """No stream has the TRUNCATE of a partition alone, and a job may end before any look behind its start."""
    run(database, EVENTS)
    config = lake_folder.config(group({"eu": database}, {"events": {"type": kind}}))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    database.execute("TRUNCATE events_2")
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == (0 if kind == "history" else ChangesLost("").exit_code)
        if kind == "history":
            seen = lake_rows_pyiceberg(lake_folder.pyiceberg, "shop.events", catalog=lake_folder.catalog)
            is_open = seen.columns.index("kvsz_deleted")
            left = [row for row in seen.rows.elements() if not row[is_open]]
            assert len(left) == database.execute("SELECT count(*) FROM events")[0][0]
