"""Catalog or store fail for one table alone: the others keep their pace, and it comes back by itself.

The store refuses a table's metadata (a file lies where its folder should be), or the catalog does not answer for it
(someone has locked its row).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.lake.commit import lanes
from kuvasz.lake.table import table_lock
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.observer import Observer
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.stores import PostgresCatalogFolder
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("items", "others")
TYPES = ("clone", "append", "history", "changelog")

Breaking = Callable[[LakeFolder], contextlib.AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in error are tried again soon."""
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.5)
    monkeypatch.setattr(requests, "_LAST_RETRY_S", 2.0)
    monkeypatch.setattr(table_lock, "_WAIT_S", 0.5)


@contextlib.contextmanager
def refusing(lake: LakeFolder, table: str = "items") -> Iterator[None]:
    """The store takes no metadata of a table."""
    folder = next(Path(lake.folder / "wh").glob(f"**/{table}")) / "metadata"
    away = folder.with_name("away")
    folder.rename(away)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)


@contextlib.contextmanager
def locked(lake: LakeFolder) -> Iterator[None]:
    """The catalog does not answer when the row of items is changed."""
    assert isinstance(lake, PostgresCatalogFolder)
    with lake.database.connect() as session:
        session.execute("SELECT FROM iceberg_tables WHERE table_name = 'items' FOR UPDATE")
        yield
        session.rollback()


@pytest.mark.parametrize(
    ("where", "breaking"),
    [("lake_folder", refusing), pytest.param("postgres_catalog", locked, marks=pytest.mark.slow)],
)
def test_one_stuck_table_slows_no_other_and_comes_back(
    database: Database,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    breaking: Breaking,
) -> None:
    lake: LakeFolder = request.getfixturevalue(where)
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    config = lake.config(group({None: database}, dict.fromkeys(TABLES)), workers=1)
    with Pipeline(config, lake) as pipeline:
        pipeline.wait_streaming()
        before = [visible_after(pipeline, database, number) for number in range(3)]
        with breaking(lake):
            stuck_at = pipeline.app.lake.positions("shop.items")["shop"]
            first = change(database, 9)
            during = [visible_after(pipeline, database, 10 + number) for number in range(3)]
            database.execute("ALTER TABLE items SET (fillfactor = 90)")  # after which the stream describes it again
            during += [visible_after(pipeline, database, 13 + number) for number in range(3)]
            assert max(during) < lanes.BOUND_S, "while the other one is still stuck, and in no error"
            print("seconds until visible before, and beside a stuck table:", before, during)
            assert set(pipeline.states().values()) == {State.STREAMING}, pipeline.errors()
            assert pipeline.app.lake.positions("shop.items")["shop"] == stuck_at
            assert pipeline.app.progress.confirmable("shop") < first, "what is not in the lake is not confirmed"
            monkeypatch.setattr(lanes, "BOUND_S", 1.0)
            pipeline.wait_state("shop", "shop.items", State.ERROR)
            assert pipeline.states()["shop", "shop.others"] is State.STREAMING
            for number in range(4):
                visible_after(pipeline, database, 20 + number)
            assert any("shop.items" in error for error in pipeline.errors())
        wait_until(lambda: not pipeline.errors() and not pipeline.lacks("shop"), "it came back by itself")
        visible_after(pipeline, database, 30)
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for name in TABLES:
            pipeline.assert_equal(name, source_rows(database.url, name))


def test_what_has_waited_becomes_few_commits_of_every_type(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_lock, "_WAIT_S", 60.0)
    for name in (*TYPES, "others"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, t text)")
        database.execute(f"ALTER TABLE {name} ALTER t SET STORAGE EXTERNAL")
    database.execute("CREATE TABLE bag (id int, n int); ALTER TABLE bag REPLICA IDENTITY FULL")
    observer = Observer(database, dict.fromkeys(TYPES, ("id",)))
    tables = {name: {"type": name} for name in TYPES}
    config = lake_folder.config(group({None: database}, {**tables, "bag": None, "others": None}), workers=1)
    changes = [
        "INSERT INTO {} SELECT i, 0, repeat('x', 3000) FROM generate_series(1, 20) i",
        "UPDATE {} SET n = n + 1 WHERE id % 2 = 0",
        "DELETE FROM {} WHERE id % 5 = 0",
        "UPDATE {} SET id = id + 100 WHERE id % 4 = 0",
        "UPDATE {} SET n = n + 1, t = id WHERE id % 3 = 0",
        "INSERT INTO {} SELECT i, 1, 'again' FROM generate_series(1, 20) i WHERE i % 5 = 0",
    ]
    with Pipeline(config, lake_folder) as pipeline, contextlib.ExitStack() as broken:
        pipeline.wait_streaming()
        for change in changes[:2]:
            transact(database, change)
        pipeline.wait_applied(database)
        before = {name: pipeline.snapshots(name) for name in (*TYPES, "bag")}
        for name in before:
            broken.enter_context(refusing(lake_folder, name))
        for number in range(6):
            transact(database, changes[number % 4 + 2] if number < 4 else changes[number % 2 * 3 + 1])
            database.execute("INSERT INTO others VALUES (%s)", (number,))
            wait_until(lambda n=number: len(pipeline.rows("others")) == n + 1, "others goes on")
        transact(database, "TRUNCATE {}")
        transact(database, changes[0])
        transact(database, changes[3])
        broken.close()
        wait_until(lambda: not pipeline.lacks("shop"), "all is there")
        pipeline.wait_applied(database)
        made = {name: pipeline.snapshots(name) - before[name] for name in before}
        assert all(1 <= number < 6 for number in made.values()), f"snapshots of 9 transactions: {made}"
        assert not pipeline.errors()
    for name in TYPES:
        pipeline.assert_equal(name, observer.expected(name, name, 0))
    pipeline.assert_equal("bag", source_rows(database.url, "bag"), key=())


def transact(database: Database, statement: str) -> None:
    """Run a statement on all tables that get stuck; those that insert leave out what a bag does not have."""
    for name in (*TYPES, "bag"):
        text = statement.format(name)
        if name == "bag":
            text = text.replace(", repeat('x', 3000)", "").replace(", 'again'", "").replace(", t = id", "")
        database.execute(text)


def test_a_restart_finds_what_was_stuck(database: Database, lake_folder: LakeFolder) -> None:
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    config = lake_folder.config(group({None: database}, dict.fromkeys(TABLES)), workers=1)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with refusing(lake_folder):
            for number in range(3):
                visible_after(pipeline, database, number)
            pipeline.stop()
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for name in TABLES:
            pipeline.assert_equal(name, source_rows(database.url, name))


def visible_after(pipeline: Pipeline, database: Database, number: int) -> float:
    """Change both tables; return the seconds until others shows it."""
    change(database, number)
    begin = time.monotonic()

    def is_there() -> bool:
        found = sorted(n for _, n in pipeline.rows("others"))
        return found == sorted(n for (n,) in database.execute("SELECT n FROM others"))

    wait_until(is_there, "others shows it")
    return time.monotonic() - begin


def change(database: Database, number: int) -> int:
    """Change both tables in one transaction; return an LSN at or behind its end."""
    with database.connect() as session:
        session.execute("UPDATE items SET n = %s WHERE id %% 3 = %s", (number, number % 3))
        session.execute("DELETE FROM items WHERE id = %s", (number,))
        session.execute("UPDATE others SET n = %s WHERE id %% 3 = %s", (number, number % 3))
    ((end,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
    return int(end)
