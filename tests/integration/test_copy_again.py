"""A column that comes while a copy is tried again and the catalog is away."""

from __future__ import annotations

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.iceberg import IcebergLake
from tests.fix_lake import LakeFolder, Pipeline, group, wait_until
from tests.fix_postgres import Database
from tests.oracle import source_rows

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
