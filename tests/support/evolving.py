"""A source table of a few columns whose schema changes while it streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, name text, price numeric(8,2), ratio real)"
ROWS = "INSERT INTO items SELECT i, i, 'item ' || i, i * 1.25, i / 7.0 FROM generate_series({}, {}) i"


def start(database: Database, lake_folder: LakeFolder, **options: object) -> Pipeline:
    database.execute(ITEMS)
    database.execute(ROWS.format(1, 200))
    return Pipeline(lake_folder.config(group({"eu": database}, {"items": options or None})), lake_folder)


def assert_same(
    pipeline: Pipeline,
    *databases: Database,
    table: str = "items",
    key: tuple[str, ...] = ("id",),
    columns: dict[str, str] | None = None,
    target: str | None = None,
) -> None:
    """Every reader shows the columns that the source has with the source's values.

    Args:
        pipeline: What replicates.
        databases: The sources, as eu and us.
        table: The name of the table.
        key: Its key.
        columns: Column of the source -> its name in the lake, where that is another one.
        target: The name in the lake, where that is another one.
    """
    expected = [oracle.source_rows(one.url, table, sid=sid, rename=columns) for one, sid in zip(
        databases, ("eu", "us"), strict=False)]  # fmt: skip
    total = expected[0]
    for more in expected[1:]:
        total = total + more
    lake, name = pipeline.folder, f"shop.{target or table}"
    wanted = list(total.columns)
    quoted = [f"`{column}`" for column in wanted]
    for rows in (
        oracle.lake_rows_pyiceberg(lake.pyiceberg, name, wanted, catalog=lake.catalog),
        oracle.lake_rows_spark(lake.session, f"{lake.catalog}.shop.`{target or table}`", quoted),
        oracle.lake_rows_duckdb(lake.pyiceberg, name, wanted, catalog=lake.catalog),
    ):
        oracle.assert_equal(total, rows, key=key)


def fields(pipeline: Pipeline, table: str = "items") -> dict[str, str]:
    """Name -> Iceberg type of the lake table's columns."""
    opened = oracle.open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    return {field.name: str(field.field_type) for field in opened.schema().fields}


@pytest.fixture
def copied() -> Iterator[list[str]]:
    """The tables that were copied, in order, first copies included."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "event", "") == "copied":
                found.append(vars(record)["table"])

    log, handler = logging.getLogger("kuvasz.sync.tables.copies"), Handler(logging.INFO)
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)


def change(database: Database, *statements: str) -> None:
    """Run statements in transactions of their own, and row changes around them."""
    database.execute("UPDATE items SET id = id + 1000000 WHERE id % 17 = 0 AND id < 1000000")
    for statement in statements:
        database.execute(statement)
    database.execute("UPDATE items SET ratio = 0.5 WHERE id % 5 = 0")
    database.execute("INSERT INTO items (id) SELECT max(id) + 1 FROM items")
    database.execute("DELETE FROM items WHERE id IN (SELECT min(id) FROM items)")
