"""`pipeline.copy_rows_per_second`: what a server is asked for, over all sessions of a process."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import time
from types import SimpleNamespace

import psycopg
import pytest

from kuvasz.lake.copies.turns import CopyTurns
from kuvasz.model import TableName
from kuvasz.source import snapshot
from kuvasz.source.conninfo import conninfo
from kuvasz.source.snapshot import CopyRange
from kuvasz.sync.tables import copy_snapshot
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.served import ServedPipeline
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres


def count(request: CopyRange) -> int:
    """Read a range, as an executor does, in a process of its own."""
    return sum(bytes(piece).count(b"\n") for piece in request.read(1 << 20))


# Slow: tables that are copied side by side share the rate below, and test_accounted_for.py has a process keep to it.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "per_session"), [pytest.param(20_000, 100_000, marks=pytest.mark.slow), (40_000, 15_000)]
)
def test_all_sessions_together_keep_to_the_rate(database: Database, rate: int, per_session: int) -> None:
    rows, ranges = 6 * rate // 8, 8
    database.execute(
        f"CREATE TABLE items AS SELECT i, repeat('x', i % 200) AS name FROM generate_series(1, {rows}) i"
    )
    turns = CopyTurns(4, rows_per_session=per_session)
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        exporting = stack.enter_context(psycopg.connect(database.url))
        exporting.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        ((name,),) = exporting.execute("SELECT pg_export_snapshot()").fetchall()
        request = CopyRange(
            conninfo=conninfo(database.url), snapshot_name=name,
            table=TableName(schema="public", name="items"), columns=("i", "name"),
        )  # fmt: skip
        executors = stack.enter_context(concurrent.futures.ProcessPoolExecutor(4, context))
        list(executors.map(count, [request] * 4))  # as warm as Spark's workers
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(4))

        def read(_: int) -> int:
            with turns.turn(request.server, lambda: (rate, None), lambda: False) as rows_per_second:
                return executors.submit(count, request.at_pace(rows_per_second)).result()

        begin = time.monotonic()
        total = sum(threads.map(read, range(ranges)))
        seconds = time.monotonic() - begin
    assert total == ranges * rows
    assert total / seconds <= 1.15 * rate, seconds
    assert total / seconds >= 0.5 * rate, f"much too slow: {seconds}"


@pytest.mark.spark
def test_tables_that_are_copied_side_by_side_share_the_rate(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `/status` says while it lasts how fast each is copied, and how long it takes still."""
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", 8 * 8192)
    tables = {}
    for name in ("first", "second"):
        database.execute(f"CREATE TABLE {name} AS SELECT i AS id FROM generate_series(1, 10000) i")
        database.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
        tables[name] = None
    config = lake_folder.config(group({None: database}, tables), copy_rows_per_second=5000)
    server = config.server.model_copy(update={"address": "127.0.0.1:0"})
    config = config.model_copy(update={"server": server})
    begin = time.monotonic()
    seen: list[tuple[float, float]] = []

    def look() -> bool:
        shown = pipeline.status()["tables"]
        seen.extend((one["copy_rows_per_second"], one["copy_seconds_left"])
                    for one in shown if one["copy_seconds_left"])  # fmt: skip
        return all(one["state"] == "streaming" for one in shown) and len(shown) == len(tables)

    with ServedPipeline(config, lake_folder) as pipeline:
        wait_until(look, "all is copied")
        assert seen
        assert all(0 < rate <= 1.15 * 5000 and left > 0 for rate, left in seen), seen
        assert 20_000 / (time.monotonic() - begin) <= 1.15 * 5000
        for name in tables:
            pipeline.assert_equal(name, source_rows(database.url, name))


@pytest.mark.spark
def test_small_tables_of_a_source_are_copied_in_one_session(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [f"small_{number}" for number in range(12)]
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {table} SELECT i, repeat('x', i) FROM generate_series(1, 30) i")
    opened: list[object] = []
    connect = snapshot.conninfos.connect
    noted = SimpleNamespace(
        **{**vars(snapshot.conninfos), "connect": lambda *arguments: opened.append(0) or connect(*arguments)}
    )
    monkeypatch.setattr(snapshot, "conninfos", noted)
    with Pipeline(lake_folder.config(group({"eu": database}, dict.fromkeys(tables))), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert len(opened) == 1, "the catalog, the rows, and whether they are of what the catalog showed"
        for table in tables:
            database.execute(f"UPDATE {table} SET v = 'y' WHERE id = 1")
        pipeline.wait_applied(database)
        for table in tables:
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))
