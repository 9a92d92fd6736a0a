"""A standby takes over: with kuvasz's slot the stream goes on, without it what differs is repaired."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.copies.copy_commits import CopiedTable, CopyCommits
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline
from tests.support.oracle import source_rows
from tests.support.postgres import Database, Server, needs
from tests.support.restore import Confirmations, times_lost
from tests.support.standby import catch_up, make_standby, new_folder, removed_after
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SLOT = "kuvasz_shop"


@pytest.fixture
def primary() -> Iterator[EmbeddedPostgres]:
    server = Server(new_folder(), settings={"synchronous_commit": "on"})
    needs(server, 17, "slots that a standby keeps")
    server.start()
    with removed_after(server):
        yield server


def wal_end(database: Database) -> int:
    ((end,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return int(end)


def of_whoever_leads(primary: EmbeddedPostgres, standby: EmbeddedPostgres, *tables: str) -> list[dict[str, Any]]:
    """The map of a source behind two hosts."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    mapped = dict.fromkeys(tables or ("items",))
    return [{"database": "shop", "urls": [{"url": url}], "tables": mapped, "on_slot_lost": "repair"}]


@pytest.mark.parametrize("keeps_slots", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_promoted_standby_is_followed(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, keeps_slots: bool
) -> None:
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 3000) i")
    standby = make_standby(primary, keeps_slots=keeps_slots)
    after = Database(standby, "postgres")
    try:
        with Pipeline(lake_folder.config(of_whoever_leads(primary, standby)), lake_folder) as pipeline:
            pipeline.wait_streaming()
            assert source.execute("SELECT failover FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)) == [
                (True,)
            ]
            source.execute("UPDATE items SET n = 1 WHERE id < 10")
            if keeps_slots:
                kept = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
                wait_until(lambda: after.execute(kept, (SLOT,)), "the standby has the slot")
            wait_until(lambda: (5, 1) in pipeline.rows("items"), "streamed")
            catch_up(primary, standby)
            primary.stop("immediate")
            standby._run("pg_ctl", "-D", str(standby.folder), "-w", "promote")
            after.execute("UPDATE items SET n = 2 WHERE id BETWEEN 5 AND 20")
            after.execute("DELETE FROM items WHERE id > 2990")
            after.execute("INSERT INTO items VALUES (5000, 5)")
            wait_until(lambda: after.execute("SELECT 1 FROM pg_replication_slots WHERE active"), "it is followed")
            wait_until(lambda: not pipeline.errors(), "nothing is wrong")
            after.execute("UPDATE items SET n = 3 WHERE id = 30")
            wait_until(lambda: (30, 3) in pipeline.rows("items"), "it streams")
            pipeline.wait_state("shop", "shop.items", State.STREAMING)
            pipeline.assert_equal("items", source_rows(after.url, "items"))
            assert pipeline.app.states.get("shop.items", "shop").copies == 1, "nothing was copied again"
            found = pipeline.app.lake.table("shop.items").notes.gaps("shop")
            assert len(found) == (0 if keeps_slots else 1)
    finally:
        standby.stop("immediate")
        standby.remove()


@pytest.mark.parametrize(
    "is_ahead", [pytest.param(False, id="keepalives", marks=pytest.mark.slow), pytest.param(True, id="rows")]
)
def test_a_standby_that_was_late_is_told_nothing_beyond_its_own_wal(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture, is_ahead: bool
) -> None:
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 300) i")
    standby = make_standby(primary, keeps_slots=True)
    after = Database(standby, "postgres")
    try:
        with Pipeline(lake_folder.config(of_whoever_leads(primary, standby)), lake_folder) as pipeline:
            pipeline.wait_streaming()
            kept = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
            wait_until(lambda: after.execute(kept, (SLOT,)), "the standby has the slot")
            catch_up(primary, standby)
            standby.stop()
            source.execute("CREATE TABLE unmapped AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
            if is_ahead:
                source.execute("UPDATE items SET n = 1 WHERE id < 10")
            ((end,),) = source.execute("SELECT pg_current_wal_insert_lsn()::text")
            told = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
            wait_until(lambda: source.execute(told, (end, SLOT)) == [(True,)], "all of it is confirmed")
            primary.stop("immediate")
            standby.start()
            standby._run("pg_ctl", "-D", str(standby.folder), "-w", "promote")
            ((now,),) = after.execute("SELECT %s::pg_lsn - pg_current_wal_insert_lsn()", (end,))
            assert now > 0, "it is late"
            with Confirmations(after):
                after.execute("UPDATE items SET n = 2 WHERE id BETWEEN 5 AND 20")
                wait_until(lambda: (20, 2) in pipeline.rows("items"), f"it is followed: {pipeline.errors()}")
                standby.restart("immediate")
                after.execute("UPDATE items SET n = 3 WHERE id = 30")
                wait_until(lambda: (30, 3) in pipeline.rows("items"), f"it streams: {pipeline.errors()}")
            pipeline.assert_equal("items", source_rows(after.url, "items"))
            assert pipeline.app.states.get("shop.items", "shop").copies == 1, "nothing was copied again"
            assert len(pipeline.app.lake.table("shop.items").notes.gaps("shop")) == int(is_ahead)
            assert times_lost(caplog) == int(is_ahead)
    finally:
        standby.stop("immediate")
        standby.remove()


@pytest.mark.slow
def test_a_slot_that_somebody_makes_anew_on_a_standby_that_was_late_has_a_gap(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """It stands before what was confirmed to the old primary, and behind where that was left."""
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 300) i")
    standby = make_standby(primary, keeps_slots=False)
    after = Database(standby, "postgres")
    try:
        config = lake_folder.config(of_whoever_leads(primary, standby))
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            catch_up(primary, standby)
            standby.stop()
            source.execute("CREATE TABLE unmapped AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
            ((end,),) = source.execute("SELECT pg_current_wal_insert_lsn()::text")
            told = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
            wait_until(lambda: source.execute(told, (end, SLOT)) == [(True,)], "all of it is confirmed")
        primary.stop("immediate")
        standby.start()
        standby._run("pg_ctl", "-D", str(standby.folder), "-w", "promote")
        after.execute("UPDATE items SET n = 2 WHERE id BETWEEN 5 AND 20")
        after.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        made = "SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        assert after.execute(made, (end, SLOT)) == [(True,)]
        with Pipeline(config, lake_folder) as pipeline:
            after.execute("UPDATE items SET n = 3 WHERE id = 30")
            wait_until(lambda: (30, 3) in pipeline.rows("items"), f"it streams: {pipeline.errors()}")
            pipeline.wait_streaming()
            pipeline.assert_equal("items", source_rows(after.url, "items"))
            assert times_lost(caplog) == 1
    finally:
        standby.stop("immediate")
        standby.remove()


@pytest.mark.slow
def test_a_copy_of_the_old_primary_is_not_taken_for_one_of_the_new(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_commit, is_read = threading.Event(), threading.Event()
    commit, copies = CopyCommits.commit, []

    def late_commit(commits: CopyCommits, copied: CopiedTable) -> object:
        if copied.order.table.name == "shop.late":
            copies.append(copied.position)
            if len(copies) == 2:
                is_read.set()
                may_commit.wait(120)
        return commit(commits, copied)

    monkeypatch.setattr(CopyCommits, "commit", late_commit)
    source = Database(primary, "postgres")
    for name in ("items", "late"):
        source.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        source.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 300) i")
    standby = make_standby(primary, keeps_slots=True)
    after = Database(standby, "postgres")
    try:
        with Pipeline(
            lake_folder.config(of_whoever_leads(primary, standby, "items", "late")), lake_folder
        ) as pipeline:
            pipeline.wait_streaming()
            kept = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
            wait_until(lambda: after.execute(kept, (SLOT,)), "the standby has the slot")
            catch_up(primary, standby)
            standby.stop()
            source.execute("CREATE TABLE unmapped AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
            pipeline.tell("resync", "shop.late", "shop")
            wait_until(is_read.is_set, "the copy is read")
            primary.stop("immediate")
            standby.start()
            standby._run("pg_ctl", "-D", str(standby.folder), "-w", "promote")
            wait_until(lambda: after.execute("SELECT 1 FROM pg_replication_slots WHERE active"), "it is followed")
            after.execute("UPDATE late SET n = 2 WHERE id = 2")
            after.execute("INSERT INTO late VALUES (1000, 1000)")
            assert wal_end(after) < copies[1].lsn, "the copy's snapshot was in what the standby lacks"
            while wal_end(after) <= copies[1].lsn:
                after.execute("CREATE TABLE more AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
                after.execute("DROP TABLE more")
            may_commit.set()
            wait_until(lambda: len(copies) > 2, "it is copied again")
            after.execute("UPDATE late SET n = 3 WHERE id = 3")
            wait_until(lambda: (3, 3) in pipeline.rows("late"), "it streams")
            pipeline.wait_streaming()
            pipeline.assert_equal("late", source_rows(after.url, "late"))
    finally:
        may_commit.set()
        standby.stop("immediate")
        standby.remove()


@pytest.mark.slow
@pytest.mark.parametrize("instead", ["c", "d"])
def test_a_column_of_the_old_primary_is_not_taken_for_one_of_the_new(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.5)
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, i FROM generate_series(1, 300) i")
    standby = make_standby(primary, keeps_slots=True)
    after = Database(standby, "postgres")
    try:
        with Pipeline(lake_folder.config(of_whoever_leads(primary, standby)), lake_folder) as pipeline:
            pipeline.wait_streaming()
            kept = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
            wait_until(lambda: after.execute(kept, (SLOT,)), "the standby has the slot")
            catch_up(primary, standby)
            standby.stop()
            source.execute("ALTER TABLE items ADD COLUMN c int DEFAULT 5")
            wait_until(
                lambda: "c" in pipeline.app.lake.notes.columns("shop.items", "shop").live, "the patrol has seen it"
            )
            primary.stop("immediate")
            standby.start()
            standby._run("pg_ctl", "-D", str(standby.folder), "-w", "promote")
            after.execute(f"ALTER TABLE items ADD COLUMN {instead} int DEFAULT 7")
            wait_until(lambda: after.execute("SELECT 1 FROM pg_replication_slots WHERE active"), "it is followed")
            after.execute("UPDATE items SET n = 0 WHERE id = 3")
            wait_until(lambda: any(row[:2] == (3, 0) for row in pipeline.rows("items")), "it streams")
            pipeline.wait_streaming()
            expected = {3: (0, 7)} | {i: (i, 7) for i in range(1, 301) if i != 3}
            name = f"{lake_folder.catalog}.shop.items"

            def found() -> dict[int, tuple[int, int]]:
                rows = lake_folder.session.sql(f"SELECT id, n, {instead} FROM {name}").collect()
                return {row[0]: (row[1], row[2]) for row in rows}

            wait_until(lambda: instead in lake_folder.session.table(name).columns and found() == expected, "all rows")
    finally:
        standby.stop("immediate")
        standby.remove()
