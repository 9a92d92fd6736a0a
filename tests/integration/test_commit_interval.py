"""`commit_interval` of a table: its changes wait, those of others do not, and nothing is lost over a restart."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from kuvasz.config.model import Config
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SIDS = ("eu", "us")


@pytest.fixture
def second(postgres16: EmbeddedPostgres) -> Iterator[Database]:
    made = create_database(postgres16)
    yield made
    drop_database(made)


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


def test_another_one_counts_while_kuvasz_runs(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    """The table goes to another worker, when no source is left that may have something under way at the first."""
    databases = dict(zip(SIDS, (database, second), strict=True))
    for source in databases.values():
        for name in ("paced", "other"):
            source.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
            source.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")

    def mapped(interval: str | None) -> list[dict]:
        return group(databases, {"paced": interval and {"commit_interval": interval}, "other": None})

    config = lake_folder.config(mapped(None))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        number = [pipeline.app.view().own_workers]
        with contextlib.ExitStack() as loads:
            for source in databases.values():
                loads.enter_context(changes(source))
            for interval in ("100ms", "30ms", None, "100ms"):
                reload(pipeline, lake_folder.config(mapped(interval)))
                number.append(pipeline.app.view().own_workers)
                before = pipeline.snapshots("paced")
                wait_until(lambda: pipeline.snapshots("paced") > before + 3, "it is committed on")  # noqa: B023
        assert list(map(len, number)) == [0, 1, 2, 2, 2], "a worker for each that there was"
        pipeline.wait_applied(*databases.values())
        for name in ("paced", "other"):
            rows = [source_rows(source.url, name, sid=sid) for sid, source in databases.items()]
            pipeline.assert_equal(name, *rows, key=("sid", "id"))
        assert pipeline.app.states.get("shop.paced", "shop_eu").copies == 1


def reload(pipeline: Pipeline, config: Config) -> None:
    async def take_over() -> None:
        found = await asyncio.to_thread(pipeline.app.difference, config)
        assert found.held == ()
        pipeline.app.take_over(found)

    pipeline.call(take_over())
    wait_until(lambda: not pipeline.app.is_changing, "the map is in use")
    pipeline.wait_streaming()


@contextlib.contextmanager
def changes(database: Database) -> Iterator[None]:
    """Transactions that move an amount between two tables, while the body runs."""
    is_over = threading.Event()

    def run() -> None:
        with database.connect(autocommit=True) as session:
            for number in itertools.count(1):
                if is_over.is_set():
                    return
                with session.transaction():
                    for name, sign in (("paced", "+"), ("other", "-")):
                        session.execute(f"UPDATE {name} SET n = n {sign} %s WHERE id = %s", (number, 1 + number % 20))
                time.sleep(0.005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
