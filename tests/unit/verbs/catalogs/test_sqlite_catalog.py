"""The catalog of a folder, read without PyIceberg: as PyIceberg reads it, or not at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from kuvasz.config.model import LakeConfig
from kuvasz.verbs.catalogs import pyiceberg_catalog
from kuvasz.verbs.catalogs.sqlite_catalog import SqliteCatalog, Unusual
from kuvasz.verbs.catalogs.table_facts import of_table
from tests.support.lake_table import schema

#: Of each kind that a table of kuvasz may have, but for a uuid: PyIceberg makes none of an Arrow schema.
ROWS = schema(
    (1, "id", "long"), (2, "n", "int"), (3, "t", "boolean"), (4, "x", "double"), (5, "f", "float"), (6, "d", "date"),
    (7, "at", "timestamptz"), (8, "here", "timestamp"), (9, "b", "binary"), (10, "price", "decimal(10, 2)"),
    (11, "tags", {"type": "list", "element-id": 20, "element": "string", "element-required": False}),
    (12, "more", {"type": "map", "key-id": 21, "key": "string", "value-id": 22, "value": "string",
                  "value-required": False}),
).arrow()  # fmt: skip


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = LakeConfig(uri=f"jdbc:sqlite:{folder}/cata log#1.db", warehouse=str(folder / "wh"))
        options = pyiceberg_catalog.catalog_properties(self.lake) | {"init_catalog_tables": "true"}
        self.catalog = SqlCatalog(self.lake.name, **options)
        self.catalog.create_namespace("shop.eu")

    @property
    def light(self) -> SqliteCatalog:
        file = self.lake.sqlite_file
        assert file is not None
        return SqliteCatalog(file, self.lake.name, self.lake.properties)

    def make(self, rows: pa.Schema = ROWS, **properties: str) -> Table:
        return self.catalog.create_table("shop.eu.items", rows, properties={"format-version": "2", **properties})

    def rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Have a table's metadata say something else."""
        file = Path(self.catalog.load_table("shop.eu.items").metadata_location.removeprefix("file://"))
        told = json.loads(file.read_text())
        change(told)
        file.write_text(json.dumps(told))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_table_is_read_as_pyiceberg_reads_it(world: World) -> None:
    table = world.make(**{"kuvasz.a": "ä", "b": ""})
    assert world.light.table("shop.eu.items") == of_table(table)
    for _ in range(2):
        table.append(table.schema().as_arrow().empty_table(), {"kuvasz.position.eu": "here"})
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "cut_1").commit()
    table.manage_snapshots().create_branch(table.metadata.snapshots[0].snapshot_id, "audit").commit()
    found = world.light.table("shop.eu.items")
    assert found == of_table(world.catalog.load_table("shop.eu.items"))
    assert found is not None
    assert (len(found.snapshots), set(found.branches)) == (2, {"main", "cut_1", "audit"})
    with table.update_schema() as update:
        update.delete_column("n")
        update.rename_column("x", "y")
    assert world.light.table("shop.eu.items") == of_table(world.catalog.load_table("shop.eu.items"))


def test_what_is_not_there_is_none(world: World) -> None:
    world.make()
    for name in ("shop.eu.orders", "shop.items", "items"):
        assert world.light.table(name) is None
    assert SqliteCatalog(world.folder / "cata log#1.db", "another", {}).table("shop.eu.items") is None


def test_a_newest_snapshot_of_minus_one_is_none(world: World) -> None:
    world.make()
    world.rewrite(lambda told: told.update({"current-snapshot-id": -1}))
    found = world.light.table("shop.eu.items")
    assert found is not None
    assert found.current_id is None


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update({"format-version": 1}),
        lambda told: told.update({"current-schema-id": 7}),
        lambda told: told["schemas"][0]["fields"][0].update({"type": "variant"}),
        lambda told: told.pop("schemas"),
        lambda told: told.update({"refs": {"main": {}}}),
        lambda told: told.update({"snapshots": [{"snapshot-id": 1}]}),
    ],
    ids=["format", "schema", "type", "no schemas", "refs", "snapshots"],
)
def test_what_is_not_as_usual_is_left_to_pyiceberg(world: World, change: Callable[[dict[str, Any]], None]) -> None:
    world.make()
    world.rewrite(change)
    with pytest.raises(Unusual):
        world.light.table("shop.eu.items")


@pytest.mark.parametrize("text", [None, b"", b"\x1f\x8b\x08 no JSON", b"[]", b"1"])
def test_a_file_that_cannot_be_read_is_left_to_pyiceberg(world: World, text: bytes | None) -> None:
    file = Path(world.make().metadata_location.removeprefix("file://"))
    file.unlink() if text is None else file.write_bytes(text)
    with pytest.raises(Unusual):
        world.light.table("shop.eu.items")


def test_another_store_is_left_to_pyiceberg(world: World) -> None:
    world.make()
    with pytest.raises(Unusual):
        SqliteCatalog(world.folder / "cata log#1.db", world.lake.name, {"py-io-impl": "a.B"}).table("shop.eu.items")
    for place in ("s3://lake/items/metadata/1.metadata.json", None, ""):
        with sqlite3.connect(world.folder / "cata log#1.db") as connection:
            connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (place,))
        connection.close()
        with pytest.raises(Unusual):
            world.light.table("shop.eu.items")


def test_whether_a_start_makes_its_tables_is_told_from_a_broken_file(world: World, tmp_path: Path) -> None:
    assert world.light.has_tables()
    (tmp_path / "empty.db").touch()
    assert not SqliteCatalog(tmp_path / "empty.db", "lake", {}).has_tables()
    assert SqliteCatalog(tmp_path / "empty.db", "lake", {}).table("shop.eu.items") is None
    with pytest.raises(sqlite3.Error, match="unable to open"):
        SqliteCatalog(tmp_path / "none.db", "lake", {}).has_tables()
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "broken.db").write_text("not a database, and longer than a header of one would be " * 9)
    with pytest.raises(sqlite3.Error, match="file is not a database"):
        SqliteCatalog(tmp_path / "broken.db", "lake", {}).has_tables()
    with sqlite3.connect(tmp_path / "other.db") as connection:
        for name in ("iceberg_tables", "iceberg_namespace_properties"):
            connection.execute(f"CREATE TABLE {name} (something int)")
    connection.close()
    with pytest.raises(sqlite3.Error, match="no such column"):
        SqliteCatalog(tmp_path / "other.db", "lake", {}).has_tables()
