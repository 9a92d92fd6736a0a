"""What the map says of a table beside its rows: where it lies, its properties, and whether it is taken at all."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pyarrow.parquet as pq
import pytest

from kuvasz.config.model import Config
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

CODEC, LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"


def codecs(lake: LakeFolder, table: str) -> set[str]:
    """The codecs of the files that a table has now, which all lie below its location."""
    found = set()
    opened: Any = oracle.open_table(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog)
    for task in opened.scan().plan_files():
        assert task.file.file_path.startswith(f"{opened.location()}/")
        metadata = pq.read_metadata(urllib.parse.urlparse(task.file.file_path).path)
        found.add(metadata.row_group(0).column(0).compression)
    return found


def test_a_table_lies_where_it_is_told_with_properties_of_its_own(
    database: Database, lake_folder: LakeFolder, tmp_path: Any
) -> None:
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
        database.execute(f"INSERT INTO {table} SELECT i, repeat('x', 50) FROM generate_series(1, 100) i")

    def config(**items: Any) -> Config:
        return lake_folder.config(group({None: database}, {"items": items, "others": None}))

    place = str(tmp_path / "elsewhere" / "items")
    before = {"location": place, "properties": {"owner": "ann", CODEC: "gzip"}}
    with Pipeline(config(**before), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET name = 'y' WHERE id < 10")
        pipeline.wait_applied(database)
        opened: Any = oracle.open_table(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
        assert opened.location() == f"file://{place}"
        assert (opened.properties["owner"], opened.properties[CODEC]) == ("ann", "gzip")
        assert (codecs(lake_folder, "items"), codecs(lake_folder, "others")) == ({"GZIP"}, {"ZSTD"})
    after = {"location": place, "properties": {"owner": "bob", CODEC: "zstd", LEVEL: "9"}}
    with Pipeline(config(**after), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET name = 'z' WHERE id > 90")
        pipeline.wait_applied(database)
        opened = oracle.open_table(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
        assert (opened.properties["owner"], opened.properties[LEVEL]) == ("bob", "9")
        assert codecs(lake_folder, "items") == {"GZIP", "ZSTD"}
        pipeline.assert_equal("items", source_rows(database.url, "items"))
    with Pipeline(config(**after, enabled=False), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert {target for _, target in pipeline.states()} == {"shop.others"}
        database.execute("DELETE FROM items WHERE id <= 50")
        database.execute("INSERT INTO others VALUES (1000, 'new')")
        pipeline.wait_applied(database)
        pipeline.assert_equal("others", source_rows(database.url, "others"))
    with Pipeline(config(**after), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))
