"""What happens at a source while a table of it is copied, once its snapshot is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kuvasz.config.names import object_name
from kuvasz.errors import LakeError
from kuvasz.lake.copies.copied_files import CopiedFiles
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.state.tables import State
from kuvasz.sync import watches
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.tables import copy_snapshot
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def test_a_column_that_comes_while_the_catalog_is_away(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i")
    is_armed, is_down = list[bool](), list[bool]()
    copy, prepare = IcebergLake.copy, IcebergLake.prepare

    def copied(*arguments: object, **options: object) -> object:
        if is_armed:
            is_armed.clear()
            is_down.append(True)
            database.execute("ALTER TABLE items ADD COLUMN c int")
            database.execute("UPDATE items SET c = id")
            raise LakeError("the catalog does not answer")
        return copy(*arguments, **options)

    def prepared(*arguments: object, **options: object) -> object:
        if is_down:
            is_down.clear()
            raise LakeError("the catalog does not answer")
        return prepare(*arguments, **options)

    monkeypatch.setattr(IcebergLake, "copy", copied)
    monkeypatch.setattr(IcebergLake, "prepare", prepared)
    config = lake_folder.config(group({None: database}, {"items": None}), workers=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        is_armed.append(True)
        pipeline.tell("resync", "shop.items", "shop")
        wait_until(lambda: any(one.copies > 1 for one in pipeline.app.states.snapshot()), "it was copied again")
        pipeline.wait_streaming()
        database.execute("UPDATE items SET c = 100 + id WHERE id < 5")
        database.execute("INSERT INTO items VALUES (21, 0, 7)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


SWAP = "ALTER TABLE items RENAME a TO x; ALTER TABLE items RENAME b TO a; ALTER TABLE items RENAME x TO b"
ANEW = "ALTER TABLE items DROP COLUMN a; ALTER TABLE items ADD COLUMN a int"
RENAME = "ALTER TABLE items RENAME TO x; ALTER TABLE others RENAME TO items; ALTER TABLE x RENAME TO others"
COLUMNS = "(id int PRIMARY KEY, a int, b int, t text)"
ROWS = "SELECT i, i, -i, repeat('x', 100) FROM generate_series(1, 2000) i"
PLAIN = f"CREATE TABLE items {COLUMNS}"
ROOT = f"{PLAIN} PARTITION BY RANGE (id); CREATE TABLE leaf PARTITION OF items FOR VALUES FROM (0) TO (9999)"


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something done once, when a copy has read the first of its ranges and not yet the second."""
    done: list[Callable[[], object]] = []
    passed: list[int] = []
    read = CopiedFiles._range

    def counted(*arguments: Any) -> int:
        passed.extend([1] * (arguments[1].table.name != "steady"))
        if len(passed) == 2 and done:
            done.pop()()
        return read(*arguments)

    monkeypatch.setattr(CopiedFiles, "_range", counted)
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", 8 * 8192)
    return done.append


@pytest.mark.parametrize(
    ("table", "change", "kept"),
    [(PLAIN, SWAP, ""), (PLAIN, ANEW, ", NULL::int AS a__old"), (ROOT, SWAP, "")],
    ids=["columns that swap names", "a column that is another one", "a partition"],
)
def test_no_value_is_copied_from_a_column_that_took_a_name_amid_a_copy(
    database: Database, lake_folder: LakeFolder, between: Callable[..., None], table: str, change: str, kept: str
) -> None:
    database.execute(f"{table}; INSERT INTO items {ROWS}")
    between(lambda: database.execute(change))
    config = lake_folder.config(group({None: database}, {"items": None}), workers=1, copy_parallelism=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET b = 7 WHERE id < 5")
        pipeline.wait_applied(database)
        database.execute(f"CREATE VIEW seen AS SELECT *{kept} FROM items")
        pipeline.assert_equal("items", source_rows(database.url, "seen"))


def test_no_row_is_copied_from_a_table_that_took_a_name_amid_a_copy(
    database: Database, lake_folder: LakeFolder, between: Callable[..., None]
) -> None:
    for table in ("items", "others", "steady"):
        database.execute(f"CREATE TABLE {table} {COLUMNS}; INSERT INTO {table} {ROWS}")
    database.execute("UPDATE others SET a = 0, b = 1")
    config = lake_folder.config(
        group({None: database}, {"items": None, "steady": None}), workers=1, copy_parallelism=1
    )
    between(lambda: database.execute(RENAME))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop", "shop.items", State.ERROR)
        ((rows,),) = lake_folder.session.sql(f"SELECT count(*) FROM {lake_folder.catalog}.shop.items").collect()
        assert rows == 0, "neither those of the one nor those of the other"
        (error,) = pipeline.errors()
        assert "this is not the table that was copied" in error
        assert "hint: kuvasz resync --table shop.items" in error
        pipeline.tell("resync", "shop.items", "shop")
        pipeline.wait_streaming()
        pipeline.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.parametrize("copy", ["the first", "another"])
def test_what_comes_as_an_ancestors_amid_a_copy_is_not_lost(
    database: Database, lake_folder: LakeFolder, between: Callable[..., None], copy: str
) -> None:
    """Behind the copy's snapshot no look tells of it; the stream is heard again from there on."""
    for table in ("items", "steady"):
        database.execute(f"CREATE TABLE {table} {COLUMNS}; INSERT INTO {table} {ROWS}")
    database.execute(f"CREATE TABLE root {COLUMNS} PARTITION BY RANGE (id)")
    database.execute("ALTER TABLE root ATTACH PARTITION items FOR VALUES FROM (0) TO (9999)")

    def publish_for_a_while() -> None:
        publication = object_name("shop", None)
        database.execute(f"ALTER PUBLICATION {publication} ADD TABLE root")
        database.execute("UPDATE items SET b = 7 WHERE id % 5 = 0")
        database.execute("DELETE FROM items WHERE id = 3")
        database.execute(f"ALTER PUBLICATION {publication} DROP TABLE root")

    if copy == "the first":
        between(publish_for_a_while)
    config = lake_folder.config(
        group({None: database}, {"steady": None, "items": None}), workers=1, copy_parallelism=1
    )
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        if copy == "another":
            between(publish_for_a_while)
            pipeline.tell("resync", "shop.items", "shop")
            wait_until(lambda: any(one.copies > 1 for one in pipeline.app.states.snapshot()), "it was copied again")
        database.execute("UPDATE steady SET b = 1 WHERE id = 1")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


def test_the_application_goes_on_where_a_table_lost_its_identity_before_its_copy(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its UPDATEs fail while it is published for them, and the copy sees it as it is by then."""
    monkeypatch.setattr(watches, "PATROL_S", 1.0)
    database.execute(f"CREATE TABLE steady {COLUMNS}")
    database.execute("CREATE TABLE items (id int, n int); ALTER TABLE items REPLICA IDENTITY FULL")
    database.execute("INSERT INTO items SELECT i, i FROM generate_series(1, 20) i")
    snapshot, armed = Slot.snapshot, list[bool]()

    def late(*arguments: Any) -> Any:
        if armed:
            armed.pop()
            database.execute("ALTER TABLE items REPLICA IDENTITY DEFAULT")
        return snapshot(*arguments)

    monkeypatch.setattr(Slot, "snapshot", late)
    config = lake_folder.config(group({None: database}, {"items": {"type": "changelog"}, "steady": None}), workers=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        armed.append(True)
        pipeline.tell("resync", "shop.items", "shop")
        wait_until(lambda: not armed, "it is copied again")
        wait_until(lambda: database.takes("UPDATE items SET n = 0 WHERE id = 1"), "UPDATEs go on at the source")
