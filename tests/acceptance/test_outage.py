"""Sources come and go: the others never wait, and whoever comes back is caught up."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kuvasz import failpoints
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, n int, name text)"
FILL = "INSERT INTO items SELECT i, 0, 'item ' || i FROM generate_series(1, 200) i"


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, that it may stop."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"
    started = EmbeddedPostgres(folder, version=16)
    started.start()
    yield started
    with contextlib.suppress(RuntimeError):  # the test may have stopped it
        started.stop("immediate")
    started.remove()


def test_a_source_is_shut_down_although_nothing_of_it_can_be_confirmed(
    server: EmbeddedPostgres,
    lake_folder: LakeFolder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Database(server, "postgres")
    source.execute(ITEMS)
    source.execute(FILL)
    config = lake_folder.config(group({"eu": source}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        stuck = ",".join(f"before_commit:error:{number}" for number in range(1, 400))
        monkeypatch.setattr("kuvasz.failpoints._armed", failpoints._parse(stuck))
        source.execute("UPDATE items SET n = 1")
        wait_until(lambda: pipeline.app.progress.pending("shop_eu"), "it is on its way")
        server.stop()
        told = {record.message for record in caplog.records if "is shutting down, and waits" in str(vars(record))}
        assert told, "it did not end by itself"
        monkeypatch.setattr("kuvasz.failpoints._armed", [])
        server.start()
        wait_until(lambda: not pipeline.errors(), "it streams again")
        pipeline.wait_applied(source)
        pipeline.assert_equal("items", source_rows(source.url, "items", sid="eu"))


def test_a_source_that_is_down_at_the_start_comes_in_later_and_survives_restarts(
    database: Database, server: EmbeddedPostgres, lake_folder: LakeFolder
) -> None:
    other = Database(server, "postgres")
    for source in (database, other):
        source.execute(ITEMS)
        source.execute(FILL)
    server.stop()
    config = lake_folder.config(group({"eu": database, "us": other}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        database.execute("UPDATE items SET n = 1")
        wait_until(lambda: pipeline.snapshots("items") >= 2, "and streamed")
        wait_until(lambda: any("refused" in error for error in pipeline.errors()), "the other is told of")
        assert not any("hint: \n" in error for error in pipeline.errors())
        server.start()
        pipeline.wait_streaming()
        other.execute("UPDATE items SET n = 2 WHERE id < 100")
        for mode in ("fast", "immediate"):
            server.restart(mode)
            other.execute("UPDATE items SET n = n + 1 WHERE id < 50")
            other.execute("DELETE FROM items WHERE id = (SELECT max(id) FROM items)")
        wait_until(lambda: not pipeline.errors(), "the stream flows again")
        pipeline.wait_applied(database, other)
        rows = source_rows(database.url, "items", sid="eu"), source_rows(other.url, "items", sid="us")
        pipeline.assert_equal("items", *rows, key=("sid", "id"))


def test_a_slot_in_use_is_waited_for_and_its_user_told(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute(FILL)
    config = lake_folder.config(group({None: database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    user = subprocess.Popen(
        [database.server.command("pg_recvlogical"), "-d", database.url, "-S", "kuvasz_shop", "--start", "-f", "-",
         "-o", "proto_version=1", "-o", "publication_names=kuvasz_shop", "--status-interval=0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        active = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'kuvasz_shop' AND active"
        wait_until(lambda: database.execute(active), "the slot is taken")
        ((pid,),) = database.execute(active)
        with Pipeline(config, lake_folder) as pipeline:
            wait_until(pipeline.errors, "it is told")
            (error,) = pipeline.errors()
            assert f"slot kuvasz_shop is in use by pid {pid} (postgres, pg_recvlogical" in error
            assert "hint: stop that process" in error
            user.kill()
            user.wait()
            pipeline.wait_streaming()
            database.execute("UPDATE items SET n = 1")
            pipeline.wait_applied(database)
            pipeline.assert_equal("items", source_rows(database.url, "items"))
    finally:
        user.kill()
        user.wait()


@pytest.mark.timeout(400)
def test_without_its_jvm_it_ends_and_the_next_start_goes_on(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute(ITEMS)
    database.execute(FILL)
    process = new_process(group({None: database}, {"items": None}))
    process.start()
    process.wait_event("copied")
    database.execute("UPDATE items SET n = 1")
    process.wait_confirmed(database)
    for helper in process.helpers():
        if helper.name() == "java":
            helper.kill()
    database.execute("UPDATE items SET n = 2 WHERE id < 100")
    assert process.wait(60) == 1
    assert any("error: spark's jvm ended with -9" in line for line in process.output), process.report()
    process.start("--until-caught-up")
    assert process.wait() == 0
    process.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_jvm_without_memory_ends_it_and_more_memory_cures_it(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items VALUES (1, 0, 'x')")
    spec = {"set": {"id": "id", "n": "length(repeat(name, 400))"}}
    process = new_process(group({None: database}, {"items": spec}))
    process.start("--set", "spark.conf.spark.driver.memory=512m")
    process.wait_event("copied")
    database.execute("INSERT INTO items VALUES (2, 0, repeat('x', 1000000))")
    assert process.wait(90) == 1
    assert any("error: spark's jvm ran out of memory" in line for line in process.output), process.report()
    assert any("hint: give `spark.driver.memory` in `spark.conf` more" in line for line in process.output), (
        process.report()
    )
    process.start("--until-caught-up", "--set", "spark.conf.spark.driver.memory=2g")
    assert process.wait() == 0, process.report()
    assert set(process.rows("items").rows) == {(1, 400), (2, 400_000_000)}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_stop_in_the_middle_of_a_copy_is_quick_and_clean(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 0, repeat('x', 500) FROM generate_series(1, 300000) i")
    process = new_process(group({None: database}, {"items": None}))
    process.start(failpoints="copy_range_done:sleep=3:1")
    process.wait_event("failpoint")
    assert process.terminate() < 30
    assert not process.found("copied")
    files = list((process.folder / "wh").rglob("*.parquet"))
    assert not files, "what no snapshot knows is removed"
    process.start("--until-caught-up")
    assert process.wait() == 0
    process.assert_equal("items", source_rows(database.url, "items"))
    assert psutil.pid_exists(process.pid) is False
