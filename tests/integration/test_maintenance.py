"""Maintenance beside a stream: few files, few snapshots, and the source's rows all the time."""

from __future__ import annotations

import pytest

from tests.fix_lake import LakeFolder, Pipeline, group, wait_until
from tests.fix_postgres import Database
from tests.oracle import source_rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, name text)"

#: Everything all the time.
EAGER = {"interval": "100ms", "min_files": 2, "max_dead_percent": 10, "target_file_size": "64kB",
         "snapshot_age": "1s", "snapshots_kept": 3}  # fmt: skip


def test_a_table_stays_in_shape_while_its_stream_goes_on(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, 2000) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}), EAGER)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(40):
            database.execute("UPDATE items SET n = n + 1 WHERE id %% 7 = %s", (number % 7,))
            database.execute("INSERT INTO items VALUES (%s, 1, 'new')", (3000 + number,))
            database.execute("DELETE FROM items WHERE id = %s", (number * 3,))
            pipeline.wait_applied(database)
        wait_until(lambda: _upkeep(pipeline).rewrites >= 3, "files were merged")
        wait_until(lambda: pipeline.snapshots("items") <= 4, "snapshots were expired")
        wait_until(lambda: _upkeep(pipeline).files <= 4, "there are few files")
        database.execute("UPDATE items SET n = -1, id = id + 10000 WHERE id < 500")
        pipeline.wait_applied(database)
        assert pipeline.app.lake.commit_conflicts == 0
        assert _upkeep(pipeline).error is None
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = n + 1 WHERE id % 5 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def _upkeep(pipeline: Pipeline):
    return pipeline.app.lake.upkeep().get("shop.items") or _Unseen()


class _Unseen:
    rewrites, files, error = 0, 1 << 30, None
