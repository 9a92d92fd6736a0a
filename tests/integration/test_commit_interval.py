"""`commit_interval` of a table: its changes wait, those of others do not, and nothing is lost over a restart."""

from __future__ import annotations

import pytest

from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def keys(pipeline: Pipeline, table: str) -> list[int]:
    return sorted(key for key, *_ in pipeline.rows(table))


def test_one_table_waits_and_another_does_not(database: Database, lake_folder: LakeFolder) -> None:
    for name in ("slow", "fast"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} VALUES (1)")
    config = lake_folder.config(group({None: database}, {"slow": {"commit_interval": "1d"}, "fast": None}))

    def write(key: int) -> None:
        with database.connect() as session:
            session.execute("INSERT INTO slow VALUES (%s)", (key,))
            session.execute("INSERT INTO fast VALUES (%s)", (key,))

    def wait(table: str, *expected: int) -> None:
        wait_until(lambda: keys(pipeline, table) == list(expected), lambda: f"{table}: {keys(pipeline, table)}")

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        write(2)
        wait("slow", 1, 2)  # after a quiet time a change is on its way at once
        write(3)
        wait("fast", 1, 2, 3)
        assert keys(pipeline, "slow") == [1, 2]
        waiting = pipeline.app.progress.confirmable("shop")
        write(4)
        wait("fast", 1, 2, 3, 4)
        assert pipeline.app.progress.confirmable("shop") == waiting, "the source keeps what waits"
        cut = pipeline.call(pipeline.app.cuts.make("cut-all", ["shop"], 3600.0))
        assert keys(pipeline, "slow") == keys(pipeline, "fast") == [1, 2, 3, 4], "a cut has all of it"
        assert cut.snapshots["shop.slow"] is not None
        write(5)
        wait("fast", 1, 2, 3, 4, 5)
    assert keys(pipeline, "slow") == [1, 2, 3, 4]
    with Pipeline(config, lake_folder) as pipeline:
        wait("slow", 1, 2, 3, 4, 5)
        wait("fast", 1, 2, 3, 4, 5)
