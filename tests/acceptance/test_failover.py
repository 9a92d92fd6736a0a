"""A standby takes over: with kuvasz's slot the stream goes on, without it what differs is repaired."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.fix_lake import LakeFolder, Pipeline, wait_until
from tests.fix_postgres import Database
from tests.fix_restore import Confirmations, times_lost
from tests.oracle import source_rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SLOT = "kuvasz_shop"


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data"


@pytest.fixture
def primary() -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(new_folder(), version=18, settings={"synchronous_commit": "on"})
    server.start()
    yield server
    with contextlib.suppress(RuntimeError):  # the test stopped it
        server.stop("immediate")
    server.remove()


def make_standby(primary: EmbeddedPostgres, *, keeps_slots: bool) -> EmbeddedPostgres:
    """A standby, which follows from now on."""
    source = Database(primary, "postgres")
    source.execute("SELECT pg_create_physical_replication_slot('standby', true)")
    settings = {
        "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres",
        "primary_slot_name": "standby", "hot_standby_feedback": "on",
        "sync_replication_slots": "on" if keeps_slots else "off",
    }  # fmt: skip
    standby = EmbeddedPostgres(new_folder(), version=18, settings=settings)
    standby.folder.parent.chmod(0o777)
    standby._run("pg_basebackup", "-D", str(standby.folder), "-d", primary.url(), "-X", "stream", "-c", "fast", "-R")
    standby.start()
    return standby


def catch_up(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    ((end,),) = Database(primary, "postgres").execute("SELECT pg_current_wal_lsn()::text")
    there = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    wait_until(lambda: Database(standby, "postgres").execute(there, (end,)) == [(True,)], "the standby has it all")


@pytest.mark.parametrize("keeps_slots", [True, False])
def test_a_promoted_standby_is_followed(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, keeps_slots: bool
) -> None:
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 3000) i")
    standby = make_standby(primary, keeps_slots=keeps_slots)
    after = Database(standby, "postgres")
    try:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        config = lake_folder.config(
            [{"database": "shop", "urls": [{"url": url}], "tables": {"items": None}, "on_slot_lost": "repair"}]
        )
        with Pipeline(config, lake_folder) as pipeline:
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


@pytest.mark.parametrize("is_ahead", [False, True], ids=["keepalives", "rows"])
def test_a_standby_that_was_late_is_told_nothing_beyond_its_own_wal(
    primary: EmbeddedPostgres, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture, is_ahead: bool
) -> None:
    source = Database(primary, "postgres")
    source.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 300) i")
    standby = make_standby(primary, keeps_slots=True)
    after = Database(standby, "postgres")
    try:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        config = lake_folder.config(
            [{"database": "shop", "urls": [{"url": url}], "tables": {"items": None}, "on_slot_lost": "repair"}]
        )
        with Pipeline(config, lake_folder) as pipeline:
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
