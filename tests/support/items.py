"""A source that goes through everything a table type has to tell apart, and the comparison at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kuvasz.config.model import Config
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.postgres import Database

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, name text, body text)"
KEYS = {"items": ("id",)}
BIG = "repeat('x', 2200)"


def make_items(database: Database, rows: int = 20) -> Observer:
    """Create items, whose bodies are large and stored out of line, and fill it."""
    database.execute(ITEMS)
    database.execute("ALTER TABLE items ALTER body SET STORAGE EXTERNAL")
    observer = Observer(database, KEYS)
    database.execute(f"INSERT INTO items SELECT i, 0, 'item ' || i, {BIG} || i FROM generate_series(1, {rows}) i")
    return observer


def churn(database: Database) -> None:
    """Change items in every way, in small and in large transactions."""
    database.execute("UPDATE items SET n = n + 1 WHERE id <= 10")
    database.execute("UPDATE items SET body = 'short' WHERE id = 3")
    database.execute("DELETE FROM items WHERE id IN (4, 5)")
    with database.connect() as session:
        session.execute("UPDATE items SET n = 10 WHERE id = 1")
        session.execute("UPDATE items SET n = 11, name = NULL WHERE id = 1")
        session.execute("INSERT INTO items VALUES (100, 1, 'short lived', 'b')")
        session.execute("DELETE FROM items WHERE id = 100")
        session.execute("DELETE FROM items WHERE id = 6")
        session.execute("INSERT INTO items VALUES (6, 66, 'again', 'b6')")
        session.execute("UPDATE items SET id = 200 WHERE id = 7 AND NOT EXISTS (SELECT FROM items WHERE id = 200)")
        session.execute("UPDATE items SET id = 7 WHERE id = 8 AND NOT EXISTS (SELECT FROM items WHERE id = 7)")
        session.execute("UPDATE items SET n = n + 1 WHERE id IN (7, 200)")
    database.execute("INSERT INTO items VALUES (4, 4, 'back', 'b4')")
    database.execute("UPDATE items SET id = id + 1000 WHERE id BETWEEN 11 AND 13")
    database.execute("UPDATE items SET n = n + 1")


def truncate(database: Database) -> None:
    """TRUNCATE alone, and in the middle of a transaction."""
    database.execute("TRUNCATE items")
    database.execute(f"INSERT INTO items SELECT i, 5, 'new', {BIG} || i FROM generate_series(1, 8) i")
    database.execute("UPDATE items SET n = 6 WHERE id < 4")
    with database.connect() as session:
        session.execute("INSERT INTO items VALUES (300, 1, 'gone at once', 'b')")
        session.execute("UPDATE items SET n = 7 WHERE id = 5")
        session.execute("TRUNCATE items")
        session.execute("INSERT INTO items VALUES (2, 2, 'after', 'b2'), (3, 3, 'after', 'b3')")
        session.execute("UPDATE items SET n = 33 WHERE id = 3")
    database.execute("UPDATE items SET n = n + 1")


def copied_lsn(pipeline: Pipeline, source: str = "shop_eu", target: str = "items") -> int:
    """Where the copy of a table that has not moved on stands."""
    return pipeline.app.lake.positions(f"shop.{target}")[source].lsn


class Items:
    """Items of one source that are followed as one table type, and the model of what the lake must hold.

    Args:
        database: The source, without tables.
        lake: Where they go.
        table_type: Of the map, `options` of the table with it.
        maintenance: The map's section; `pipeline` has options of that one.
        identity: The table's replica identity.
    """

    def __init__(
        self, database: Database, lake: LakeFolder, table_type: str, *, sid: str | None = "eu",
        options: Mapping[str, object] | None = None, maintenance: Mapping[str, object] | None = None,
        identity: str = "DEFAULT", **pipeline: Any,
    ) -> None:  # fmt: skip
        self.database, self.lake, self.sid = database, lake, sid
        self.observer = make_items(database)
        database.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")
        self._type, self._is_full = table_type, identity == "FULL"
        tables = {"items": {"type": table_type, **(options or {})}}
        self.config = lake.config(group({sid: database}, tables), maintenance, **pipeline)
        self._copied_lsn = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Pipeline]:
        """A kuvasz that follows."""
        with Pipeline(self.config, self.lake) as pipeline:
            pipeline.wait_streaming()
            self._copied_lsn = self._copied_lsn or copied_lsn(pipeline, f"shop_{self.sid}" if self.sid else "shop")
            yield pipeline

    def check(self, pipeline: Pipeline) -> None:
        """All that was committed is in the lake, as the model has it."""
        pipeline.wait_applied(self.database)
        expected = self.observer.expected("items", self._type, self._copied_lsn, sid=self.sid, is_full=self._is_full)
        assert_holds(pipeline, expected)


def with_type(lake: LakeFolder, databases: dict[str | None, Database], table_type: str, **pipeline: Any) -> Config:
    """The configuration of items with a table type."""
    return lake.config(group(databases, {"items": {"type": table_type}}), **pipeline)


def assert_holds(pipeline: Pipeline, expected: oracle.Rows, *more: oracle.Rows, target: str = "items") -> None:
    """The lake's table, read by Spark, PyIceberg and DuckDB, holds these rows."""
    pipeline.assert_equal(target, expected, *more, key=("id",))
