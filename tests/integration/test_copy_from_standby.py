"""`copy.from`: tables are read at a standby, the stream comes from the primary, and nothing is doubled or missing."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kuvasz import lsn
from kuvasz.config import sources
from kuvasz.config.load import load
from kuvasz.config.model import Config, CopyLimits
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.check.standby_check import check_standby
from kuvasz.verbs import check
from tests.support.cut_copies import CutCopies
from tests.support.lake import LakeFolder, Pipeline
from tests.support.observer import Observer
from tests.support.oracle import source_rows
from tests.support.postgres import Database, Server, create_database, drop_database
from tests.support.standby import catch_up, make_standby, new_folder, removed_after
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]

KEYS: dict[str, tuple[str, ...]] = {"kept": ("id",), "told": ("id",), "keyless": ()}
TABLES: dict[str, Any] = {
    "kept": {"type": "append"}, "told": {"type": "changelog"}, "keyless": {"type": "append"}, "items": None,
    "parts": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    server = Server(new_folder(), settings={"synchronous_commit": "on"})  # a standby is waited for by the WAL
    server.start()
    with removed_after(server):
        yield server


@pytest.fixture(scope="module")
def follower(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    with removed_after(make_standby(primary, keeps_slots=False)) as server:
        yield server


@pytest.fixture
def shop(primary: EmbeddedPostgres, follower: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(primary)
    catch_up(primary, follower)
    yield database
    drop_database(database)


def with_copy(
    folder: LakeFolder, database: Database, tables: dict[str, Any], role: dict[str, str] | None = None, **copy: Any
) -> Config:
    folder.config([{"database": "shop", "urls": [{"url": database.url} | (role or {})], "tables": tables}])
    file = folder.folder / "map.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"copy": copy}))
    return load(file, {}).config


class Writers:
    """Many short transactions, each of which changes every table."""

    def __init__(self, database: Database) -> None:
        self._url, self._stop = database.url, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(4)]
        self._begin, self.commits = time.monotonic(), 0

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> float:
        """End; return how many were committed a second."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.commits / (time.monotonic() - self._begin)

    def _run(self, number: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                key = turn * 4 + number
                session.execute(
                    f"INSERT INTO kept VALUES ({key}, 0); UPDATE told SET n = n + 1 WHERE id = {key % 400};"
                    f" INSERT INTO keyless VALUES ({key}); UPDATE items SET n = n + 1 WHERE id = {key % 400};"
                    f" INSERT INTO parts VALUES ({key}, 0)"
                )
                self.commits += 1
                time.sleep(0.005)


def copied(caplog: pytest.LogCaptureFixture, table: str) -> int:
    """Where the last copy of a table stands."""
    found = [one for one in events(caplog, "copied") if one.table == f"shop.{table}"]
    return lsn.parse(found[-1].lsn)


def copies(pipeline: Pipeline, *tables: str) -> set[int]:
    """How often tables have been copied."""
    return {one.copies for one in pipeline.app.states.snapshot() if one.target.removeprefix("shop.") in tables}


def test_copies_under_load_double_and_lack_nothing(
    shop: Database, follower: EmbeddedPostgres, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("kept", "told", "items"):
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
    shop.execute("CREATE TABLE keyless (id int)")
    shop.execute("CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY HASH (id)")
    shop.execute("CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    observer = Observer(shop, KEYS)
    for name in ("told", "items"):
        shop.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(0, 399) i")
    config = with_copy(lake_folder, shop, TABLES, **{"from": f"postgresql://127.0.0.1:{follower.port}"})
    with Writers(shop) as writers, Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: copies(pipeline, *TABLES) == {1}, lambda: f"all are copied: {pipeline.errors()}")
        for name in ("kept", "told"):
            pipeline.tell("resync", f"shop.{name}", "shop")
        wait_until(lambda: copies(pipeline, "kept", "told") == {2}, lambda: f"again: {pipeline.errors()}")
        rate = writers.stop()
        pipeline.wait_streaming()
        pipeline.wait_applied(shop)
        for name, key in KEYS.items():
            expected = observer.expected(name, TABLES[name]["type"], copied(caplog, name))
            pipeline.assert_equal(name, expected, key=key)
        for name in ("items", "parts"):
            pipeline.assert_equal(name, source_rows(shop.url, name))
    taken = events(caplog, "standby_snapshot")
    print(f"{rate:.0f} commits a second; {[(one.lsn, one.tries, one.seconds) for one in taken]}")
    assert len(taken) == 3, "one for all tables, then one for each"
    assert str(follower.port) in taken[0].server


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", "") == event]


@pytest.mark.parametrize("goes_on", ["standby", pytest.param("primary", marks=pytest.mark.slow)])
def test_a_copy_that_is_cut_off_goes_on_under_another_snapshot(
    shop: Database, follower: EmbeddedPostgres, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, goes_on: str,
) -> None:  # fmt: skip
    """Also where one of its attempts reads the standby, and the next one the primary: rows are at the same places."""
    caplog.set_level(logging.INFO)
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, n int, pad text)")
    shop.execute("INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series(1, 2000) i")
    config = with_copy(lake_folder, shop, {"items": None}, **{"from": f"postgresql://127.0.0.1:{follower.port}"})
    of_standby = config.copy_limits("")
    limits = [of_standby]
    monkeypatch.setattr(Config, "copy_limits", lambda *_: limits[-1])

    def change() -> None:
        shop.execute("DELETE FROM items WHERE id % 4 = 1")
        with shop.connect(autocommit=True) as session:
            session.execute("VACUUM items")  # room for what moves
        shop.execute("UPDATE items SET n = n + 1, pad = repeat('y', 210) WHERE id % 3 = 0")
        shop.execute("UPDATE items SET id = id + 50000 WHERE id % 100 = 2")
        shop.execute("INSERT INTO items SELECT i, 7, 'new' FROM generate_series(9000, 9100) i ON CONFLICT DO NOTHING")
        limits.append(of_standby if goes_on == "standby" or len(limits) == 2 else CopyLimits())

    cut = CutCopies(cuts=[[0, 2, 4], [1, 5]], between=[change, change])
    cut.arm(monkeypatch, pages=8)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        shop.execute("UPDATE items SET n = n + 1000 WHERE id % 7 = 0")
        pipeline.wait_applied(shop)
        pipeline.assert_equal("items", source_rows(shop.url, "items"))
    assert [one.done for one in events(caplog, "copy_resumed")] == [3, 5], told(caplog)
    assert events(caplog, "copy_begun_again") == []
    assert all(one.keys > 100 for one in events(caplog, "copy_resumed"))
    assert len(events(caplog, "standby_snapshot")) == (3 if goes_on == "standby" else 2)


@pytest.mark.slow
def test_a_copy_that_recovery_ends_and_a_standby_that_is_away_are_tried_again(
    shop: Database, follower: EmbeddedPostgres, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("items", "others"):
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        shop.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 3000) i")
    copy = {"from": f"postgresql://127.0.0.1:{follower.port}", "rows_per_second": 200}
    tables: dict[str, Any] = {"items": None, "others": None}
    settings = {"hot_standby_feedback": "off", "max_standby_streaming_delay": "0"}
    config = with_copy(lake_folder, shop, tables, **copy)
    with standby_settings(follower, settings), Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: events(caplog, "standby_snapshot"), lambda: f"it is being copied: {told(caplog)}")
        for name in tables:
            shop.execute(f"UPDATE {name} SET n = 1")
        with shop.connect(autocommit=True) as session:
            session.execute("VACUUM items")
            session.execute("VACUUM others")
        wait_until(lambda: "hot_standby_feedback" in told(caplog), lambda: f"it is ended: {told(caplog)}")
        alter(follower, "hot_standby_feedback", "on")
        pipeline.wait_streaming()
        follower.stop("immediate")
        pipeline.tell("resync", "shop.items", "shop")
        wait_until(lambda: "nothing listens there" in told(caplog), lambda: f"it is away: {told(caplog)}")
        shop.execute("UPDATE others SET n = 2 WHERE id < 10")
        wait_until(lambda: (9, 2) in pipeline.rows("others"), "the other one streams")
        follower.start()
        pipeline.wait_streaming()
        for name in tables:
            pipeline.assert_equal(name, source_rows(shop.url, name))


def told(caplog: pytest.LogCaptureFixture) -> str:
    """What was told of copies and starts that failed."""
    return " ".join(one.error for one in (*events(caplog, "copy_retry"), *events(caplog, "source_failed")))


def alter(server: EmbeddedPostgres, setting: str, value: str | None) -> None:
    with psycopg.connect(server.url(), autocommit=True) as session:
        change = f"SET {setting} = '{value}'" if value is not None else f"RESET {setting}"
        session.execute(f"ALTER SYSTEM {change}")
        session.execute("SELECT pg_reload_conf()")


@contextlib.contextmanager
def standby_settings(server: EmbeddedPostgres, settings: dict[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        alter(server, name, value)
    try:
        yield
    finally:
        alter(server, "hot_standby_feedback", "on")
        alter(server, "max_standby_streaming_delay", None)


def test_the_role_that_copies_may_be_another_one_than_replicates(
    shop: Database, primary: EmbeddedPostgres, follower: EmbeddedPostgres, lake_folder: LakeFolder,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Also of a copy that was cut off, which learns from a copy of the slot what has changed since."""
    caplog.set_level(logging.INFO)
    for statement in (
        "CREATE TABLE items (id int PRIMARY KEY, n int, pad text)",
        "INSERT INTO items SELECT i, 0, repeat('x', 200) FROM generate_series(1, 2000) i",
        "CREATE PUBLICATION kuvasz_shop FOR TABLE ONLY items WITH (publish_via_partition_root = true)",
        "CREATE ROLE copies LOGIN", "CREATE ROLE replicates LOGIN REPLICATION", "GRANT SELECT ON items TO copies",
    ):  # fmt: skip
        shop.execute(statement)
    catch_up(primary, follower)
    seen = Database(primary, shop.name)
    seen.url = shop.url.replace("postgres@", "copies@")
    config = with_copy(
        lake_folder, seen, {"items": None}, {"replication_url": "postgresql://replicates@"},
        **{"from": f"postgresql://127.0.0.1:{follower.port}"},
    )  # fmt: skip
    cut = CutCopies(cuts=[[0, 2, 4]], between=[lambda: shop.execute("UPDATE items SET n = n + 1 WHERE id % 3 = 0")])
    cut.arm(monkeypatch, pages=8)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        shop.execute("DELETE FROM items WHERE id % 7 = 0")
        pipeline.wait_applied(seen)
        pipeline.assert_equal("items", source_rows(shop.url, "items"))
    assert [one.done for one in events(caplog, "copy_resumed")] == [3], told(caplog)
    assert len(events(caplog, "standby_snapshot")) == 2
    (source,) = sources.resolve(config)
    found = check._standby(config, source, [TableName(schema="public", name="items")])
    assert {one.check: one.ok for one in found} == {
        "copy_from": True, "copy_from_lag": True, "hot_standby_feedback": True
    }  # fmt: skip


def test_what_check_says_of_a_standby(
    shop: Database,
    primary: EmbeddedPostgres,
    follower: EmbeddedPostgres,
    postgres18: EmbeddedPostgres,
    lake_folder: LakeFolder,
) -> None:
    shop.execute("CREATE TABLE items (id int PRIMARY KEY)")
    catch_up(primary, follower)
    items = TableName(schema="public", name="items")

    def found(url: str) -> dict[str, tuple[bool, str, str]]:
        of = check_standby("kuvasz_shop", shop.url, conninfo.overlaid(shop.url, url), [items])
        return {one.check: (one.ok, one.value, one.fix) for one in of}

    there = f"postgresql://127.0.0.1:{follower.port}"
    good = found(there)
    assert all(ok for ok, *_ in good.values()), good
    config = with_copy(lake_folder, shop, {"items": None}, **{"from": there})
    (source,) = sources.resolve(config)
    assert [one.check for one in check._standby(config, source, [items])] == list(good)
    assert set(good) == {"copy_from", "copy_from_lag", "hot_standby_feedback"}
    ok, value, fix = found(shop.url)["copy_from"]
    assert (ok, "it is no standby" in value, "copy.from has to lead" in fix) == (False, True, True)
    assert found(there)["copy_from"][0]  # as the hint says
    other = create_database(postgres18, shop.name)
    ok, value, _ = found(other.url)["copy_from"]
    assert (ok, "it is of cluster" in value) == (False, True)
    nowhere = found("postgresql://postgres:geheim@127.0.0.1:1")["copy_from"]
    assert (nowhere[0], "geheim" in str(nowhere)) == (False, False)
    with standby_settings(follower, {"hot_standby_feedback": "off"}):
        ok, _, fix = found(there)["hot_standby_feedback"]
        assert (ok, "at the standby" in fix) == (False, True)
    shop.execute("CREATE ROLE nobody LOGIN REPLICATION")
    catch_up(primary, follower)
    refused = found(there.replace("//", "//nobody@"))
    assert refused["select"][2] == 'GRANT SELECT ON "public"."items" TO "nobody";'
