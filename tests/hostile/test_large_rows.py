"""A row that nobody has memory for stops the table of the source that sent it, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import RowTooLarge
from kuvasz.state.tables import State
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


def config(folder: Path, database: Database, limit: str) -> Config:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms", "max_row_bytes": limit},
        "server": {"address": None},
        "databases": group({None: database}, {"items": None, "others": None}),
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    return load(folder / "map.yaml", {}).config


def test_a_row_that_is_too_large_stops_its_table_alone_until_it_is_copied_again(
    tmp_path: Path, database: Database
) -> None:
    for name in ("items", "others"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, body text)")
    with MemoryPipeline(config(tmp_path, database, "64kB"), SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO items VALUES (1, repeat('x', 100000)), (2, 'y')")
        pipeline.wait_state("shop", "shop.items", State.ERROR)
        (error,) = [one.error for one in pipeline.app.states.snapshot() if one.error]
        assert isinstance(error, RowTooLarge)
        database.execute("INSERT INTO others VALUES (1, 'z')")
        wait_until(lambda: len(pipeline.rows("others")) == 1, "the other table follows")
        assert pipeline.rows("items") == []
        pipeline.tell("retry", "shop.items", "shop")
        wait_until(
            lambda: any(one.error not in {None, error} for one in pipeline.app.states.snapshot()),
            lambda: f"what was parked is as large: {pipeline.states()}",
        )
        pipeline.tell("resync", "shop.items", "shop")
        pipeline.wait_state("shop", "shop.items", State.STREAMING)
        assert [key for key, _ in pipeline.rows("items")] == [1, 2]
        database.execute("UPDATE items SET body = 'small'")
        wait_until(lambda: pipeline.rows("items") == [(1, "small"), (2, "small")], "it follows again")
