"""The lake's side fails: storage that refuses and tears, a catalog that does not answer, disks that are full.

Each time it goes on by itself, with nothing lost, and nothing torn is ever committed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kuvasz.lake.iceberg import engine
from kuvasz.lake.jvm import spark
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support import torn
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROWS = 400

#: What Python workers are forked from.
DAEMON = spark.DEFAULTS["spark.python.daemon.module"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in error are tried again soon."""
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.3)


@pytest.fixture
def filled(database: Database) -> Database:
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, n int, name text)")
    database.execute(f"INSERT INTO items SELECT i, 0, md5(i::text) FROM generate_series(1, {ROWS}) i")
    return database


def change(database: Database, number: int) -> None:
    """A commit that needs a data file and deletes."""
    database.execute("UPDATE items SET n = %s WHERE id %% 7 = %s", (number, number % 7))


def assert_cured(pipeline: Pipeline, database: Database) -> None:
    """Errors may come and go meanwhile, but for nobody to do anything about."""
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    wait_until(lambda: pipeline.app.progress.confirmable("shop") >= now, f"it is cured: {pipeline.errors()}")
    wait_until(lambda: not pipeline.errors() and not pipeline.lacks("shop"), "nothing is wrong, and nothing parked")
    pipeline.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.parametrize("format_version", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_nothing_torn_is_ever_committed(
    filled: Database, lake_folder: LakeFolder, tmp_path: Path, format_version: int
) -> None:
    lake_folder.format_version = format_version
    config = lake_folder.config(group({None: filled}, {"items": None}))
    properties = {"py-io-impl": "tests.support.torn.TornIO", torn.FOLDER: str(tmp_path)}
    config = config.model_copy(update={"lake": config.lake.model_copy(update={"properties": properties})})
    endings = ("parquet", "puffin") if format_version == 3 else ("parquet",)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number, (mode, ending) in enumerate([(mode, ending) for mode in torn.MODES for ending in endings]):
            (tmp_path / f"{mode}.{ending}").touch()
            change(filled, number)
            wait_until(lambda: not list(tmp_path.iterdir()), f"{mode} of {ending}")
            assert_cured(pipeline, filled)


def test_a_copy_meets_a_torn_file(filled: Database, lake_folder: LakeFolder, tmp_path: Path) -> None:
    config = lake_folder.config(group({None: filled}, {"items": None}))
    properties = {"py-io-impl": "tests.support.torn.TornIO", torn.FOLDER: str(tmp_path)}
    config = config.model_copy(update={"lake": config.lake.model_copy(update={"properties": properties})})
    for mode in torn.MODES:
        (tmp_path / f"{mode}.parquet").touch()
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: not list(tmp_path.iterdir()), "all of it happened")
        pipeline.wait_streaming()
        assert_cured(pipeline, filled)


def test_a_catalog_that_does_not_answer_for_a_while(filled: Database, lake_folder: LakeFolder) -> None:
    with Pipeline(lake_folder.config(group({None: filled}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with contextlib.closing(sqlite3.connect(lake_folder.folder / "catalog.db", isolation_level=None)) as catalog:
            catalog.execute("BEGIN EXCLUSIVE")
            for number in range(5):
                change(filled, number)
            reader = pipeline.app.sources[0].reader
            told, confirmed = reader.facts.last_status_at, pipeline.app.progress.confirmable("shop")
            wait_until(lambda: reader.facts.last_status_at > told + 4, "the source is told all the time that we live")
            assert pipeline.app.progress.confirmable("shop") == confirmed, "nothing is confirmed meanwhile"
            catalog.execute("ROLLBACK")
        assert_cured(pipeline, filled)
        assert pipeline.states() == {("shop", "shop.items"): State.STREAMING}


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 32 MB."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-disk-"))
    made = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], check=False, capture_output=True
    ).returncode == 0  # fmt: skip
    if not made:
        folder.rmdir()
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    yield
    filler.unlink()


def test_a_state_folder_without_room(
    filled: Database,
    lake_folder: LakeFolder,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Index, spool and notes lie there."""
    monkeypatch.setattr(engine, "spool_folder", lambda _: str(small_disk / "spool"))
    config = lake_folder.config(group({None: filled}, {"items": None}), state=str(small_disk / "state"))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with full(small_disk):
            for number in range(3):
                change(filled, number)
            told = pipeline.app.sources[0].reader.facts.last_status_at
            wait_until(lambda: pipeline.app.sources[0].reader.facts.last_status_at > told + 3, "time goes by")
        assert_cured(pipeline, filled)
        # The spool has room, and the index has none.
        roomy = lake_folder.folder / "spool"
        roomy.mkdir()
        monkeypatch.setattr(engine, "spool_folder", lambda _: str(roomy))
        pipeline.app.lake.engine.spool._folder = str(roomy)
        pipeline.app.lake.table("shop.items").index.places._store._memory_rows = 100
        with full(small_disk):
            filled.execute("INSERT INTO items SELECT i, 1, 'x' FROM generate_series(1000, 6000) i")
            wait_until(lambda: told_of_index(caplog), "the index has no room")
            assert all("No space left on device" in error for error in told_of_index(caplog))
        assert_cured(pipeline, filled)
    with Pipeline(config, lake_folder) as pipeline:
        with full(small_disk):
            filled.execute("INSERT INTO items VALUES (-1, 0, NULL)")
            pipeline.wait_streaming()
            pipeline.wait_applied(filled)
        change(filled, 3)
        assert_cured(pipeline, filled)


def test_a_store_without_room(
    filled: Database, lake_folder: LakeFolder, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Metadata is written by the JVM, data files by executors: each finds it full."""
    (lake_folder.folder / "wh").symlink_to(small_disk)
    with Pipeline(lake_folder.config(group({None: filled}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        snapshots = pipeline.snapshots("items")
        with full(small_disk):
            for number in range(3):
                change(filled, number)
            reader = pipeline.app.sources[0].reader
            told = reader.facts.last_status_at
            wait_until(lambda: told_of_room(caplog), "it is told")
            wait_until(lambda: reader.facts.last_status_at > told + 3, "the source is told all the time that we live")
            assert pipeline.snapshots("items") == snapshots
        assert_cured(pipeline, filled)
        with full(small_disk):
            pipeline.tell("resync", "shop.items", "shop")
            caplog.clear()
            wait_until(lambda: told_of_room(caplog), "a copy finds no room")
        pipeline.wait_streaming()
        change(filled, 3)
        assert_cured(pipeline, filled)


def told_of_room(caplog: pytest.LogCaptureFixture) -> list[str]:
    errors = [str(getattr(record, "error", "")) for record in list(caplog.records)]
    return [error for error in errors if "No space left on device" in error]


def told_of_index(caplog: pytest.LogCaptureFixture) -> list[str]:
    errors = [str(getattr(record, "error", "")) for record in list(caplog.records)]
    return [error for error in errors if "table shop.items: its index below" in error]


def test_killed_spark_workers_are_replaced(filled: Database, lake_folder: LakeFolder) -> None:
    with Pipeline(lake_folder.config(group({None: filled}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(4):
            for process in workers():
                process.kill()
            change(filled, number)
            assert_cured(pipeline, filled)


def workers() -> list[psutil.Process]:
    """Spark's Python workers: children of the daemon that the JVM started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if DAEMON in process.cmdline() and DAEMON in process.parent().cmdline():
                found.append(process)
    assert found
    return found
