"""Someone sets the lake back, while kuvasz runs and while it does not: noticed, and mended or told."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import sqlite3
from typing import Any

import pytest

from kuvasz.config.model import Config, OnLakeRewound
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from kuvasz.verbs import verify
from kuvasz.worker import lake_patrol
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.verify_bench import Bench
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

FOREVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in error are tried again soon."""
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.3)


@pytest.fixture
def filled(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    database.execute("CREATE TABLE others (id int PRIMARY KEY, n int)")
    for name in ("items", "others"):
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 20) i")
    return database


def change(database: Database, number: int) -> None:
    for name in ("items", "others"):
        database.execute(f"UPDATE {name} SET n = %s WHERE id %% 4 = %s", (number, number % 4))
        database.execute(f"DELETE FROM {name} WHERE id = %s", (number,))
        database.execute(f"INSERT INTO {name} VALUES (%s, 0)", (100 + number,))


def assert_equal(pipeline: Pipeline, database: Database) -> None:
    """Errors may come and go meanwhile, but for nobody to do anything about."""
    wait_let_go(pipeline, database)
    wait_until(lambda: not pipeline.errors() and not pipeline.lacks("shop"), "nothing is wrong, and nothing parked")
    pipeline.wait_streaming()
    for name in ("items", "others"):
        pipeline.assert_equal(name, source_rows(database.url, name))


def wait_let_go(pipeline: Pipeline, database: Database) -> None:
    ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    wait_until(lambda: pipeline.app.progress.confirmable("shop") >= now, "all is in the lake, or parked")


def change_twice(pipeline: Pipeline, database: Database) -> None:
    """Have two snapshots behind the copy, so that there is one to go back to."""
    for number in range(2):
        change(database, number)
        pipeline.wait_applied(database)


def roll_back(lake: LakeFolder, to: int = 1) -> None:
    rows = lake.session.sql(f"SELECT snapshot_id FROM {lake.catalog}.shop.items.snapshots ORDER BY committed_at")
    jvm = lake.session._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lake.session._jsparkSession,
                                                                     f"{lake.catalog}.shop.items")  # fmt: skip
    table.manageSnapshots().rollbackTo(rows.collect()[to].snapshot_id).commit()


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
def test_a_rollback_stops_the_table_and_a_copy_brings_it_back(filled: Database, lake_folder: LakeFolder) -> None:
    config = lake_folder.config(group({None: filled}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(3):
            change(filled, number)
            pipeline.wait_applied(filled)
        roll_back(lake_folder)
        change(filled, 3)
        pipeline.wait_state("shop", "shop.items", State.ERROR)
        (error,) = pipeline.errors()
        assert "someone set the table back in the lake" in error
        assert "hint: copy it again: kuvasz resync --table shop.items" in error
        assert pipeline.states()["shop", "shop.others"] is State.STREAMING
        pipeline.tell("resync", "shop.items", "shop")
        assert_equal(pipeline, filled)
        change(filled, 4)
        assert_equal(pipeline, filled)


@pytest.mark.parametrize("what", ["rolled back", pytest.param("dropped", marks=pytest.mark.slow)])
def test_a_table_of_which_nothing_comes_does_not_stream_on(
    filled: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(lake_patrol, "PATROL_S", 0.2)
    config = lake_folder.config(group({None: filled}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change_twice(pipeline, filled)
        if what == "dropped":
            lake_folder.session.sql(f"DROP TABLE {lake_folder.catalog}.shop.items")
        else:
            roll_back(lake_folder)
        pipeline.wait_state("shop", "shop.items", State.ERROR)
        assert "shop.items" in pipeline.app.progress.held("shop")
        assert pipeline.states()["shop", "shop.others"] is State.STREAMING
        pipeline.tell("resync", "shop.items", "shop")
        assert_equal(pipeline, filled)


def test_a_paused_table_says_that_it_was_set_back(
    filled: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_patrol, "PATROL_S", 0.2)
    config = lake_folder.config(group({None: filled}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change_twice(pipeline, filled)
        pipeline.tell("pause", "shop.items", "shop")
        roll_back(lake_folder)
        wait_until(lambda: any("set the table back" in error for error in pipeline.errors()), "it says so")
        assert pipeline.states()["shop", "shop.items"] is State.PAUSED
        pipeline.tell("resync", "shop.items", "shop")
        pipeline.tell("resume", "shop.items", "shop")
        assert_equal(pipeline, filled)


@pytest.mark.parametrize(
    ("what", "is_running"),
    [
        ("table", True),
        ("catalog", False),
        pytest.param("table", False, marks=pytest.mark.slow),
        pytest.param("catalog", True, marks=pytest.mark.slow),
    ],
)
def test_what_is_missing_is_repaired(
    filled: Database, lake_folder: LakeFolder, what: str, *, is_running: bool
) -> None:
    config = repairing(lake_folder, filled)
    catalog, copy = lake_folder.folder / "catalog.db", lake_folder.folder / "catalog.old"
    restore = {"table": lambda: roll_back(lake_folder), "catalog": lambda: put_back(copy, catalog)}[what]
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(filled, 0)
        pipeline.wait_applied(filled)
        shutil.copyfile(catalog, copy)
        for number in range(1, 3):
            change(filled, number)
            pipeline.wait_applied(filled)
        if is_running:
            restore()
            change(filled, 3)
            assert_equal(pipeline, filled)
    if not is_running:
        restore()
        change(filled, 3)
        with Pipeline(config, lake_folder) as pipeline:
            assert_equal(pipeline, filled)
            change(filled, 4)
            assert_equal(pipeline, filled)


#: As the lake calls them. What keeps the past waits for a person: what it lacks is nowhere.
TYPES: dict[str, dict | None] = {
    "made": {"filter": "n <> 4", "set": {"id": "id", "m": "n * 10", "n": "CAST(n AS string)"},
             "mask": {"n": "hmac"}}, "bag": None,
    "soft": {"deletes": "soft"}, "past": {"type": "history"}, "ev": {"partitions_regex": "ev_[0-9]"},
    "log": {"type": "changelog"}, "kept": {"type": "append"},
}  # fmt: skip
PAST = ("log", "kept")
#: Tables of the source.
SOURCES = [name for name in TYPES if name != "ev"] + ["ev_1", "ev_2"]


def change_all(database: Database, number: int) -> None:
    for name in SOURCES:
        database.execute(f"UPDATE {name} SET n = {number} WHERE id % 4 = {number % 4}")
        database.execute(f"DELETE FROM {name} WHERE id = {number}")
        database.execute(f"UPDATE {name} SET id = id + 1000 WHERE id = {10 + number}")
        database.execute(f"INSERT INTO {name} VALUES ({100 + number}, 0)")


class Rewind:
    """Tables of all types, set back to where they were, and what must be there afterwards."""

    def __init__(self, lake: LakeFolder, database: Database, config: Config) -> None:
        self._lake, self._database, self._config = lake, database, config
        self._then: dict[str, tuple[int, str]] = {}  #: table -> snapshot and metadata file

    def note(self) -> None:
        """Have this be the moment to which they are set back."""
        for name in TYPES:
            one = self._table(name)
            self._then[name] = (one.metadata.current_snapshot_id, one.metadata_location)

    def _table(self, name: str) -> Any:
        return oracle.open_table(self._lake.pyiceberg, f"shop.{name}", catalog=self._lake.catalog)

    def roll_back(self) -> None:
        for name, (snapshot, _) in self._then.items():
            self._lake.session.sql(
                f"CALL {self._lake.catalog}.system.rollback_to_snapshot('shop.{name}', {snapshot})"
            )

    def restore(self) -> None:
        with contextlib.closing(sqlite3.connect(self._lake.folder / "catalog.db")) as catalog, catalog:
            for name, (_, file) in self._then.items():
                catalog.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (file, name))

    def settle(self, pipeline: Pipeline) -> None:
        """Have all go on: of two a person says that it may."""
        change_all(self._database, 3)
        for name in PAST:
            pipeline.wait_state("shop_eu", f"shop.{name}", State.ERROR)
        others = {of for of in pipeline.states() if of[1].rpartition(".")[2] not in PAST}
        wait_until(
            lambda: {pipeline.states()[of] for of in others} == {State.STREAMING},
            lambda: f"{pipeline.states()} {pipeline.errors()}",
        )
        for name in PAST:
            pipeline.wait_state("shop_eu", f"shop.{name}", State.ERROR)  # it is tried again now and then
            pipeline.tell("retry", f"shop.{name}", "shop_eu")
        wait_until(lambda: set(pipeline.states().values()) == {State.STREAMING}, lambda: str(pipeline.errors()))
        change_all(self._database, 5)
        pipeline.wait_applied(self._database)

    def check(self) -> None:
        for report in verify.reports(self._config, session=self._lake.session):
            if report.target.rpartition(".")[2] not in PAST:
                assert (report.error, report.skipped, report.differences) == ("", "", 0), report
        for name in ("bag", "soft", "past"):
            rows = self._lake.session.table(f"{self._lake.catalog}.shop.{name}").toArrow().to_pylist()
            live = [row for row in rows if not row.get("_deleted_at") and row.get("kvsz_end", FOREVER) == FOREVER]
            there = self._database.execute(f"SELECT id, n FROM {name}")
            assert sorted((row["id"], row["n"]) for row in live) == sorted(there), name
        for name in PAST:
            assert self._table(name).properties["kuvasz.gap.shop_eu"], name


@pytest.mark.parametrize("is_running", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_type_is_repaired_or_says_what_it_lacks(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, *, is_running: bool
) -> None:
    """Tables that were rolled back while they are followed, and older metadata files that are current again."""
    monkeypatch.setattr(lake_patrol, "PATROL_S", 0.2)
    for name in SOURCES:
        database.execute(f"CREATE TABLE {name} (id int {'' if name == 'bag' else 'PRIMARY KEY'}, n int)")
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(0, 20) i")
    config = lake_folder.config(group({"eu": database}, TYPES), mask_secret="a secret of sixteen")
    config = config.model_copy(
        update={"lake": config.lake.model_copy(update={"on_lake_rewound": OnLakeRewound.REPAIR})}
    )
    rewind = Rewind(lake_folder, database, config)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: set(pipeline.states().values()) == {State.STREAMING}, "all tables stream")
        change_all(database, 0)
        pipeline.wait_applied(database)
        rewind.note()
        for number in (1, 2):
            change_all(database, number)
            pipeline.wait_applied(database)
        if is_running:
            rewind.roll_back()
            rewind.settle(pipeline)
            rewind.check()
    if not is_running:
        rewind.restore()
        with Pipeline(config, lake_folder) as pipeline:
            rewind.settle(pipeline)
            rewind.check()


@pytest.mark.parametrize("is_running", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_catalog_from_before_a_table_was_parked(
    filled: Database, lake_folder: LakeFolder, *, is_running: bool
) -> None:
    """Its position is the same, and what is parked is known to nobody but the log."""
    config = repairing(lake_folder, filled)
    catalog, copy = lake_folder.folder / "catalog.db", lake_folder.folder / "catalog.old"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(filled, 0)
        pipeline.wait_applied(filled)
        shutil.copyfile(catalog, copy)
        pipeline.tell("pause", "shop.items", "shop")
        change(filled, 1)
        wait_let_go(pipeline, filled)
        if is_running:
            put_back(copy, catalog)
            pipeline.tell("resume", "shop.items", "shop")
            change(filled, 2)
            assert_equal(pipeline, filled)
    if not is_running:
        put_back(copy, catalog)
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state("shop", "shop.others", State.STREAMING)
            pipeline.tell("resume", "shop.items", "shop")
            change(filled, 2)
            assert_equal(pipeline, filled)


@pytest.mark.parametrize("kind", ["clone", pytest.param("history", marks=pytest.mark.slow)])
def test_what_verify_has_mended_is_missed_as_well(
    filled: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(lake_patrol, "PATROL_S", 0.2)
    config = repairing(lake_folder, filled, kind)
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(filled, 0)
        pipeline.wait_applied(filled)
        bench.sql("DELETE FROM LAKE.items WHERE id = 7")
        assert [report.mended for report in bench.verify(table="items", is_fixing=True)] == [1]
        assert [report.differences for report in bench.verify(table="items")] == [0]
        roll_back(lake_folder, to=-2)

        def is_mended() -> bool:  # it cannot be compared while it is repaired
            (report,) = verify.reports(config, table="items", session=lake_folder.session)
            return (report.error, report.differences) == ("", 0)

        wait_until(is_mended, "the repair has brought it back")
        change(filled, 1)
        pipeline.wait_applied(filled)
        assert [report.differences for report in bench.verify(table="items")] == [0]


def repairing(lake: LakeFolder, database: Database, kind: str = "clone") -> Config:
    config = lake.config(group({None: database}, {"items": {"type": kind}, "others": None}))
    return config.model_copy(
        update={"lake": config.lake.model_copy(update={"on_lake_rewound": OnLakeRewound.REPAIR})}
    )


def put_back(copy: str, catalog: str) -> None:
    """Restore the rows of an older catalog."""
    with contextlib.closing(sqlite3.connect(copy)) as old, contextlib.closing(sqlite3.connect(catalog)) as new:
        old.backup(new)
