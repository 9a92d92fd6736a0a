"""A partitioned table at a source, and whether the lake has what it has."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from tests.support.lake import Pipeline
from tests.support.oracle import lake_rows_seen, source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

EVENTS = """
CREATE TABLE events (id int, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
INSERT INTO events SELECT i, date '2024-01-01' + i % 60, 0 FROM generate_series(1, 100) i;
"""
MARCH = "FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
STANDALONE = "CREATE TABLE {} (id int NOT NULL, day date NOT NULL, n int, PRIMARY KEY (id, day))"
ATTACH = f"ALTER TABLE events ATTACH PARTITION p {MARCH}"


def run(database: Database, *statements: str) -> None:
    """In one transaction."""
    with database.connect() as session:
        for statement in statements:
            session.execute(statement)


def is_equal(pipeline: Pipeline, database: Database, table: str) -> bool:
    expected = source_rows(database.url, table, sid="eu").select(["id", "day", "n"])
    return sorted(pipeline.rows(table)) == sorted(expected.rows.elements())


def _is_seen_equal(pipeline: Pipeline, database: Database, table: str) -> bool:
    folder = pipeline.folder
    seen = lake_rows_seen(folder.pyiceberg, f"shop.{table}", catalog=folder.catalog)
    expected = source_rows(database.url, table, sid="eu")
    return (
        seen.select([name for name in seen.columns if name != "sid"]).rows == expected.select(["id", "day", "n"]).rows
    )


def wait_equal(pipeline: Pipeline, database: Database, tables: Iterable[str]) -> None:
    for table in tables:
        wait_until(functools.partial(_is_seen_equal, pipeline, database, table), f"{table} is as its source")
    pipeline.wait_streaming()
    pipeline.wait_applied(database)
    assert [table for table in tables if not is_equal(pipeline, database, table)] == []
