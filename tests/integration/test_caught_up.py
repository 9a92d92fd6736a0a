"""A job that ends when all is there: what it waits for, and what it says of what is not."""

from __future__ import annotations

import logging

import pytest

from kuvasz import failpoints
from kuvasz.config.names import object_name
from kuvasz.errors import ChangesLost, SchemaError
from kuvasz.lake.commit import lanes
from kuvasz.sync import watches
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


PARTITION = "CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
MARCH = "INSERT INTO events SELECT i, date '2024-03-01', 0 FROM generate_series(1, 20) i"


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param("history", ["TRUNCATE events_2"], marks=pytest.mark.slow),
        ("changelog", ["TRUNCATE events_2"]),
        ("clone", [PARTITION, MARCH, "DROP TABLE events_3"]),
    ],
    ids=["history", "changelog", "a partition that came and went"],
)
def test_what_becomes_of_partitions_while_nobody_looks_is_waited_for(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, kind: str, steps: list[str]
) -> None:
    """No stream has the TRUNCATE or DROP of a partition alone, and a job may end before a look behind its start."""
    monkeypatch.setattr(watches, "_PARTITIONS_S", 2.0)  # a job without doubts ends before that
    run(database, EVENTS)
    config = lake_folder.config(group({"eu": database}, {"events": {"type": kind}}))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    for step in steps:
        database.execute(step)
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == (ChangesLost("").exit_code if kind == "changelog" else 0)
        if kind == "clone":
            job.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=("id", "day"))
        if kind == "history":
            seen = lake_rows_pyiceberg(lake_folder.pyiceberg, "shop.events", catalog=lake_folder.catalog)
            is_open = seen.columns.index("kvsz_deleted")
            left = [row for row in seen.rows.elements() if not row[is_open]]
            assert len(left) == database.execute("SELECT count(*) FROM events")[0][0]


def test_what_was_written_without_wal_between_two_jobs_is_mended_or_told(
    database: Database, lake_folder: LakeFolder
) -> None:
    """Another file is all that tells of it, and a job may end before the patrol looks at files."""
    database.execute(f"CREATE PUBLICATION {object_name('shop', 'eu')} FOR ALL TABLES")
    kinds = ("clone", "history", "append", "changelog")
    for table in (*kinds, "keyless"):
        key = "" if table == "keyless" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {table} (id bigint {key}, n int)")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 100) i")
    database.execute("ALTER TABLE keyless REPLICA IDENTITY FULL")
    tables = {kind: {"type": kind} for kind in kinds} | {"keyless": {}}
    config = lake_folder.config(group({"eu": database}, tables))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    for table in tables:
        database.execute(f"ALTER TABLE {table} SET UNLOGGED")
        database.execute(f"UPDATE {table} SET n = 7 WHERE id % 5 = 0")
        database.execute(f"ALTER TABLE {table} SET LOGGED")
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == ChangesLost("").exit_code
        assert {f"shop.{table}" for table in ("append", "changelog")} == {
            state.target for state in job.app.states.snapshot() if isinstance(state.error, ChangesLost)
        }
        for table in ("clone", "keyless"):
            job.assert_equal(table, source_rows(database.url, table, sid="eu"))
        now = [row for row in job.rows("history") if row[3].year == 9999]
        assert sorted(row[:2] for row in now) == sorted(database.execute("SELECT * FROM history"))


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
def test_rows_written_under_another_name_of_a_label_show_what_their_source_does(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream has the names of its time, and the catalog shows at both starts the same ones."""
    caplog.set_level(logging.INFO)
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    for table in ("items", "history"):
        database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, m mood)")
        database.execute(f"INSERT INTO {table} SELECT i, 'sad' FROM generate_series(1, 10) i")
    config = lake_folder.config(group({"eu": database}, {"items": {}, "history": {"type": "history"}}))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    for table in ("items", "history"):
        database.execute(f"INSERT INTO {table} VALUES (11, 'blue')")
    database.execute("ALTER TYPE mood RENAME VALUE 'blue' TO 'sad'")
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
        job.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    told = [record.__dict__["what"] for record in caplog.records if record.__dict__.get("event") == "schema_changed"]
    assert [what for what in told if what.startswith("versions that are open show what they showed")]


def test_rows_of_partitions_that_were_kept_go_once_the_map_says_so_no_more(
    database: Database, lake_folder: LakeFolder
) -> None:
    run(database, EVENTS)
    whole = source_rows(database.url, "events", sid="eu")
    keeping, plain = (
        lake_folder.config(group({"eu": database}, {"events": options}))
        for options in ({"partition_removed": "keep"}, {})
    )
    with Pipeline(keeping, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    database.execute("DROP TABLE events_2")
    with Pipeline(keeping, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
        job.assert_equal("events", whole, key=("id", "day"))
    for _ in range(2):
        with Pipeline(plain, lake_folder, until_caught_up=True) as job:
            assert job.ended() == 0
            job.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=("id", "day"))


@pytest.mark.parametrize(
    "change", [pytest.param("UPDATE events SET id = id + 1000", marks=pytest.mark.slow), "DELETE FROM events"]
)
def test_a_partition_that_told_its_rows_by_other_columns_for_a_while(
    database: Database, lake_folder: LakeFolder, change: str
) -> None:
    run(database, EVENTS, "UPDATE events SET n = id", "CREATE UNIQUE INDEX by_n ON events_1 (n)",
        "ALTER TABLE events_1 ALTER n SET NOT NULL")  # fmt: skip
    config = lake_folder.config(group({"eu": database}, {"events": {}}))
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    for step in ("ALTER TABLE events_1 REPLICA IDENTITY USING INDEX by_n", f"{change} WHERE n % 10 = 3",
                 "ALTER TABLE events_1 REPLICA IDENTITY DEFAULT"):  # fmt: skip
        database.execute(step)
    with Pipeline(config, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
        job.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=("id", "day"))
