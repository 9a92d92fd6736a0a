"""Partitioned tables of the source: one target, whatever comes and goes below the root."""

from __future__ import annotations

import psycopg
import pytest

from kuvasz.model import TableName
from kuvasz.source import introspect, partitions
from kuvasz.state.tables import State
from kuvasz.sync import source_sync
from tests.fix_lake import LakeFolder, Pipeline, group, wait_until
from tests.fix_postgres import Database
from tests.oracle import source_rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EVENTS = """
CREATE TABLE events (id int, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
INSERT INTO events SELECT i, date '2024-01-01' + i % 60, 0 FROM generate_series(1, 100) i;
"""
FEBRUARY = "FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')"
MARCH = "FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
APRIL = "FOR VALUES FROM ('2024-04-01') TO ('2024-05-01')"
STANDALONE = "CREATE TABLE {} (id int NOT NULL, day date NOT NULL, n int, PRIMARY KEY (id, day))"
ATTACH = f"ALTER TABLE events ATTACH PARTITION p {MARCH}"
FILL = "INSERT INTO p VALUES (1, '2024-03-01')"
KEY = ("id", "day")


def run(database: Database, *statements: str) -> None:
    """In one transaction."""
    with database.connect() as session:
        for statement in statements:
            session.execute(statement)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_sync, "_PARTITIONS_S", 0.1)


def known(pipeline: Pipeline) -> int:
    return len(pipeline.app.lake.parts("shop.events", "shop_eu") or ())


@pytest.mark.parametrize(
    ("steps", "has_rows"),
    [
        (["CREATE TABLE p PARTITION OF events " + MARCH], False),
        (["CREATE TABLE p PARTITION OF events " + MARCH, "INSERT INTO events VALUES (1, '2024-03-01', 1)"], False),
        ([STANDALONE.format("p"), ATTACH, FILL], False),
        ([STANDALONE.format("p"), FILL, ATTACH], True),
        (["ALTER TABLE events DETACH PARTITION events_2",
          f"ALTER TABLE events ATTACH PARTITION events_2 {FEBRUARY}"], True),
        (["CREATE TABLE b (LIKE events) PARTITION BY LIST (n)", "CREATE TABLE p PARTITION OF b DEFAULT",
          "INSERT INTO b VALUES (1, '2024-03-01', 1)", f"ALTER TABLE events ATTACH PARTITION b {MARCH}"], True),
        (["CREATE TABLE b (LIKE events) PARTITION BY LIST (n)", "CREATE TABLE p PARTITION OF b DEFAULT",
          f"ALTER TABLE events ATTACH PARTITION b {MARCH}", "INSERT INTO b VALUES (1, '2024-03-01', 1)"], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_rows_from_before_are_told_from_later_ones(
    database: Database, steps: list[str], has_rows: bool, together: bool
) -> None:
    run(database, EVENTS.replace(", PRIMARY KEY (id, day)", ""))
    with psycopg.connect(database.url, autocommit=True) as session:
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        before = {part.links for part in partitions.load(session, [oid])[oid]}
        assert len(before) == 2
        if together:
            run(database, *steps)
        else:
            for step in steps:
                session.execute(step)
        fresh = [part for part in partitions.load(session, [oid])[oid] if part.links not in before]
        assert len(fresh) == 1
        assert partitions.has_earlier_rows(session, fresh[0]) is has_rows


def test_partitions_come_and_rows_move_between_them(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    run(database, EVENTS)
    with Pipeline(lake_folder.config(group({"eu": database}, {"events": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert known(pipeline) == 2
        run(database, f"CREATE TABLE events_3 PARTITION OF events {MARCH}")
        run(database, "INSERT INTO events SELECT i, date '2024-03-01' + i % 30, 1 FROM generate_series(200, 220) i")
        run(database, "UPDATE events SET day = day + 30, n = n + 1 WHERE id % 3 = 0 AND day < '2024-03-01'")
        run(database, STANDALONE.format("events_4"), f"ALTER TABLE events ATTACH PARTITION events_4 {APRIL}")
        run(database, "UPDATE events SET day = day + 30 WHERE id % 5 = 0 AND day < '2024-04-01'")
        run(database, "DELETE FROM events WHERE id % 7 = 0", "INSERT INTO events_4 VALUES (500, '2024-04-02', 1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=KEY)
        wait_until(lambda: known(pipeline) == 4, "the new partitions are known")
        pipeline.wait_streaming()
        run(database, "TRUNCATE events")
        run(database, "INSERT INTO events VALUES (1, '2024-02-02', 1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=KEY)


def test_rows_of_a_detached_partition_stay(
    database: Database, lake_folder: LakeFolder, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    run(database, EVENTS)
    before = source_rows(database.url, "events", sid="eu")
    with Pipeline(lake_folder.config(group({"eu": database}, {"events": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, "ALTER TABLE events DETACH PARTITION events_2")
        wait_until(lambda: known(pipeline) == 1, "it is noticed")
        run(database, "INSERT INTO events_2 VALUES (1000, '2024-02-02', 5)")  # nobody's any more
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", before, key=KEY)
    assert "a partition left its table" in caplog.text


@pytest.mark.parametrize("is_down", [False, True])
def test_a_partition_attached_with_rows_stops_the_table(
    database: Database, lake_folder: LakeFolder, quick: None, is_down: bool
) -> None:
    run(database, EVENTS, "CREATE TABLE other (id int PRIMARY KEY)")
    config = lake_folder.config(group({"eu": database}, {"events": None, "other": None}))
    attach = (STANDALONE.format("events_3"), "INSERT INTO events_3 VALUES (300, '2024-03-03', 3)",
              f"ALTER TABLE events ATTACH PARTITION events_3 {MARCH}")  # fmt: skip
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        if not is_down:
            run(database, *attach)
            pipeline.wait_state("shop_eu", "shop.events", State.ERROR)
            assert "public.events_3 was attached with rows" in pipeline.errors()[0]
            pipeline.tell("retry", "shop.events", "shop_eu")
            pipeline.wait_state("shop_eu", "shop.events", State.ERROR)
    if is_down:
        run(database, *attach)
    for _ in range(2):  # the second start must not have forgotten
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state("shop_eu", "shop.events", State.ERROR)
            pipeline.wait_state("shop_eu", "shop.other", State.STREAMING)
            (error,) = pipeline.errors()
            assert "source shop_eu, table public.events: partition public.events_3 was attached with rows" in error
            assert "kuvasz resync --table shop.events" in error
