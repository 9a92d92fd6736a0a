"""A table that does not follow for a while: when it follows again the lake equals its source, whatever happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from kuvasz import lsn
from kuvasz.config.names import object_name
from kuvasz.state.store import state_of
from kuvasz.state.tables import State
from kuvasz.verbs import check, plan, verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import assert_equal, lake_rows_pyiceberg, open_table, source_rows
from tests.support.postgres import Database, needs
from tests.support.two_tables import confirmed, lake_counts
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU = "shop_eu"
ITEMS, OTHERS = "shop.items", "shop.others"
PUBLICATION = object_name("shop", "eu")


def fill(database: Database, rows: int = 100) -> None:
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {rows}) i")


def publish_all(database: Database) -> None:
    """Make the publication that a DBA makes: kuvasz neither adds tables to it nor takes any out."""
    database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES WITH (publish_via_partition_root = true)")


def pipeline_of(lake: LakeFolder, database: Database, tables: Mapping[str, object], **pipeline: object) -> Pipeline:
    return Pipeline(lake.config(group({"eu": database}, dict(tables)), **pipeline), lake)


def pass_by(pipeline: Pipeline, database: Database, table: str = "others") -> None:
    """Have the source let go of everything up to now, with a change of a table that follows."""
    database.execute(f"UPDATE {table} SET n = n + 1 WHERE id = 1")
    ((now,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    wait_until(lambda: confirmed(database) >= now, f"the source lets go of its WAL: {pipeline.errors()}")


def assert_same(pipeline: Pipeline, database: Database, target: str, table: str) -> None:
    pipeline.wait_streaming()
    pipeline.wait_applied(database)
    pipeline.assert_equal(target, source_rows(database.url, table, sid="eu"))


def change(database: Database, table: str, value: int) -> None:
    database.execute(f"INSERT INTO {table} SELECT max(id) + 1, {value} FROM {table}")
    database.execute(f"UPDATE {table} SET n = {value} WHERE id % 7 = 0")
    database.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")


# Renamed


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
@pytest.mark.parametrize(
    "is_for_all", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["own publication", "for all tables"]
)
def test_a_table_renamed_while_it_is_paused_loses_nothing(
    database: Database, lake_folder: LakeFolder, *, is_for_all: bool
) -> None:
    fill(database)
    if is_for_all:
        publish_all(database)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, "items", 1)
        database.execute("ALTER TABLE items RENAME TO things")
        change(database, "things", 2)
        pass_by(pipeline, database)
    with pipeline_of(lake_folder, database, {"things": {"target": "items"}, "others": None}) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        change(database, "things", 3)
        pass_by(pipeline, database)
        pipeline.tell("resume", ITEMS, EU)
        assert_same(pipeline, database, "items", "things")


def test_a_table_that_takes_the_name_of_another_is_not_stopped_by_what_that_one_left(
    database: Database, lake_folder: LakeFolder
) -> None:
    """The changes of the one that had the name come first: they are of the entry that it fed, not of the name's."""
    fill(database)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
    change(database, "items", 1)
    change(database, "others", 2)
    database.execute("DROP TABLE items")
    database.execute("ALTER TABLE others RENAME TO items")
    database.execute("CREATE TABLE others (id int PRIMARY KEY, n int)")
    change(database, "items", 3)
    swapped = {"items": {"target": "others"}, "others": {"target": "items"}}
    with pipeline_of(lake_folder, database, swapped) as pipeline:
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        for value in (4, 5):
            change(database, "items", value)
            pass_by(pipeline, database, "items")
            pipeline.wait_state(EU, OTHERS, State.STREAMING)
            pipeline.assert_equal("others", source_rows(database.url, "items", sid="eu"))
        assert pipeline.app.states.get(OTHERS, EU).copies == 0
        (error,) = pipeline.errors()
        assert "public.others: this is not the table that was copied" in error
        pipeline.tell("resync", ITEMS, EU)
        assert_same(pipeline, database, "items", "others")


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
def test_a_table_renamed_while_it_streams_is_followed(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("UPDATE items SET n = 1 WHERE id < 10")
            session.execute("ALTER TABLE items RENAME TO things")
            session.execute("UPDATE things SET n = 2 WHERE id < 5")
        change(database, "things", 3)
        assert_same(pipeline, database, "items", "things")
        copies = pipeline.app.states.get(ITEMS, EU).copies
        state = pipeline.app.states.get(ITEMS, EU)
        assert (state.table, state.mapped) == ("public.things", "public.items")
        database.execute("ALTER TABLE things ADD extra text")
        change(database, "things", 4)
        assert_same(pipeline, database, "items", "things")
        assert pipeline.app.states.get(ITEMS, EU).copies == copies
        change(database, "things", 5)
    database.execute("CREATE SCHEMA elsewhere")
    database.execute("ALTER TABLE things SET SCHEMA elsewhere")
    change(database, "elsewhere.things", 6)
    ((planned, _),) = [plan.tables for plan in plan.plans(pipeline.config)]
    assert (planned.table, planned.mapped, planned.action) == ("elsewhere.things", "public.items", "follow")
    (found,) = [found for found in check.findings(pipeline.config) if found.check == "name"]
    assert not found.is_blocking
    assert "write elsewhere.things with `target: shop.items` into the map" in found.fix
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        change(database, "elsewhere.things", 7)
        assert_same(pipeline, database, "items", "elsewhere.things")
        for report in verify.reports(pipeline.config, session=lake_folder.session):
            assert (report.left, report.error, report.skipped) == (0, "", ""), report
        pipeline.tell("resync", ITEMS, EU)
        wait_until(lambda: pipeline.app.states.get(ITEMS, EU).copies == 1, "the table is copied again")
        change(database, "elsewhere.things", 8)
        assert_same(pipeline, database, "items", "elsewhere.things")
    with pipeline_of(lake_folder, database, {"elsewhere.things": {"target": "items"}, "others": None}) as pipeline:
        change(database, "elsewhere.things", 9)
        assert_same(pipeline, database, "items", "elsewhere.things")
        assert pipeline.app.states.get(ITEMS, EU).copies == 0
    assert not [record for record in caplog.records if record.__dict__.get("event") == "table_failed"]


def test_another_table_that_takes_the_name_is_not_taken_for_it(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    publish_all(database)
    tables = {"items": None, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("ALTER TABLE items RENAME TO things")
            session.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
            session.execute("INSERT INTO items VALUES (1, -1)")
            session.execute("UPDATE things SET n = 2 WHERE id < 5")
        change(database, "things", 3)
        wait_until(pipeline.errors, "the map's name is another table now")
        pass_by(pipeline, database)
        change(database, "things", 4)
        pass_by(pipeline, database)
    with pipeline_of(lake_folder, database, {"things": {"target": "items"}, "others": None}) as pipeline:
        change(database, "things", 5)
        assert_same(pipeline, database, "items", "things")
        assert pipeline.app.states.get(ITEMS, EU).copies == 0
    with pipeline_of(lake_folder, database, tables) as pipeline:
        wait_until(pipeline.errors, "the map's name is another table")
        assert "kuvasz resync --table shop.items" in pipeline.errors()[0]
        pipeline.tell("resync", ITEMS, EU)
        change(database, "items", 6)
        wait_until(lambda: not pipeline.errors(), "the other table is copied in its place")
        change(database, "items", 7)
        assert_same(pipeline, database, "items", "items")


def test_a_view_under_the_old_name_does_not_hide_a_renamed_table(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
    database.execute("ALTER TABLE items RENAME TO things")
    database.execute("CREATE VIEW items AS SELECT * FROM things")
    change(database, "things", 1)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        assert_same(pipeline, database, "items", "things")
        assert pipeline.app.states.get(ITEMS, EU).copies == 0


def test_a_table_that_another_target_has_copied_goes_on_with_its_own(
    database: Database, lake_folder: LakeFolder
) -> None:
    """Two tables swap their names while one is to be copied again, and the map says so only after that."""
    fill(database)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", OTHERS, EU)
        pipeline.tell("resync", OTHERS, EU)
    for one, other in (("items", "aside"), ("others", "items"), ("aside", "others")):
        database.execute(f"ALTER TABLE {one} RENAME TO {other}")
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.tell("resume", OTHERS, EU)
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        change(database, "others", 1)
        pass_by(pipeline, database)
    with pipeline_of(
        lake_folder, database, {"others": {"target": "items"}, "items": {"target": "others"}}
    ) as pipeline:
        change(database, "others", 2)
        pipeline.wait_state(EU, OTHERS, State.ERROR)
        pipeline.tell("resync", OTHERS, EU)
        change(database, "others", 3)
        change(database, "items", 4)
        assert_same(pipeline, database, "items", "others")
        assert_same(pipeline, database, "others", "items")


# Out of the map, or not fit for a while


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clone", pytest.param("append", marks=pytest.mark.slow)])
def test_a_table_out_of_the_map_and_back_has_a_gap_that_is_closed_or_told(
    database: Database, lake_folder: LakeFolder, kind: str
) -> None:
    fill(database)
    publish_all(database)
    tables = {"items": {"type": kind}, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
    with pipeline_of(lake_folder, database, {"others": None}) as pipeline:
        pipeline.wait_streaming()
        change(database, "items", 1)
        pass_by(pipeline, database)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        if kind == "append":
            wait_until(pipeline.errors, "the gap is told")
            assert "are lost" in pipeline.errors()[0]
            assert "kuvasz retry --table shop.items goes on with the gap" in pipeline.errors()[0]
            return
        assert_same(pipeline, database, "items", "items")
        change(database, "items", 2)
        assert_same(pipeline, database, "items", "items")


@pytest.mark.parametrize("is_moved", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_target_in_a_namespace_that_the_map_names_no_more_and_then_again(
    database: Database, lake_folder: LakeFolder, *, is_moved: bool
) -> None:
    """Under a publication of kuvasz's own, if it is another target of the same table that takes its place."""
    fill(database)
    if not is_moved:
        publish_all(database)
    tables = {"items": {"target": "archive.items"}, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
    away = {"items": None, "others": None} if is_moved else {"others": None}
    with pipeline_of(lake_folder, database, away) as pipeline:
        pipeline.wait_streaming()
        change(database, "items", 1)
        pass_by(pipeline, database)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        change(database, "items", 2)
        pipeline.wait_applied(database)
        there = lake_rows_pyiceberg(lake_folder.pyiceberg, "archive.items", catalog=lake_folder.catalog)
        assert_equal(source_rows(database.url, "items", sid="eu"), there, key=("id",))
        assert pipeline.app.states.get("archive.items", EU).copies == 0, "what is missing is found by comparison"


@pytest.mark.parametrize(
    "publish", [publish_all, pytest.param(lambda _: None, marks=pytest.mark.slow)], ids=["all tables", "our own"]
)
def test_a_table_that_is_unfit_at_one_start_loses_nothing(
    database: Database, lake_folder: LakeFolder, publish: Callable[[Database], None]
) -> None:
    fill(database)
    publish(database)
    tables = {"items": None, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
    change(database, "items", 7)
    with pipeline_of(lake_folder, database, {"items": {"exclude": ["gone"]}, "others": None}) as pipeline:
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        change(database, "items", 8)
        pass_by(pipeline, database)
        assert lake_counts(pipeline, "items", "n = 8") == 0
    with pipeline_of(lake_folder, database, tables) as pipeline:
        change(database, "items", 9)
        assert_same(pipeline, database, "items", "items")
        assert pipeline.app.states.get(ITEMS, EU).copies == 0


# Changes that no stream has


@pytest.mark.parametrize("what", [pytest.param("ALL TABLES", marks=pytest.mark.slow), "TABLES IN SCHEMA public"])
def test_a_paused_table_that_was_unlogged_for_a_while_is_made_right(
    database: Database, lake_folder: LakeFolder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what != "ALL TABLES":
        needs(database.server, 15, "publications of schemas")
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.2)
    fill(database)
    database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR {what} WITH (publish_via_partition_root = true)")
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        database.execute("ALTER TABLE items SET UNLOGGED")
        wait_until(lambda: pipeline.app.states.get(ITEMS, EU).is_resync_due, "it is seen that rows may be missing")
        change(database, "items", 1)
        database.execute("ALTER TABLE items SET LOGGED")
        pass_by(pipeline, database)
        pipeline.tell("resume", ITEMS, EU)
        assert_same(pipeline, database, "items", "items")


# Slow: the test above has a paused table unlogged as well.
@pytest.mark.parametrize(
    "when", ["stopped", *(pytest.param(when, marks=pytest.mark.slow) for when in ("streaming", "paused"))]
)
def test_a_table_that_was_unlogged_between_two_looks_is_made_right(
    database: Database, lake_folder: LakeFolder, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL lets tables be so that the publication does not name; another file is all that tells of it."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    publish_all(database)
    tables = {"items": None, "others": None}
    unlog = "ALTER TABLE items SET UNLOGGED; UPDATE items SET n = 7 WHERE id % 5 = 0; ALTER TABLE items SET LOGGED"
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        if when == "paused":
            pipeline.tell("pause", ITEMS, EU)
        if when != "stopped":
            database.execute(unlog)
        if when == "paused":
            pass_by(pipeline, database)
            pipeline.tell("resume", ITEMS, EU)
        if when != "stopped":
            wait_until(lambda: lake_counts(pipeline, "items", "n = 7"), "rows that no stream carried are there")
            assert_same(pipeline, database, "items", "items")
    if when == "stopped":
        database.execute(unlog)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        wait_until(lambda: lake_counts(pipeline, "items", "n = 7"), "rows that no stream carried are there")
        assert_same(pipeline, database, "items", "items")


def unlogged_load(before: str = "") -> str:
    return (
        f"{before}; ALTER TABLE items SET UNLOGGED; INSERT INTO items SELECT i, 7 FROM generate_series(1000, 1099) i;"
        " ALTER TABLE items SET LOGGED; UPDATE items SET n = 8 WHERE id = 1099"
    )


@pytest.mark.parametrize("has_toast", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "toast"])
@pytest.mark.parametrize("when", ["streaming", pytest.param("stopped", marks=pytest.mark.slow)])
def test_a_table_that_was_truncated_and_loaded_without_wal_by_one_transaction_is_made_right(
    database: Database, lake_folder: LakeFolder, when: str, monkeypatch: pytest.MonkeyPatch, *, has_toast: bool
) -> None:
    """The stream has the TRUNCATE and the last row, under the transaction that gave the table its file."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    publish_all(database)
    if has_toast:
        database.execute("ALTER TABLE items ADD note text")
    tables = {"items": None, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        if when == "streaming":
            database.execute(unlogged_load("TRUNCATE items"))
            wait_until(lambda: lake_counts(pipeline, "items", "n = 7") == 99, "rows that no stream carried are there")
    if when == "stopped":
        database.execute(unlogged_load("TRUNCATE items"))
    with pipeline_of(lake_folder, database, tables) as pipeline:
        wait_until(lambda: lake_counts(pipeline, "items", "n = 7") == 99, "rows that no stream carried are there")
        assert_same(pipeline, database, "items", "items")


@pytest.mark.parametrize("when", ["streaming", pytest.param("stopped", marks=pytest.mark.slow)])
def test_a_table_that_is_unlogged_once_another_publication_names_it_no_more_is_made_right(
    database: Database, lake_folder: LakeFolder, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never looked at without that name, under which nobody could make it unlogged."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    publish_all(database)
    database.execute("CREATE PUBLICATION another FOR TABLE items")
    tables = {"items": None, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        if when == "streaming":
            database.execute(unlogged_load("DROP PUBLICATION another"))
            wait_until(lambda: lake_counts(pipeline, "items", "n = 7") == 99, "rows that no stream carried are there")
            assert_same(pipeline, database, "items", "items")
    if when == "stopped":
        database.execute(unlogged_load("DROP PUBLICATION another"))
    with pipeline_of(lake_folder, database, tables) as pipeline:
        wait_until(lambda: lake_counts(pipeline, "items", "n = 7") == 99, "rows that no stream carried are there")
        assert_same(pipeline, database, "items", "items")


@pytest.mark.parametrize(
    ("first", "has_toast"),
    [("", False), ("UPDATE items SET n = 1 WHERE id = 1;", False), ("SAVEPOINT one;", True)],
    ids=["at once", "behind another command", "with TOAST in a savepoint"],
)  # fmt: skip
def test_a_table_that_was_truncated_or_packed_is_not_compared(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, first: str, *, has_toast: bool
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    publish_all(database)
    if has_toast:
        database.execute("ALTER TABLE others ADD note text")
    repaired: list[object] = []
    monkeypatch.setattr("kuvasz.sync.context.troubles.Troubles.miss_rows", lambda _, spec: repaired.append(spec))
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        with database.connect(autocommit=True) as session:
            session.execute("VACUUM FULL items")
        database.execute(f"{first} TRUNCATE others; INSERT INTO others (id, n) VALUES (1, 1)")
        query = "SELECT relfilenode FROM pg_class WHERE relname IN ('items', 'others')"
        now, state = {file for (file,) in database.execute(query)}, state_of(pipeline.config)
        wait_until(lambda: {one.file for one in state.files(EU).all().values()} == now, "both files are known")
        assert_same(pipeline, database, "others", "others")
    assert repaired == []


def test_a_table_that_was_written_anew_before_its_first_look_is_not_compared(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publication names it: it was logged all the time, and a history would get versions for nothing."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 1000)
    repaired: list[object] = []
    monkeypatch.setattr("kuvasz.sync.context.troubles.Troubles.miss_rows", lambda _, spec: repaired.append(spec))
    fill(database)
    database.execute("ALTER TABLE items ADD extra int")
    tables = {"items": {"exclude": ["extra"]}, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items ALTER extra TYPE bigint USING 7")
        pipeline.wait_applied(database)
        ((now,),) = database.execute("SELECT pg_relation_filenode('items')::bigint")
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        known = state_of(pipeline.config)
        wait_until(lambda: repaired or now in {one.file for one in known.files(EU).all().values()}, "a look at it")
        assert pipeline.app.states.get(ITEMS, EU).copies == 0
    assert repaired == []


# Slow: each way and each state is met once with each run.
@pytest.mark.parametrize(
    ("way", "is_paused"),
    [
        pytest.param("published", False, marks=pytest.mark.slow),
        ("attached", True),
        pytest.param("published", True, marks=pytest.mark.slow),
        pytest.param("attached", False, marks=pytest.mark.slow),
    ],
)
def test_a_table_whose_changes_came_as_an_ancestors_is_made_right(
    database: Database, lake_folder: LakeFolder, way: str, is_paused: bool
) -> None:
    """Between two looks: no row of the catalog tells of it afterwards."""
    fill(database)
    database.execute("CREATE TABLE root (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
    attach = "ALTER TABLE root ATTACH PARTITION items FOR VALUES FROM (0) TO (1000)"
    begin, end = {
        "published": (
            f"ALTER PUBLICATION {PUBLICATION} ADD TABLE root",
            f"ALTER PUBLICATION {PUBLICATION} DROP TABLE root",
        ),
        "attached": (attach, "ALTER TABLE root DETACH PARTITION items"),
    }[way]
    if way == "published":
        database.execute(attach)
    with pipeline_of(lake_folder, database, {"items": None, "others": None}) as pipeline:
        pipeline.wait_streaming()
        if way == "attached":
            database.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE root")
        if is_paused:
            pipeline.tell("pause", ITEMS, EU)
        database.execute(begin)
        change(database, "items", 1)
        database.execute(end)
        if way == "attached":
            database.execute(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE root")
        pass_by(pipeline, database)
        if is_paused:
            pipeline.tell("resume", ITEMS, EU)
        change(database, "items", 2)
        assert_same(pipeline, database, "items", "items")


# Out of the publication for a while


def miss(database: Database, way: str) -> int:
    """Change rows while they are not published; returns the id of one whose DELETE is in no stream, in any way."""
    alter = f"ALTER PUBLICATION {PUBLICATION}"
    out, back = {
        "table": ("DROP TABLE items", "ADD TABLE items"),
        "operations": ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        "filter": ("SET TABLE items WHERE (id < 0), others", "SET TABLE items, others"),
    }[way]
    database.execute(f"{alter} {out}")
    ((deleted,),) = database.execute("SELECT min(id) FROM items")
    change(database, "items", 7)
    database.execute(f"{alter} {back}")
    change(database, "items", 8)
    return deleted


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["table", *(pytest.param(way, marks=pytest.mark.slow) for way in ("operations", "filter"))]
)
def test_a_table_out_of_the_publication_for_a_while_is_made_right(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "filter":
        needs(database.server, 15, "row filters")
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    tables = {"items": None, "others": None}
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        missed = miss(database, way)
        wait_until(lambda: not lake_counts(pipeline, "items", f"id = {missed}"), "what no stream carried is there")
        assert_same(pipeline, database, "items", "items")
        pipeline.tell("pause", ITEMS, EU)
        pass_by(pipeline, database)
        database.execute("UPDATE items SET n = 0 WHERE n = 7")
        lost = miss(database, way)
        pass_by(pipeline, database)
        pipeline.tell("resume", ITEMS, EU)
        wait_until(lambda: not lake_counts(pipeline, "items", f"id = {lost}"), "what no log holds is there")
        assert_same(pipeline, database, "items", "items")
    database.execute("UPDATE items SET n = 0 WHERE n = 7")
    miss(database, way)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        assert_same(pipeline, database, "items", "items")
        assert_same(pipeline, database, "others", "others")


# Slow: changelogs have their gaps noted where append tables have them.
@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("append", "changelog")), "history"]
)
def test_what_a_table_with_a_past_missed_stands_in_it_as_a_gap(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 3.0)
    fill(database)
    with pipeline_of(lake_folder, database, {"items": {"type": kind}, "others": None}) as pipeline:
        pipeline.wait_streaming()
        ((before,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        miss(database, "table")
        wait_until(lambda: lake_counts(pipeline, "items", "n = 8"), "what comes behind it is applied")
        if kind != "history":
            wait_until(pipeline.errors, "the gap is told")
            assert "are lost" in pipeline.errors()[0]
            pipeline.tell("retry", ITEMS, EU)
        wait_until(lambda: gaps(pipeline, "items"), "the gap is noted")
        pipeline.wait_streaming()
        assert all("to" in gap for gap in gaps(pipeline, "items"))
        assert lsn.parse(gaps(pipeline, "items")[0]["from"]) <= lsn.parse(before), "more was applied behind it"


def test_a_gap_that_a_start_finds_begins_with_the_last_look_of_before(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    tables = {"items": {"type": "append"}, "others": None}
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        ((copied,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        pass_by(pipeline, database)
        record = state_of(pipeline.config).record
        wait_until(lambda: record(EU).standing.looked_lsn > lsn.parse(copied), "a look found all of it published")
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 3600)
    with pipeline_of(lake_folder, database, tables) as pipeline:
        pipeline.wait_streaming()
        ((before,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        miss(database, "table")
        wait_until(lambda: lake_counts(pipeline, "items", "n = 8"), "what comes behind it is applied")
    with pipeline_of(lake_folder, database, tables) as pipeline:
        wait_until(pipeline.errors, "the gap is told")
        pipeline.tell("retry", ITEMS, EU)
        pipeline.wait_streaming()
        (gap,) = gaps(pipeline, "items")
        assert lsn.parse(copied) < lsn.parse(gap["from"]) <= lsn.parse(before) < lsn.parse(gap["to"])


def gaps(pipeline: Pipeline, table: str) -> list[dict]:
    found = open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    return json.loads(found.properties.get(f"kuvasz.gap.{EU}", "[]"))
