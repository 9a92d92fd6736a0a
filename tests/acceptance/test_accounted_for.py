"""Every row accounted for: whatever happens to a table, it equals its source when it follows again, or says why not.

Many tables of three sources go through a mishap each, while the installed command streams, is killed, starts, is
killed amid a backlog and starts again. `tests/support/mishaps.py` has the recipes. Other mishaps have a place of
their own:

| what happens | test |
|---|---|
| a table renamed, streaming or paused; out of the map, or of the publication, and back | here |
| a lake table set back; a value of a type that has no place for it; a slow copy | here |
| columns listed by hand, swapped, dropped and added again, named anew after what comes again | here |
| a large transaction of a table without a key, while another source of it is looked at | here |
| rewritten or defaulted without a row; types and partitions that change; expressions over new names | here |
| a source restored to an older state; another cluster; a lost slot of a stopped source | `test_another_past.py` |
| a table that nobody may publish; a key that is hidden | `test_another_past.py` |
| a standby that takes over | `test_failover.py` |
| partitions truncated, dropped, detached, attached | `test_partitions.py` |
| a store or catalog that fails for one table | `test_stuck_tables.py` |
| two processes on one state folder | `test_state_folder.py` |
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import sqlite3
from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from kuvasz.config.load import load
from kuvasz.config.names import object_name
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.lake.jvm import spark
from kuvasz.verbs import verify
from tests.support import mishaps, oracle
from tests.support.lake import group
from tests.support.mishaps import LOOKS, MISHAPS, Mishap, Told, View
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process, confirmed

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

#: Of the map, and how many rows the table has that is copied at that pace.
PACE, PACED_ROWS = 2500, 10_000

#: Its table in the lake is dropped, so that its source keeps all WAL, and everything comes again after a kill.
HOSTAGE = "hostage"

#: Tables that the scene sets back in the lake: one while kuvasz streams, the other while it does not run.
ROLLED, RESTORED = "rolled", "restored"

#: What does not happen within this time does not happen: the catalog is looked at every 30 s.
PATIENCE_S = 90.0


class Scene:
    """Three databases of three sources, the lake they share, and kuvasz in three runs.

    Args:
        shop: Its source has no sid.
        eu: Feeds the same tables as `us`.
        us: Publishes all of its tables.
    """

    def __init__(self, shop: Database, eu: Database, us: Database) -> None:
        self.shop, self.eu, self.us = shop, eu, us
        self.runs: list[list[dict]] = []
        self.output: list[str] = []
        self.never: dict[str, str] = {}  #: mishap, or what else was to be -> what never happened
        self.states: dict[str, str] = {}  #: source, table -> state in the end
        options = {"copy_rows_per_second": PACE, "transaction_spill_bytes": "64kB", "memory": "8MB"}
        self.process = Process(self._map(0), pipeline=options, address="127.0.0.1:0")

    def _map(self, run: int) -> list[dict]:
        tables: dict[bool, dict] = {False: {HOSTAGE: None}, True: {}}
        for mishap in MISHAPS.values():
            tables[mishap.in_both] |= mishap.entries(run)
        return [
            *group({None: self.shop}, tables[False]), *group({"eu": self.eu, "us": self.us}, tables[True], "depot")
        ]  # fmt: skip

    def do(self, phase: str) -> None:
        """Run a phase's scripts of all mishaps."""
        for mishap in MISHAPS.values():
            for database in [self.eu, self.us] if mishap.in_both else [self.shop]:
                is_other = phase == "live" and database is self.us
                with database.connect(autocommit=True) as session:
                    mishaps.run(session, mishap.other if is_other else getattr(mishap, phase))

    # The three runs

    def play(self) -> None:
        """Have everything happen."""
        self.us.execute(
            f"CREATE PUBLICATION {object_name('depot', 'us')} FOR ALL TABLES WITH (publish_via_partition_root = true)"
        )
        self.shop.execute(f"CREATE TABLE {HOSTAGE} (id int PRIMARY KEY)")
        self.do("make")
        self.stream()
        self.set_back(RESTORED)
        self.do("stopped")
        self.process.write_map(self._map(1))
        with contextlib.ExitStack() as refused:
            for table in LOOKS:
                refused.enter_context(self.refusing_data(table))
            self.begin_backlog()
        self.do("backlog")
        self.process.write_map(self._map(2))
        self.end_backlog()

    def stream(self) -> None:
        """Copy all tables, and have them meet their mishaps."""
        self.process.start()
        tables = sum(len(mishap.tables) * (1 + mishap.in_both) for mishap in MISHAPS.values()) + 1
        self.process.wait_event("copied", tables)
        self.tell("pause", "paused")
        self.do("live")
        self.wait_equal(lambda mishap: mishap.is_seen_live)
        self.set_back(ROLLED)
        with self.shop.connect(autocommit=True) as session:
            mishaps.run(session, mishaps.change(ROLLED, 2))
        self.wait_told(0)
        self.tell("resync", ROLLED)
        self.tell("retry", "grown")
        self.wait_equal(lambda mishap: mishap.is_seen_live)
        self.let_go(self.shop, self.eu, self.us)
        self.have_everything_come_again()
        self.end_run()

    def have_everything_come_again(self) -> None:
        """A row is in the lake, and not confirmed, because of another table that cannot even be parked."""
        load_catalog("kuvasz", **self.process.pyiceberg).drop_table(f"shop.{HOSTAGE}")
        self.shop.execute(f"INSERT INTO {HOSTAGE} VALUES (1)")
        self.process.wait_event("table_failed", table=f"shop.{HOSTAGE}")
        ((before,),) = self.shop.execute("SELECT pg_current_wal_insert_lsn()::text")
        self.shop.execute("UPDATE moved SET a = 10, b = -10 WHERE id = 1")
        self.process.wait_until(lambda: (1, 10, -10) in self.process.rows_seen("moved").rows, "it is in the lake")
        assert not confirmed(self.shop, before)

    def begin_backlog(self) -> None:
        """Start, and be killed when the columns of two tables were looked at, and nothing of theirs is written."""
        self.tell("resync", HOSTAGE)
        self.process.start()
        self.process.wait_until(lambda: all("c" in self.columns(table) for table in LOOKS), "looks are remembered")
        self.wait_told(1)
        self.tell("resume", "paused")
        self.let_go(self.eu, self.us)
        assert [self.process.snapshots(table) for table in LOOKS] == [1, 1], "nothing of them is written"
        self.end_run()

    def end_backlog(self) -> None:
        """Start for good; a person says what no look proves."""
        self.process.start()
        self.wait_told(2)
        for told in (one for name, mishap in MISHAPS.items() if name not in self.never for one in mishap.told):
            if told.is_again:
                self.tell("resync" if "kuvasz resync" in told.hint else "retry", told.table)
        self.follow_what_is_told_then()
        self.wait_streaming()
        self.do("last")
        self.let_go(self.shop, self.eu, self.us)
        self.wait("all", lambda: not self.process.parked(), "nothing is parked")
        self.wait_streaming()
        self.end_run()

    def end_run(self) -> None:
        """Kill it, and keep what it told."""
        self.process.kill()
        self.runs.append(list(self.process.events))
        self.output += self.process.output

    # What is done to the lake

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns."""
        return oracle.open_table(self.process.pyiceberg, f"shop.{table}").schema().column_names

    def set_back(self, name: str) -> None:
        """Have the catalog forget a table's last rows, as when it is restored."""
        table = oracle.open_table(self.process.pyiceberg, f"shop.{name}")
        files = [entry.metadata_file for entry in reversed(table.metadata.metadata_log)]
        snapshots = (StaticTable.from_metadata(file).metadata.current_snapshot_id for file in files)
        pairs = zip(files, snapshots, strict=True)
        earlier = next(file for file, snapshot in pairs if snapshot != table.metadata.current_snapshot_id)
        with contextlib.closing(sqlite3.connect(self.process.folder / "catalog.db", timeout=30)) as catalog, catalog:
            change = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?"
            catalog.execute(change, (earlier, name))

    @contextlib.contextmanager
    def refusing_data(self, table: str) -> Iterator[None]:
        """The store takes no data file of a table; what its metadata says it does."""
        folder = next((self.process.folder / "wh").glob(f"**/{table}/data"))
        away = folder.with_name("away")
        folder.rename(away)
        folder.touch()
        yield
        folder.unlink()
        away.rename(folder)

    # Waiting

    def tell(self, verb: str, table: str) -> None:
        """What a person does."""
        done = self.process.run(verb, "--table", f"shop.{table}")
        if done.returncode != 0:
            self.never[f"{verb} {table}"] = done.stderr

    def wait(self, mishap: str, condition: Callable[[], object], what: str) -> None:
        """Wait for what shall show by its name if it never comes."""
        try:
            self.process.wait_until(condition, what, PATIENCE_S if mishap not in self.never else 1.0)
        except AssertionError as error:
            if not self.process.is_running:
                raise
            self.never[mishap] = str(error)

    def wait_told(self, run: int) -> None:
        for name, mishap in MISHAPS.items():
            for told in mishap.told:
                if told.run == run or (run == 2 and told.is_again):
                    self.wait(name, functools.partial(is_told, self.process.events, told), f"it is told: {told}")

    def follow_what_is_told_then(self) -> None:
        """Do what the next hint of a table says, where one comes behind the first."""
        for name, mishap in MISHAPS.items():
            for told in (one for one in mishap.told if one.then):
                more = dataclasses.replace(told, hint=told.then)
                self.wait(name, functools.partial(is_told, self.process.events, more), f"it is told: {more}")
                self.tell("retry", told.table)

    def wait_equal(self, is_wanted: Callable[[Mishap], bool]) -> None:
        for name, mishap in MISHAPS.items():
            for target, view in mishap.views.items():
                if is_wanted(mishap):
                    self.wait(name, functools.partial(self.is_equal, mishap, target, view), f"{target} is equal")

    def let_go(self, *databases: Database) -> None:
        """Wait until the sources need not keep anything of what they have now."""
        for database in databases:
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            self.process.wait_until(functools.partial(confirmed, database, now), f"{database.name} lets go")

    def wait_streaming(self) -> None:
        """Wait until all tables stream; those that do not show by their names later."""

        def is_quiet() -> bool:
            status = json.loads(self.process.run("status", "--json").stdout)
            self.states = {
                f"{source['source']} {table['target']}": table["state"]
                for source in status["sources"]
                for table in source["tables"]
            }
            return set(self.states.values()) == {"streaming"}

        self.wait("all", is_quiet, "all tables stream")

    # Comparing

    def expected(self, mishap: Mishap, target: str, view: View) -> oracle.Rows:
        """What the sources have."""
        found = []
        for sid, database in (("eu", self.eu), ("us", self.us)) if mishap.in_both else ((None, self.shop),):
            columns = tuple(view.columns.split(", ")) if view.columns else None
            if view.query:
                with database.connect() as session:
                    session.execute("SET timezone = 'UTC'")
                    rows = collections.Counter(session.execute(view.query).fetchall())
                    found.append(oracle.Rows(columns=columns or (), rows=rows))
            else:
                table = view.table or target
                found.append(oracle.source_rows(database.url, table, columns, sid=sid, where=view.where))
        return functools.reduce(oracle.Rows.__add__, found)

    def shown(self, rows: oracle.Rows, view: View, columns: tuple[str, ...]) -> oracle.Rows:
        """What the lake has, of all rows of a table."""
        if view.open_only:
            place = rows.columns.index("kvsz_end")
            valid = {row: count for row, count in rows.rows.items() if row[place].year == 9999}
            rows = oracle.Rows(columns=rows.columns, rows=collections.Counter(valid))
        return rows.select(columns)

    def is_equal(self, mishap: Mishap, target: str, view: View) -> bool:
        expected = self.expected(mishap, target, view)
        found = self.shown(self.process.rows_seen(target), view, expected.columns)
        return found.rows == expected.rows


def is_told(events: list[dict], told: Told) -> bool:
    """Whether a table said why it stops, and what to do."""
    errors = [
        event["error"] for event in list(events)
        if event.get("event") == "table_failed" and event["table"] == f"shop.{told.table}"
    ]  # fmt: skip
    return any(told.why in error and told.hint in error.partition("hint: ")[2] for error in errors)


@pytest.fixture(scope="module")
def scene(postgres18: EmbeddedPostgres) -> Iterator[Scene]:
    databases = [create_database(postgres18) for _ in range(3)]
    scene = Scene(*databases)
    try:
        scene.play()
        yield scene
    finally:
        scene.process.remove()
        for database in databases:
            drop_database(database)


@pytest.mark.parametrize("name", MISHAPS)
def test_a_mishap_leaves_no_difference_that_is_not_told(scene: Scene, name: str) -> None:
    mishap = MISHAPS[name]
    for target, view in mishap.views.items():
        expected = scene.expected(mishap, target, view)
        oracle.assert_equal(expected, scene.shown(scene.process.rows(target), view, expected.columns))
    for told in mishap.told:
        errors = [event for event in scene.runs[told.run] if event.get("event") == "table_failed"]
        assert is_told(scene.runs[told.run], told), [one for one in errors if one["table"] == f"shop.{told.table}"]
    assert name not in scene.never, scene.never[name]


def test_everything_streams_in_the_end(scene: Scene) -> None:
    assert {what: why for what, why in scene.never.items() if what not in MISHAPS} == {}
    assert {table: state for table, state in scene.states.items() if state != "streaming"} == {}
    assert not [event for run in scene.runs for event in run if event.get("event") in ("bug", "source_stopped")]
    assert "Traceback" not in "\n".join(scene.output)


def test_a_copy_keeps_to_the_pace_of_the_map(scene: Scene) -> None:
    copies = [event for event in scene.runs[0] if event.get("event") == "copied"]
    (copied,) = [event for event in copies if event["table"] == "shop.paced"]
    assert copied["rows"] == PACED_ROWS
    assert PACED_ROWS / copied["seconds"] <= 1.15 * PACE


def test_a_gap_of_what_keeps_the_past_is_in_its_table(scene: Scene) -> None:
    table = oracle.open_table(scene.process.pyiceberg, "shop.grown")
    (gap,) = json.loads(table.properties["kuvasz.gap.shop"])
    assert "to" in gap


@pytest.fixture(scope="module")
def reading(scene: Scene, spark_session: SparkSession) -> SparkSession:
    """A session of its own: Spark keeps to the catalog that a session was first asked for by a name."""
    session = spark_session.newSession()
    settings = spark.settings(load(scene.process.map, {}).config)
    for name, value in settings.items():
        if name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    return session


# Slow: the tests above compare every row, and test_verify.py has `verify` find what differs in every type.
@pytest.mark.slow
def test_verify_finds_no_difference_either(scene: Scene, reading: SparkSession) -> None:
    reports = verify.reports(load(scene.process.map, {}).config, session=reading)
    assert len(reports) == len(scene.states)
    assert [one for one in reports if (one.left, one.error) != (0, "")] == []


# Slow: so do the tests of pipelines, of every type and after every mishap of one table.
@pytest.mark.slow
def test_spark_reads_the_same_rows(scene: Scene, reading: SparkSession) -> None:
    for mishap in MISHAPS.values():
        for target in mishap.views:
            found = oracle.lake_rows_spark(reading, f"kuvasz.shop.`{target}`")
            oracle.assert_equal(scene.process.rows(target), found)
