"""`kuvasz --snapshot-only`: every table once, as of one LSN, and nothing is left at the source."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from kuvasz.app import App
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.state.store import state_of
from kuvasz.state.tables import TableStates
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BOTH = {"items": None, "others": None}


class Once(Pipeline):
    """kuvasz with `--snapshot-only`."""

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        lake = IcebergLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=lake, snapshot_only=True)
        await asyncio.to_thread(lake.open)
        self._ready.set()
        return await self.app.run()


def copied(folder: LakeFolder, database: Database, **group_options: object) -> int | None:
    config = folder.config([group({None: database}, BOTH)[0] | group_options])
    with Once(config, folder) as pipeline:
        pipeline.wait_end()
    return pipeline.exit_code


def left(database: Database) -> list[tuple[int, int]]:
    """Slots and publications of a database."""
    return database.execute(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),"
        " (SELECT count(*) FROM pg_publication)"
    )


def fill(database: Database) -> None:
    for name in BOTH:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 100) i")


@contextlib.contextmanager
def both_rising(database: Database) -> Iterator[None]:
    """Transactions that raise a row of both tables by one."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            database.execute("UPDATE items SET n = n + 1 WHERE id = 1; UPDATE others SET n = n + 1 WHERE id = 1")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_every_table_is_there_as_of_one_lsn_and_nothing_is_left(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    with both_rising(database):
        wait_until(lambda: database.execute("SELECT n FROM items WHERE id = 1")[0][0] > 3, "rows change")
        assert copied(lake_folder, database) == 0
    assert left(database) == [(0, 0)]
    seen = {
        name: lake_folder.session.sql(f"SELECT n FROM {lake_folder.catalog}.shop.{name} WHERE id = 1").collect()
        for name in BOTH
    }
    assert seen["items"] == seen["others"], "of one moment"
    assert seen["items"][0][0] > 3

    database.execute("DELETE FROM items WHERE id > 50; UPDATE others SET n = -1")
    assert copied(lake_folder, database) == 0, "once more"
    config = lake_folder.config([group({None: database}, BOTH)[0] | {"on_slot_lost": "repair"}])
    with Pipeline(lake_folder.config(group({None: database}, BOTH)), lake_folder) as pipeline:
        pipeline.wait_end()
    assert pipeline.exit_code == 5, "a start that would stream knows that changes are missing, and says so"
    assert "kuvasz resync" in str(pipeline.app.sources[0].error)
    database.execute("INSERT INTO items VALUES (1000, 1)")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for name in BOTH:
            pipeline.assert_equal(name, source_rows(database.url, name))

    assert copied(lake_folder, database) != 0, "the source is replicated by now"
    assert left(database) == [(1, 1)], "and nothing was touched"


@pytest.mark.parametrize("on_slot_lost", ["stop", "resync"])
def test_a_paused_table_stays_as_it_was_and_the_others_are_copied(
    database: Database, lake_folder: LakeFolder, on_slot_lost: str
) -> None:
    fill(database)
    assert copied(lake_folder, database) == 0
    config = lake_folder.config(group({None: database}, BOTH))
    states = TableStates(state_of(config).notes)
    states.add("shop.others", "shop", "public.others")
    states.pause("shop.others", "shop")
    database.execute("UPDATE items SET n = 1; UPDATE others SET n = 1")
    assert copied(lake_folder, database, on_slot_lost=on_slot_lost) == 0
    for name, n in (("items", 1), ("others", 0)):
        rows = lake_folder.session.sql(f"SELECT DISTINCT n FROM {lake_folder.catalog}.shop.{name}").collect()
        assert [row[0] for row in rows] == [n]
    assert left(database) == [(0, 0)]


def test_what_cannot_be_copied_is_no_success(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kuvasz")
    fill(database)
    database.execute("DROP TABLE others")
    assert copied(lake_folder, database) != 0
    assert left(database) == [(0, 0)]
    rows = lake_folder.session.sql(f"SELECT count(*) FROM {lake_folder.catalog}.shop.items").collect()
    assert rows[0][0] == 100, "the others are there"
    database.execute("CREATE TABLE others (id int PRIMARY KEY, at date); INSERT INTO others VALUES (1, 'infinity')")
    assert copied(lake_folder, database) != 0
    done = [record.tables for record in caplog.records if getattr(record, "event", "") == "snapshot_done"]
    assert done == [1, 1], "what was taken up, and failed, does not count as copied"
