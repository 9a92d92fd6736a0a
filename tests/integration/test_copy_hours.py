"""`copy`: hours and rates of first copies, changed while kuvasz runs; the stream goes on whatever they say."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.state.tables import State, TableState
from kuvasz.sync import rejoin
from kuvasz.sync.rules import copy_plan
from kuvasz.sync.tables import copy_snapshot
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.two_tables import confirmed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

PAGE = 8192


def hours(begin_h: int) -> str:
    """An hour of the day that begins so many hours from now."""
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now + datetime.timedelta(hours=begin_h + more) for more in (0, 2))
    return f"{begin:%H:%M}-{end:%H:%M}"


class World:
    """A running kuvasz whose map says what copies may take."""

    def __init__(self, folder: LakeFolder, database: Database) -> None:
        self.folder, self._group = folder, group({None: database}, {"items": None, "large": None})
        folder.config(self._group)
        self._document = json.loads((folder.folder / "map.yaml").read_text())

    def config(self, **copy: Any) -> Any:
        file = self.folder.folder / "map.yaml"
        file.write_text(json.dumps(self._document | {"copy": copy}))
        return load(file, {}).config

    def reload(self, pipeline: Pipeline, **copy: Any) -> None:
        async def take_over() -> None:
            found = pipeline.app.difference(self.config(**copy))
            assert found.is_empty
            assert not found.held
            pipeline.app.take_over(found)

        pipeline.call(take_over())
        wait_until(lambda: not pipeline.app._sources.is_changing, "the map is in use")


def table_of(pipeline: Pipeline, name: str) -> TableState:
    (found,) = [one for one in pipeline.app.states.snapshot() if one.target == f"shop.{name}"]
    return found


def large(pipeline: Pipeline) -> TableState:
    return table_of(pipeline, "large")


def test_a_large_table_is_copied_in_its_hours_and_all_else_streams(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_plan, "LARGE_BYTES", 10 * PAGE)
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", 10 * PAGE)
    monkeypatch.setattr(rejoin, "_LOOK_S", 0.1)
    for name, rows in (("items", 10), ("large", 20_000)):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 1 FROM generate_series(1, {rows}) i")
    world, key = World(lake_folder, database), ("shop", "shop.items")
    with Pipeline(world.config(hours=hours(2), rows_per_second=4000), lake_folder) as pipeline:
        wait_until(lambda: pipeline.states().get(key) is State.STREAMING, "the small one streams")
        wait_until(lambda: large(pipeline).copy_resumes_at, "the large one waits")
        database.execute("UPDATE items SET n = 2")
        database.execute("UPDATE large SET n = 2 WHERE id <= 100")
        ((written,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
        wait_until(lambda: confirmed(database) >= written, "the source keeps nothing for it")
        assert large(pipeline).state is State.NEW

        world.reload(pipeline, hours=hours(-1), rows_per_second=4000)
        wait_until(lambda: large(pipeline).copy_done > 1, "it is being copied")
        world.reload(pipeline, hours=hours(2), rows_per_second=4000)
        wait_until(lambda: large(pipeline).copy_resumes_at, "it is paused")
        seen = large(pipeline)
        assert (seen.state, seen.copy_done < seen.copy_total) == (State.COPYING, True)
        database.execute("UPDATE large SET n = 3 WHERE id % 2 = 0")
        database.execute("DELETE FROM large WHERE id % 5 = 0")
        database.execute("UPDATE items SET n = 3")
        wait_until(lambda: table_of(pipeline, "items").rows == 20, "the small one streams")
        pipeline.assert_equal("items", source_rows(database.url, "items"))

        world.reload(pipeline)  # no hours, and no rate
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("large", source_rows(database.url, "large"))
        assert large(pipeline).copies == 1, "in one go"


def test_a_pause_ends_with_kuvasz(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_plan, "LARGE_BYTES", 0)
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", PAGE)
    for name in ("items", "large"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO large SELECT i, 1 FROM generate_series(1, 5000) i")
    world = World(lake_folder, database)
    with Pipeline(world.config(rows_per_second=500), lake_folder) as pipeline:
        wait_until(lambda: large(pipeline).copy_done > 1, "it is being copied")
        world.reload(pipeline, hours=hours(2))
        wait_until(lambda: large(pipeline).copy_resumes_at, "it is paused")
    config = world.config()
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("large", source_rows(database.url, "large"))
