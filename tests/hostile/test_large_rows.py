"""A row that nobody has memory for stops the table of the source that sent it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import RowTooLarge
from kuvasz.state.tables import State
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


def config(folder: Path, databases: Mapping[str | None, Database], tables: Mapping[str, dict | None]) -> Config:
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms", "max_row_bytes": "64kB"},
        "server": {"address": None},
        "databases": group(databases, tables),
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    return load(folder / "map.yaml", {}).config


def test_a_row_that_is_too_large_stops_its_table_alone_until_it_is_copied_again(
    tmp_path: Path, database: Database
) -> None:
    for name in ("items", "others"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, body text)")
    with MemoryPipeline(
        config(tmp_path, {None: database}, {"items": None, "others": None}), SimpleNamespace()
    ) as pipeline:
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


@pytest.mark.parametrize("kind", ["clone", "append", "changelog"])
def test_a_row_that_is_too_large_stops_its_source_alone_in_a_table_of_three(
    tmp_path: Path, postgres18: EmbeddedPostgres, request: pytest.FixtureRequest, kind: str
) -> None:
    """Those that came with it in one mini-transaction go on."""
    databases = {sid: create_database(postgres18) for sid in ("one", "bad", "two")}
    for database in databases.values():
        request.addfinalizer(lambda database=database: drop_database(database))
        database.execute("CREATE TABLE items (id int PRIMARY KEY, body text)")
    made = config(tmp_path, databases, {"items": {"type": kind}})

    def held(sid: str) -> set[tuple]:
        rows = pipeline.lake.rows("shop.items").to_pylist()
        return {(row["id"], row["body"]) for row in rows if row["sid"] == sid}

    with MemoryPipeline(made, SimpleNamespace()) as pipeline:
        pipeline.wait_streaming()
        for number in range(1, 6):
            for sid, database in databases.items():
                size = 100_000 if (sid, number) == ("bad", 2) else 2
                database.execute("INSERT INTO items VALUES (%s, repeat('x', %s))", [number, size])
        pipeline.wait_state("shop_bad", "shop.items", State.ERROR)
        for sid in ("one", "two"):
            expected = {(number, "xx") for number in range(1, 6)}
            wait_until(lambda sid=sid, expected=expected: held(sid) == expected, lambda: f"it goes on: {held('one')}")
        assert held("bad") <= {(1, "xx")}
        states = pipeline.states()
        assert {sid: states[f"shop_{sid}", "shop.items"] for sid in databases} == {
            "one": State.STREAMING, "bad": State.ERROR, "two": State.STREAMING,
        }  # fmt: skip
        (error,) = [one.error for one in pipeline.app.states.snapshot() if one.error]
        assert isinstance(error, RowTooLarge)
