"""Moments of real sources: waited for, looked up in the lake without Spark, and read by the engines."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kuvasz.admin.observer import Observer
from kuvasz.admin.server import serve
from kuvasz.admin.views import status
from kuvasz.app import App
from kuvasz.config import sources as config_sources
from kuvasz.config.load import load
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.maintenance import run_once
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from kuvasz.sync.rules.targets import target_of
from tests.support import duckdb_iceberg
from tests.support.lake import LakeFolder, MemoryPipeline, Pipeline, group, on_a_branch
from tests.support.postgres import Database, create_database, drop_database
from tests.support.verb_runs import Run, verb_runs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROWS = "SELECT id, n FROM {} ORDER BY id"


@pytest.fixture
def kuvasz(lake_folder: LakeFolder, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a verb on the test's map; returns exit code and JSON."""
    return verb_runs(lake_folder, capsys)


class ServedPipeline(Pipeline):
    """kuvasz with its HTTP server, on a port of its own."""

    def __init__(self, databases: list[dict], lake: LakeFolder) -> None:
        lake.config(databases)
        file = lake.folder / "map.yaml"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"server": {"address": "127.0.0.1:0"}}))
        super().__init__(load(file, {}).config, lake)

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        lake = IcebergLake(self.config, state_of(self.config).witness, self.folder.session)
        self.app = App(self.config, lake=lake)
        await asyncio.to_thread(lake.open)
        async with serve(self.app, state_of(self.config), set()):
            self._ready.set()
            return await self.app.run()


class Moments:
    """What sources had at moments, told by them."""

    def __init__(self, **databases: Database) -> None:
        self._databases = databases
        self.known: list[tuple[dict[str, str], str, dict[str, list[tuple]]]] = []  #: LSNs, time, rows

    def note(self, tables: tuple[str, ...]) -> None:
        """Note what is there now, and nothing else."""
        lsns, rows = {}, {name: [] for name in tables}
        for sid, database in self._databases.items():
            for name in tables:
                rows[name] += [(sid, *row) for row in database.execute(ROWS.format(name))]
            ((lsns[sid],),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        ((at,),) = database.execute("SELECT clock_timestamp()::text")
        self.known.append((lsns, at, rows))


def read(lake: LakeFolder, table: dict[str, Any]) -> list[list[tuple]]:
    """Read a table by what `asof` says, in Spark and PyIceberg; the rows of each."""
    catalog = SqlCatalog(lake.catalog, **lake.pyiceberg)
    arrow = eval(table["queries"]["pyiceberg"], {"catalog": catalog})  # noqa: S307 (what a person would paste)
    assert isinstance(arrow, pa.Table)
    spark = lake.session.sql(table["queries"]["spark"]).collect()
    found = [
        [(row["sid"], row["id"], row["n"]) for row in arrow.to_pylist()],
        [(row["sid"], row["id"], row["n"]) for row in spark],
    ]
    return [sorted(rows) for rows in found]


def expire(lake: LakeFolder, *tables: str) -> None:
    """Leave the newest snapshots alone."""
    for name in tables:
        lake.session.sql(
            f"CALL {lake.catalog}.system.expire_snapshots(table => 'shop.{name}',"
            " older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
        )


def change(database: Database, number: int) -> None:
    for name in ("items", "prices"):
        database.execute(f"INSERT INTO {name} VALUES ({number + 100}, 0)")
        database.execute(f"UPDATE {name} SET n = n + 1 WHERE id % 3 = {number % 3}")
        database.execute(f"DELETE FROM {name} WHERE id = {number + 1}")


@on_a_branch
def test_each_moment_is_waited_for_found_and_read(
    database: Database, postgres18: Any, lake_folder: LakeFolder, kuvasz: Run
) -> None:
    other = create_database(postgres18)
    tables = ("items", "prices")
    try:
        known = Moments(eu=database, us=other)
        for one in (database, other):
            for name in tables:
                one.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
                one.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
        mapped: dict[str, dict | None] = {"items": None, "prices": {"type": "history"}}
        with ServedPipeline(group({"eu": database, "us": other}, mapped), lake_folder) as pipeline:
            pipeline.wait_streaming()
            for number in range(2):
                change((database, other)[number % 2], number)
                assert kuvasz("wait", "--timeout", "5m")[0] == 0
                known.note(tables)
            lsns, _, _ = known.known[-1]
            code, waited = kuvasz("wait", "--lsn", f"eu:{lsns['eu']}", "--table", "items", "--timeout", "5m")
            assert (code, [one["source"] for one in waited["tables"]]) == (0, ["shop_eu"])
            code, waited = kuvasz("wait", "--lsn", "eu:FFFF/0", "--timeout", "0")
            assert (code, [one["is_there"] for one in waited["tables"]]) == (1, [False, False])
        for lsns, at, rows in known.known:
            given = [part for sid, lsn in lsns.items() for part in ("--lsn", f"{sid}:{lsn}")]
            for moment in (given, ["--time", at]):
                code, found = kuvasz("asof", *moment)
                assert code == 0, found
                for table in found["tables"]:
                    expected = sorted(rows[table["target"].removeprefix("shop.")])
                    assert read(lake_folder, table) == [expected, expected], (moment, table)
        code, found = kuvasz("asof", "--time", "2020-01-01", "--table", "items")
        assert (code, found["tables"][0]["snapshot_id"]) == (1, None)
        assert "its first snapshot shows more than that" in found["tables"][0]["why_not"]
        expire(lake_folder, *tables)
        lsns, at, rows = known.known[0]
        code, found = kuvasz("asof", "--lsn", f"eu:{lsns['eu']}", "--lsn", f"us:{lsns['us']}")
        assert (code, [table["snapshot_id"] for table in found["tables"]]) == (1, [None, None])
        assert "snapshots of that moment are gone; the oldest that is left" in found["tables"][0]["why_not"]
        code, found = kuvasz("asof", "--time", at)
        clone, history = found["tables"]
        assert (code, clone["snapshot_id"]) == (1, None)
        assert read(lake_folder, history) == [sorted(rows["prices"])] * 2
    finally:
        drop_database(other)


#: As the lake calls them; each has `id` and `n`, which is renamed.
TYPES: dict[str, dict[str, Any] | None] = {
    "items": None, "soft": {"deletes": "soft"}, "past": {"type": "history"}, "log": {"type": "changelog"},
    "kept": {"type": "append"}, "bag": None, "ev": {"partitions_regex": "ev_[0-9]"},
}  # fmt: skip
#: Tables of the source.
SOURCES = [name for name in TYPES if name != "ev"] + ["ev_1", "ev_2"]


def plain(rows: list[dict[str, Any]]) -> list[tuple]:
    """Return what counts of rows: columns of before a schema change have none of those that came with it."""
    return sorted(
        (
            (row["id"], row.get("n", row.get("m")), row.get("extra"), row.get("_op"), row.get("_deleted_at") is None)
            for row in rows
        ),
        key=str,
    )


class Times:
    """What tables of all types showed, one after another, with where their source was then."""

    def __init__(self, lake: LakeFolder, database: Database) -> None:
        self._lake, self._database = lake, database
        self.known: list[tuple[str, str, dict[str, list[tuple]]]] = []  #: LSN, time, rows

    def change(self, pipeline: Pipeline, *statements: str) -> None:
        """Have each table of the source change, and note what the lake shows then."""
        for name in SOURCES:
            for statement in statements:
                self._database.execute(statement.format(name))
        pipeline.wait_applied(self._database)
        ((lsn, at),) = self._database.execute("SELECT pg_current_wal_insert_lsn()::text, clock_timestamp()::text")
        self.known.append((lsn, at, {name: self._shown(name) for name in TYPES}))

    def _shown(self, name: str) -> list[tuple]:
        rows = self._lake.session.table(f"{self._lake.catalog}.shop.{name}").toArrow().to_pylist()
        shown = plain([row for row in rows if "kvsz_end" not in row or row["kvsz_end"].year == 9999])
        if name in {"items", "past", "bag"}:
            there = self._database.execute(f"SELECT * FROM {name}")
            assert sorted(row[:2] for row in shown) == sorted(row[:2] for row in there)
        return shown


@pytest.mark.slow
@pytest.mark.parametrize("format_version", [3, 2])
def test_all_types_are_read_as_they_were_through_compaction_columns_keys_and_a_restart(
    database: Database, lake_folder: LakeFolder, kuvasz: Run, format_version: int
) -> None:
    """Of format 2 by DuckDB as well, if `make duckdb` has fetched it: its extension knows no deletion vectors."""
    lake_folder.format_version = format_version
    for name in SOURCES:
        database.execute(f"CREATE TABLE {name} (id int {'' if name == 'bag' else 'PRIMARY KEY'}, n int)")
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    config = lake_folder.config(group({"eu": database}, TYPES))
    times = Times(lake_folder, database)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: set(pipeline.states().values()) == {State.STREAMING}, "all tables stream")
        times.change(pipeline, "UPDATE {} SET n = 1 WHERE id < 5", "DELETE FROM {} WHERE id = 9")
        times.change(pipeline, "UPDATE {} SET id = id + 1000 WHERE id IN (1, 11)", "INSERT INTO {} VALUES (9, 9)")
        times.change(pipeline, "ALTER TABLE {} ADD extra text", "ALTER TABLE {} RENAME n TO m",
                     "UPDATE {} SET extra = 'more', m = 5 WHERE id IN (2, 1001)")  # fmt: skip
    specs = config_sources.resolve(config)[0].tables
    run_once.maintain(config, list(map(target_of, specs)), full=True, session=lake_folder.session)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: set(pipeline.states().values()) == {State.STREAMING}, "all tables stream")
        times.change(pipeline, "UPDATE {} SET m = 7 WHERE id IN (3, 4, 1001)", "DELETE FROM {} WHERE id = 2")
        times.change(pipeline, "TRUNCATE {}", "INSERT INTO {} VALUES (1, 1, 'anew')")
    catalog = SqlCatalog(lake_folder.catalog, **lake_folder.pyiceberg)
    for number, (lsn, at, shown) in enumerate(times.known):
        for moment in (("--lsn", f"eu:{lsn}"), ("--time", at)):
            code, found = kuvasz("asof", *moment)
            assert (code, len(found["tables"])) == (0, len(TYPES)), found
            for table in found["tables"]:
                name = table["target"].removeprefix("shop.")
                arrow = eval(table["queries"]["pyiceberg"], {"catalog": catalog})  # noqa: S307 (what people paste)
                spark = lake_folder.session.sql(table["queries"]["spark"]).toArrow()
                for rows in (arrow, spark):
                    assert plain(rows.to_pylist()) == shown[name], (number, moment, name)
            if format_version == 2 and duckdb_iceberg.is_here:
                answers = duckdb_iceberg.ask([table["queries"]["duckdb"] for table in found["tables"]])
                for table, rows in zip(found["tables"], answers, strict=True):
                    name = table["target"].removeprefix("shop.")
                    assert plain(rows) == shown[name], (number, moment, name, "DuckDB")


def test_a_table_is_valid_through_what_is_in_it_and_moves_while_idle(
    database: Database, lake_folder: LakeFolder, kuvasz: Run
) -> None:
    def now() -> str:
        ((at,),) = database.execute("SELECT clock_timestamp()::text")
        return at

    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    with ServedPipeline(group({"eu": database}, {"items": None}), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert kuvasz("wait", "--through", now(), "--timeout", "5m")[0] == 0, "nothing was committed"
        with database.connect() as session:
            session.execute("INSERT INTO items VALUES (1, 1)")
            begun = now()
            code, waited = kuvasz("wait", "--through", begun, "--timeout", "5m")
            assert (code, pipeline.rows("items")) == (0, []), "what has not committed is of a later time"
        assert kuvasz("wait", "--timeout", "5m")[0] == 0
        assert pipeline.rows("items") == [(1, 1)]
        code, waited = kuvasz("wait", "--through", "2999-01-01", "--timeout", "0")
        assert (code, waited["tables"][0]["behind_seconds"] > 1e9) == (1, True)
        pipeline.tell("pause", "shop.items", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.items", State.PAUSED)
        code, waited = kuvasz("wait", "--through", now(), "--timeout", "5m")
        (table,) = waited["tables"]
        assert (code, table["why"], table["hint"]) == (5, "it is paused", "kuvasz resume --table shop.items")
    with pytest.raises(AssertionError, match="no kuvasz runs"):
        kuvasz("wait")


class Writer(threading.Thread):
    """Commits row after row, each with a time by which it had committed, by the source's clock."""

    def __init__(self, database: Database) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._is_done = threading.Event()
        self.committed: list[tuple[int, float]] = []

    def run(self) -> None:
        with self._database.connect(autocommit=True) as session:
            for number in itertools.count():
                if self._is_done.is_set():
                    return
                session.execute("INSERT INTO items VALUES (%s, 0)", (number,))
                session.execute("INSERT INTO others VALUES (%s, 0)", (number,))
                ((at,),) = session.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
                self.committed.append((number, at))

    def stop(self) -> None:
        self._is_done.set()
        self.join()


class Looks:
    """Looks at what is said of two tables, and holds it against what is in them."""

    def __init__(self, pipeline: MemoryPipeline, writer: Writer) -> None:
        self._pipeline = pipeline
        self._writer = writer
        self._observer = Observer(pipeline.app)
        self.said: dict[str, set[str]] = {"items": set(), "others": set()}

    def look(self) -> None:
        self._observer._watch._ask([sync.source for sync in self._pipeline.app.sources])
        (source,) = status(self._observer.snapshot())["sources"]
        for table in source["tables"]:
            if table["valid_through"] is not None:
                name, at = table["target"].removeprefix("shop."), table["valid_through"]
                self.said[name].add(at)
                through = datetime.datetime.fromisoformat(at).timestamp()
                due = {number for number, when in tuple(self._writer.committed) if when <= through}
                there = set(self._pipeline.lake.rows(f"shop.{name}").column("id").to_pylist())
                assert due <= there, (table, len(due - there))

    def until_news_of(self, name: str) -> None:
        """Look until more is said of a table than was at any time before."""
        before = max(self.said[name], default="")
        wait_until(lambda: (self.look(), max(self.said[name], default="") > before)[1], f"{name} moves on")


def test_a_snapshot_says_when_the_last_commit_was_that_it_has(database: Database, lake_folder: LakeFolder) -> None:
    """By the lines of docs/reading.md, which say the same while nothing comes for the table."""
    page = (Path(__file__).parents[2] / "docs" / "reading.md").read_text("utf-8")
    ((query, line),) = re.findall(
        r"## How far a snapshot is\n.*?```sql\n(.*?)```.*?PyIceberg `(.*?)`", page, re.DOTALL
    )
    query = query.replace("kuvasz.shop.orders", f"{lake_folder.catalog}.shop.orders")
    catalog = SqlCatalog(lake_folder.catalog, **lake_folder.pyiceberg)

    def told() -> tuple[datetime.datetime | None, int | None]:
        ((at,),) = lake_folder.session.sql(query).collect()
        table = catalog.load_table("shop.orders")
        has_time = table.properties["kuvasz.position.shop_eu"].split(";")[4] != ""
        return at and at.astimezone(datetime.UTC), eval(line, {"table": table}) if has_time else None  # noqa: S307

    def commit(statement: str) -> tuple[datetime.datetime, datetime.datetime]:
        begin = database.execute("SELECT clock_timestamp()")[0][0]
        database.execute(statement)
        end = database.execute("SELECT clock_timestamp()")[0][0]
        pipeline.wait_applied(database)
        return begin, end

    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    database.execute("CREATE TABLE others (id int PRIMARY KEY)")
    database.execute("INSERT INTO orders VALUES (1)")
    tables = dict.fromkeys(("orders", "others"))
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert told() == (None, None), "a copy has none"
        for number in (2, 3):
            begin, end = commit(f"INSERT INTO orders VALUES ({number})")
            at, since_2000 = told()
            assert at is not None
            assert begin <= at <= end
            assert since_2000 == (at - datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(
                microseconds=1
            )
        commit("INSERT INTO others VALUES (1)")
        assert told() == (at, since_2000), "nothing came for this table"


def test_valid_through_is_never_ahead_of_the_truth(database: Database, lake_folder: LakeFolder) -> None:
    """Under load, while tables are paused, resumed and copied again, and the reader goes back each time."""
    for name in ("items", "others"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with MemoryPipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        writer = Writer(database)
        looks = Looks(pipeline, writer)
        writer.start()
        looks.until_news_of("items")
        for verb, name, other in (
            ("pause", "items", "others"), ("resume", "items", "others"), ("resync", "others", "items"),
            ("pause", "others", "items"), ("resume", "others", "items"), ("resync", "items", "others"),
        ):  # fmt: skip
            pipeline.tell(verb, f"shop.{name}", "shop_eu")
            looks.until_news_of(other)
            if verb != "pause":
                looks.until_news_of(name)
        writer.stop()
        pipeline.wait_applied(database)


def test_a_commit_with_the_time_of_another_server_makes_nothing_valid(
    database: Database, lake_folder: LakeFolder
) -> None:
    """What a subscription applies has the time at which its publisher committed it, by that one's clock."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("CREATE TABLE others (id int PRIMARY KEY, n int)")
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with MemoryPipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        observer = Observer(pipeline.app)
        observer.look()
        database.execute("SELECT pg_replication_origin_create('elsewhere')")
        try:
            with database.connect() as session:
                session.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
                session.execute("SELECT pg_replication_origin_xact_setup('0/1', now() + '1 hour')")
                session.execute("INSERT INTO items VALUES (1, 0)")
            pipeline.wait_applied(database)
            assert len(pipeline.lake.rows("shop.items")) == 1
            observer._watch._ask([sync.source for sync in pipeline.app.sources])
            (source,) = status(observer.snapshot())["sources"]
            ((clock,),) = database.execute("SELECT clock_timestamp()")
            for table in source["tables"]:
                assert datetime.datetime.fromisoformat(table["valid_through"]) <= clock
            assert datetime.datetime.fromisoformat(source["fresh_at"]) <= clock
        finally:
            database.execute("SELECT pg_replication_origin_drop('elsewhere')")
