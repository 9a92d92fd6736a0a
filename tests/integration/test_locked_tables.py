"""A table that somebody has locked for long, as VACUUM FULL does, keeps no other one of its source from anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kuvasz.source import conninfo
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU = "shop_eu"


@pytest.fixture(params=[pytest.param(16, marks=pytest.mark.slow), 18])
def source(request: pytest.FixtureRequest) -> Iterator[Database]:
    made = create_database(request.getfixturevalue(f"postgres{request.param}"))
    for table in ("items", "others"):
        made.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        made.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 9) i")
    yield made
    drop_database(made)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait for locks and before the next attempt no longer than it takes to see it."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 1.0)
    monkeypatch.setattr(conninfo, "LOCK_WAIT", "SET LOCAL lock_timeout = '200ms'")
    monkeypatch.setitem(conninfo.MANNERS, "lock_timeout", "1s")


def pipeline_of(lake: LakeFolder, source: Database, *tables: str) -> Pipeline:
    return Pipeline(lake.config(group({"eu": source}, dict.fromkeys(tables))), lake)


def rows_of(source: Database, table: str) -> oracle.Rows:
    return oracle.source_rows(source.url, table, sid="eu")


def has(lake: LakeFolder, table: str, expected: oracle.Rows) -> bool:
    """Whether the lake has these rows, with these columns."""
    found = oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog)
    return set(expected.columns) <= set(found.columns) and found.select(expected.columns).rows == expected.rows


def assert_same(pipeline: Pipeline, source: Database, *tables: str) -> None:
    pipeline.wait_streaming()
    pipeline.wait_applied(source)
    for table in tables:
        pipeline.assert_equal(table, rows_of(source, table))


def wait_until_it_stops_alone(pipeline: Pipeline, source: Database, locked: str) -> None:
    """Wait until a table is in error, and a row of another one comes."""
    pipeline.wait_state(EU, "shop.items", State.STREAMING)
    pipeline.wait_state(EU, f"shop.{locked}", State.ERROR)
    source.execute("INSERT INTO items VALUES (10, 1)")
    wait_until(lambda: len(pipeline.rows("items")) == 10, "the other one's row is there")


@pytest.mark.slow
def test_all_tables_stream_and_are_looked_at_while_one_is_locked(source: Database, lake_folder: LakeFolder) -> None:
    with pipeline_of(lake_folder, source, "items", "others") as pipeline:
        assert_same(pipeline, source, "items", "others")
    source.execute("UPDATE others SET n = 1")
    before = rows_of(source, "others")
    with source.connect() as session:
        session.execute("LOCK TABLE others IN ACCESS EXCLUSIVE MODE")
        with pipeline_of(lake_folder, source, "items", "others") as pipeline:
            pipeline.wait_streaming()
            source.execute("INSERT INTO items VALUES (10, 1)")
            for table, rows in (("items", rows_of(source, "items")), ("others", before)):
                wait_until(lambda t=table, r=rows: has(lake_folder, t, r), f"{table} has its changes")
            source.execute("ALTER TABLE items ADD noted int DEFAULT 7")
            rows = rows_of(source, "items")
            wait_until(lambda: has(lake_folder, "items", rows), "the patrol has seen what no row tells")
            assert pipeline.errors() == []
            session.execute("UPDATE others SET n = 2 WHERE id < 5")
            session.execute("ALTER TABLE others ADD extra text")
            session.execute("INSERT INTO others VALUES (11, 3, 'new')")
            session.commit()
            assert_same(pipeline, source, "items", "others")


def test_a_new_table_that_is_locked_says_so_and_is_taken_up_later(source: Database, lake_folder: LakeFolder) -> None:
    with pipeline_of(lake_folder, source, "items") as pipeline:
        assert_same(pipeline, source, "items")
    with source.connect() as session:
        session.execute("LOCK TABLE others IN ACCESS EXCLUSIVE MODE")
        with pipeline_of(lake_folder, source, "items", "others") as pipeline:
            wait_until_it_stops_alone(pipeline, source, "others")
            told = (
                f"source {EU}: table public.others is locked by another session, so publication kuvasz_{EU} cannot"
                " have it yet\nhint: see pg_locks for who that is; it is tried again by itself"
            )
            wait_until(lambda: pipeline.errors() == [told], lambda: f"it says so: {pipeline.errors()}")
            session.rollback()
            pipeline.wait_streaming()
            source.execute("UPDATE others SET n = 4")
            assert_same(pipeline, source, "items", "others")


def test_a_new_partition_that_is_locked_keeps_its_table_alone(source: Database, lake_folder: LakeFolder) -> None:
    source.execute("CREATE TABLE events (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
    source.execute("CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10)")
    source.execute("INSERT INTO events SELECT i, 0 FROM generate_series(1, 9) i")
    with pipeline_of(lake_folder, source, "items", "events") as pipeline:
        assert_same(pipeline, source, "items", "events")
    source.execute("CREATE TABLE events_2 (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO events_2 SELECT i, 0 FROM generate_series(10, 19) i")
    source.execute("ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES FROM (10) TO (20)")
    with source.connect() as session:
        session.execute("LOCK TABLE events_2 IN ACCESS EXCLUSIVE MODE")
        with pipeline_of(lake_folder, source, "items", "events") as pipeline:
            wait_until_it_stops_alone(pipeline, source, "events")
            told = "cannot look into partition public.events_2: canceling statement due to lock timeout"
            wait_until(lambda: told in "".join(pipeline.errors()), lambda: f"it says so: {pipeline.errors()}")
            session.rollback()
            assert_same(pipeline, source, "items", "events")
