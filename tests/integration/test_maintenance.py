"""Maintenance beside a stream: few files, few snapshots, and the source's rows all the time."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
import requests as http
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kuvasz import cli
from kuvasz.admin.server import serve
from kuvasz.admin.upkeep import COUNTERS, GAUGES
from kuvasz.app import App
from kuvasz.config.load import load
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.maintenance import run_once
from kuvasz.ports import Target, Upkeep
from kuvasz.state.store import state_of
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import open_table, source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: The whole suite has both.
VERSIONS = [3, pytest.param(2, marks=pytest.mark.slow)]

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int, name text)"

#: Everything all the time.
EAGER = {"interval": "100ms", "min_files": 2, "max_dead_percent": 10, "target_file_size": "64kB",
         "snapshot_age": "1s", "snapshots_kept": 3}  # fmt: skip


@pytest.mark.slow
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


def test_small_files_are_merged_by_their_number_and_not_by_the_clock(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute(ITEMS)
    config = lake_folder.config(
        group({"eu": database}, {"items": None}), {"interval": "1d", "merge_interval": "50ms"}
    )
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(30):
            database.execute("INSERT INTO items VALUES (%s, 1, 'new'), (%s, 2, 'new')", (number, 100 + number))
            database.execute("UPDATE items SET n = n + 1 WHERE id = %s", (number // 2,))
            pipeline.wait_applied(database)
        wait_until(lambda: _upkeep(pipeline).rewrites > 1, "files were merged, more than once")
        wait_until(lambda: len(pipeline.app.lake.table("shop.items").index.files) < 16, "there are few files")
        assert _upkeep(pipeline).error is None
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def _upkeep(pipeline: Pipeline):
    return pipeline.app.lake.maintenance.upkeep().get("shop.items") or _Unseen()


class _Unseen:
    rewrites, files, error = 0, 1 << 30, None


class Served(Pipeline):
    """kuvasz with its HTTP server, as the command runs it."""

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        lake = IcebergLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=lake)
        await asyncio.to_thread(lake.open)
        async with serve(self.app, state_of(self.config)):
            self._ready.set()
            return await self.app.run()


def test_the_verb_asks_the_running_kuvasz_and_status_shows_it(
    database: Database, lake_folder: LakeFolder, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kuvasz")
    database.execute(ITEMS)
    lake_folder.config(group({"eu": database}, {"items": None}), {"interval": "1d"})
    file = lake_folder.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, "--config", str(file)])
        return int(end.value.code or 0), capsys.readouterr().out

    with Served(load(file, {}).config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        _work(database, pipeline, 6)
        code, out = run("maintain", "--full", "--json")
        (table,) = json.loads(out)
        assert (code, table["files"], table["delete_files"], table["error"]) == (0, 1, 0, None)
        assert table["rewritten_bytes"] > 0
        assert run("maintain", "--table", "nothing")[0] == 2
        _, out = run("status", "--json")
        (shown,) = json.loads(out)["maintenance"]
        assert (shown["target"], shown["files"], shown["dead_share"], shown["rewrites"]) == ("shop.items", 1, 0.0, 1)
        assert shown["last_at"] is not None
        assert shown["changed_bytes"] > 0
        shown = run("status")[1]
        assert ", last written anew 2" in shown
        assert ", next look 2" in shown
        for part in ("files", "0%", "dead", "with", "snapshots", "rewritten", "changed"):  # a narrow terminal wraps
            assert part in shown.partition("next look")[2]
        server = json.loads((pipeline.config.pipeline.state_folder / "server.json").read_text())
        metrics = http.get(f"{server['url']}/metrics", timeout=10).text
        for name in (*GAUGES, *(f"{name}_total" for name in COUNTERS)):
            assert f'{name}{{table="shop.items"}}' in metrics
        record = next(record for record in caplog.records if getattr(record, "event", "") == "compacted")
        assert record.rewritten_bytes == table["rewritten_bytes"] == record.bytes
        assert record.changed_bytes > record.bytes
        assert record.files_before > record.files_after == 1
        iceberg = open_table(lake_folder.pyiceberg, "shop.items", catalog=lake_folder.catalog)
        told = [snapshot.summary for snapshot in iceberg.metadata.snapshots]
        rewrites = [(one["kuvasz.rewritten-bytes"], one["kuvasz.rewritten-rows"]) for one in told
                    if "kuvasz.rewritten-files" in one]  # fmt: skip
        assert (str(record.bytes), str(record.rows)) in rewrites
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


@pytest.mark.parametrize("format_version", VERSIONS)
def test_maintenance_beside_a_stream_by_another_process(
    database: Database, spark_session: object, format_version: int
) -> None:
    """`kuvasz maintain` where the running one cannot be asked: Iceberg's check is the fence."""
    folder = LakeFolder(spark_session, format_version=format_version)
    database.execute(ITEMS)
    config = folder.config(group({"eu": database}, {"items": None}), {"interval": "1d"})
    with Pipeline(config, folder) as pipeline:
        pipeline.wait_streaming()
        for _ in range(3):
            _work(database, pipeline, 4)
            (upkeep,) = run_once.maintain(
                config, [Target(name="shop.items", has_sid=True)], full=True, session=spark_session
            )
            assert isinstance(upkeep, Upkeep), upkeep
            assert (upkeep.files, upkeep.delete_files) == (1, 0)
        _work(database, pipeline, 4)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    folder.remove()


# Slow: contract tests of maintenance have what another engine does in between.
@pytest.mark.slow
@pytest.mark.parametrize("format_version", VERSIONS)
def test_another_engine_rewrites_and_deletes_while_kuvasz_maintains(
    database: Database, spark_session: object, format_version: int
) -> None:
    folder = LakeFolder(spark_session, format_version=format_version)
    database.execute(ITEMS)
    config = folder.config(group({"eu": database}, {"items": None}), EAGER)
    with Pipeline(config, folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(3):
            _work(database, pipeline, 4)
            _foreign(
                spark_session,
                f"CALL {folder.catalog}.system.rewrite_data_files(table => 'shop.items',"
                " options => map('rewrite-all', 'true'))",
            )
            _work(database, pipeline, 2)
            # Someone deletes a row of ours in the lake and the source deletes it too: dead is dead.
            _foreign(spark_session, f"DELETE FROM {folder.catalog}.shop.items WHERE id = {900 + number}")
            database.execute("DELETE FROM items WHERE id = %s", (900 + number,))
            _work(database, pipeline, 2)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    folder.remove()


def _foreign(session: object, statement: str) -> None:
    """Carry out a statement; one that meets a commit of kuvasz is refused and repeated, as with any two writers."""
    for _ in range(20):
        with contextlib.suppress(Py4JJavaError, PySparkException):
            session.sql(statement).collect()
            return
    session.sql(statement).collect()


def _work(database: Database, pipeline: Pipeline, commits: int) -> None:
    for number in range(commits):
        database.execute(
            "INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, 1000) i WHERE i %% 4 = %s"
            " ON CONFLICT (id) DO UPDATE SET n = items.n + 1",
            (number % 4,),
        )
        database.execute("DELETE FROM items WHERE id %% 50 = %s", (number,))
        pipeline.wait_applied(database)
