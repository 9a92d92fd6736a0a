"""Looks at the catalog beside transactions that are under way, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import SourceLocked
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.catalog import look, sizes
from kuvasz.source.catalog.look import Look
from kuvasz.source.catalog.table import SourceTable
from kuvasz.sync.watch import schema_watch
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, Server, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

ITEMS, OTHERS = TableName(schema="public", name="items"), TableName(schema="public", name="others")


@pytest.fixture(params=[16, 18])
def source(request: pytest.FixtureRequest) -> Iterator[Database]:
    made = create_database(request.getfixturevalue(f"postgres{request.param}"))
    for table in ("items", "others"):
        made.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
    yield made
    drop_database(made)


def test_a_transaction_that_is_not_over_is_named_however_new_it_is(source: Database) -> None:
    """A snapshot's own list leaves out whoever is newer than the last that ended."""
    with source.connect() as other, conninfo.connect(source.url) as connection:
        ((xid,),) = other.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        seen = look.tables(connection, [ITEMS])[ITEMS].relation.seen
        assert seen is not None
        assert xid % (1 << 32) in seen.running
        other.commit()
        seen = look.tables(connection, [ITEMS])[ITEMS].relation.seen
        assert seen is not None
        assert xid % (1 << 32) not in seen.running


def test_a_look_waits_for_no_lock_of_somebody_else_but_a_size_does(source: Database) -> None:
    source.execute("CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    source.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)")
    source.execute("INSERT INTO items SELECT i, i FROM generate_series(1, 9) i")
    names = [ITEMS, OTHERS, TableName(schema="public", name="parted")]
    with source.connect() as other, conninfo.connect(source.url) as connection:
        other.execute("LOCK TABLE others, parted_1 IN ACCESS EXCLUSIVE MODE")
        connection.execute("SET lock_timeout = '50ms'")
        found = look.tables(connection, names, ["p"])
        assert set(found) == set(names)
        assert [found[name].bytes for name in names] == [None, None, None]
        for name in names[1:]:
            with pytest.raises(SourceLocked, match="lock timeout"):
                sizes.sized(connection, found[name])
        now = sizes.sized_unless_locked(connection, list(found.values()))
        assert {table.table: table.bytes for table in now} == dict(zip(names, [8192, None, None], strict=True))
        other.rollback()
        now = sizes.sized_unless_locked(connection, list(found.values()))
        assert {table.table: table.bytes for table in now} == dict(zip(names, [8192, 0, 0], strict=True))


@pytest.mark.spark
def test_a_table_that_somebody_locks_keeps_no_other_from_its_changes(
    database: Database, lake_folder: LakeFolder
) -> None:
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} VALUES (1, 0)")
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("LOCK TABLE others IN ACCESS EXCLUSIVE MODE")
            database.execute("ALTER TABLE items ADD extra text")
            database.execute("INSERT INTO items VALUES (2, 0, 'new')")
            wait_until(lambda: len(pipeline.rows("items")) == 2, "the other one's row is there")
        pipeline.wait_applied(database)
        assert pipeline.errors() == []
        for table in ("items", "others"):
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))


@pytest.mark.spark
def test_a_look_beside_another_table_says_nothing_of_a_transaction_it_does_not_show(
    tmp_path: Path, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit waits for a standby: it is in the WAL and in the stream, and no snapshot shows it."""
    settings = {"wal_level": "logical", "synchronous_commit": "on"}
    with Server(tmp_path / "server", settings=settings) as server, ThreadPoolExecutor(1) as threads:
        source, waiting = create_database(server), list[Future[object]]()
        for table in ("items", "others"):
            source.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
            source.execute(f"INSERT INTO {table} VALUES (1, 1)")
        with source.connect(autocommit=True) as session:
            session.execute("SET synchronous_commit = local")

            def alter() -> None:
                with source.connect() as other:
                    other.execute("ALTER TABLE others DROP v")
                    other.execute("ALTER TABLE others ADD v int")
                    other.execute("INSERT INTO others VALUES (2, 2)")

            looked = look.tables

            def look_late(*given: Any) -> tuple[Look, dict[TableName, SourceTable]]:
                if not waiting:
                    waiting.append(threads.submit(alter))
                    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                    wait_until(lambda: session.execute(query).fetchone() == (1,), "it waits for its standby")
                return look.look(*given)

            def tables_then(*given: Any, **options: Any) -> dict[TableName, SourceTable]:
                try:
                    return looked(*given, **options)  # who alters a table locks it, too, until he is over
                finally:
                    session.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                    session.execute("SELECT pg_reload_conf()")

            config = lake_folder.config(group({"eu": source}, {"items": None, "others": None}))
            with Pipeline(config, lake_folder) as pipeline:
                pipeline.wait_streaming()
                monkeypatch.setattr(schema_watch, "look", look_late)
                monkeypatch.setattr(look, "tables", tables_then)
                session.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                session.execute("SELECT pg_reload_conf()")
                session.execute("INSERT INTO items VALUES (2, 2)")
                wait_until(lambda: waiting and waiting[0].done(), "the standby is given up")
                session.execute("UPDATE others SET v = 3 WHERE id = 1")
                pipeline.wait_streaming()
                pipeline.wait_applied(source)
                assert pipeline.errors() == []
                pipeline.assert_equal("items", source_rows(source.url, "items", sid="eu"))
                assert sorted(pipeline.rows("others"), key=str) == [(1, None, 3), (2, None, 2)], "id, v as it was, v"
