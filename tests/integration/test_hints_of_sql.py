"""Statements that the hints of errors name: each is taken from what was said, carried out, and then it works."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ExpressionRefused
from kuvasz.lake.executors.expressions import Expressions, Projection
from kuvasz.lake.memory.lake import MemoryLake
from kuvasz.model import TableName
from kuvasz.ports import Target
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from tests.support.lake import LakeFolder, MemoryPipeline
from tests.support.postgres import Database, Server, new_data_folder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int); INSERT INTO items VALUES (1, 1)"

#: There is no lake to look at.
LAKE: Any = None


class Once(MemoryPipeline):
    """kuvasz with `--snapshot-only`."""

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self.lake = MemoryLake()
        self.app = App(self.config, lake=self.lake, snapshot_only=True)
        self._ready.set()
        return await self.app.run()


def config_of(folder: Path, database: Database) -> Config:
    lake = {"uri": "jdbc:sqlite:c.db", "warehouse": "wh", "namespace": "shop"}
    group = {"database": "shop", "urls": [{"url": database.url, "sid": "eu"}], "tables": {"items": None}}
    file = folder / "map.yaml"
    file.write_text(json.dumps({"lake": lake, "pipeline": {"state": "state"}, "databases": [group]}))
    return load(file, {}).config


def told_by(pipeline: MemoryPipeline) -> str:
    """Return the hint by which a start stops."""
    with pipeline:
        wait_until(lambda: pipeline.errors() or not pipeline._thread.is_alive(), "it stops")
        source = pipeline.app.sources[0].error
        found = [source] if source is not None else [one.error for one in pipeline.app.states.snapshot()]
    (error,) = found
    assert error is not None
    assert error.hint is not None
    return str(error.hint)


def streams(config: Config) -> bool:
    with MemoryPipeline(config, LAKE) as pipeline:
        pipeline.wait_streaming()
    return True


def test_a_wal_level(tmp_path: Path) -> None:
    server = Server(new_data_folder(), settings={"wal_level": "replica"})
    server.start()
    try:
        database = Database(server, "postgres")
        database.execute(ITEMS)
        config = config_of(tmp_path, database)
        hint = told_by(MemoryPipeline(config, LAKE))
        statement, then = hint.split("; ")
        assert (statement.startswith("ALTER SYSTEM"), then) == (True, "then restart the server")
        with database.connect(autocommit=True) as connection:
            connection.execute(statement)  # as the hint says
        # What it wrote: this server's file is made anew at each start.
        ((server.settings["wal_level"],),) = database.execute(
            "SELECT setting FROM pg_file_settings WHERE name = 'wal_level'"
        )
        server.restart()
        assert streams(config)
    finally:
        server.stop()
        server.remove()


@pytest.mark.spark
def test_a_replica_identity_for_a_key_of_expressions(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    target = Target(name="shop.items", set={"id": "id", "sum": "id + n"}, key=("sum",))

    def project() -> Projection:
        with conninfo.connect(database.url) as connection:
            relation = introspect.load_relation(connection, TableName(schema="public", name="items")).relation
        return Expressions(lake_folder.session).project(target, relation, "table items", None)

    with pytest.raises(ExpressionRefused) as told:
        project()
    found = re.search(r"ALTER TABLE \S+ REPLICA IDENTITY FULL", str(told.value.hint))
    assert found is not None, told.value.hint
    database.execute(found[0])  # as the hint says
    assert [column.name for column in project().relation.columns if column.is_key] == ["sum"]


def test_a_slot_in_the_way_of_a_single_copy(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS)
    config = config_of(tmp_path, database)
    assert streams(config)
    hint = told_by(Once(config, LAKE))
    found = re.search(r"SELECT pg_drop_replication_slot\('\w+'\)", hint)
    assert found is not None, hint
    database.execute(found[0])  # as the hint says
    with Once(config, LAKE) as pipeline:
        pipeline.wait_end()
        assert pipeline.rows() == [("eu", 1, 1)]
    assert pipeline.exit_code == 0
