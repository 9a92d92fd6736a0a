"""`route`: the rows of one table go to several targets by a value; the source says what each must hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kuvasz.config.load import load
from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.rejected import rejects
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ROUTE: dict[str, Any] = {"by": "kind", "to": "of_{kind}", "allow": ["a", "b"], "rest": "others"}
#: target -> which rows it has
ROUTES = {"of_a": "kind = 'a'", "of_b": "kind = 'b'", "others": "kind IS NULL OR kind NOT IN ('a', 'b')"}
KINDS = "(ARRAY['a', 'b', 'c', NULL])[1 + {} % 4]"
BIG = "repeat(md5({}::text), 200)"


def fill(database: Database, name: str = "events") -> None:
    database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, kind text, n int, body text)")
    database.execute(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL")
    database.execute(
        f"INSERT INTO {name} SELECT i, {KINDS.format('i')}, i, {BIG.format('i')} FROM generate_series(1, 40) i"
    )


def change(database: Database, table: str = "events", begin: int = 41) -> None:
    with database.connect() as session:
        session.execute(
            f"INSERT INTO {table} SELECT i, {KINDS.format('i')}, i, 'x' FROM generate_series({begin}, {begin + 19}) i"
        )
        session.execute(f"UPDATE {table} SET kind = {KINDS.format('(id + 1)')} WHERE id % 3 = 0")  # moves rows
        session.execute(f"UPDATE {table} SET n = n + 1 WHERE id % 5 = 0")
        session.execute(f"UPDATE {table} SET id = id + 1000, kind = 'b' WHERE id % 7 = 0 AND id < 1000")
        session.execute(f"DELETE FROM {table} WHERE id % 11 = 0")
        with session.transaction():  # there and back
            session.execute(f"UPDATE {table} SET kind = 'b' WHERE kind = 'a' AND id % 2 = 0")
            session.execute(f"UPDATE {table} SET kind = 'a' WHERE kind = 'b' AND id % 4 = 0")


def assert_equal(pipeline: Pipeline, database: Database, routes: Mapping[str, str] = ROUTES) -> None:
    pipeline.wait_applied(database)
    for target, where in routes.items():
        pipeline.assert_equal(target, source_rows(database.url, "events", sid="eu", where=where))


def reload(pipeline: Pipeline, lake: LakeFolder, database: Database, tables: Mapping[str, Any]) -> None:
    lake.config(group({"eu": database}, tables))

    async def take_over() -> None:
        pipeline.app.take_over(pipeline.app.difference(load(lake.folder / "map.yaml", {}).config))

    pipeline.call(take_over())
    wait_until(lambda: not pipeline.app._sources.is_changing, "the map is in use")


@pytest.mark.parametrize("format_version", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_are_in_the_target_of_their_value(database: Database, spark_session: Any, format_version: int) -> None:
    lake = LakeFolder(spark_session, format_version=format_version)
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")  # rows that move bring what did not change
    tables = {"events": {"route": ROUTE}}
    try:
        config = lake.config(group({"eu": database}, tables))
        with Pipeline(config, lake) as pipeline:
            pipeline.wait_streaming()
            assert_equal(pipeline, database)
            change(database)
            assert_equal(pipeline, database)
            database.execute("ALTER TABLE events ADD COLUMN more int DEFAULT 7")
            change(database, begin=200)
            database.execute("UPDATE events SET more = id, kind = 'a' WHERE id % 13 = 0")
            assert_equal(pipeline, database)
            reports = verify.reports(config, session=lake.session)
            assert [report.differences for report in reports] == [0, 0, 0]
        database.execute("ALTER TABLE events RENAME COLUMN n TO m")
        database.execute("ALTER TABLE events RENAME TO things")
        change_things = "UPDATE things SET kind = {} WHERE id % 2 = 1"
        database.execute(change_things.format(KINDS.format("(id + 2)")))
        with Pipeline(config, lake) as pipeline:
            pipeline.wait_streaming()
            database.execute(change_things.format(KINDS.format("(id + 3)")))
            pipeline.wait_applied(database)
            for target, where in ROUTES.items():
                pipeline.assert_equal(target, source_rows(database.url, "things", sid="eu", where=where))
            database.execute("TRUNCATE things")
            database.execute("INSERT INTO things VALUES (1, 'a', 1, 'x', 1), (2, 'c', 1, 'x', 1)")
            pipeline.wait_applied(database)
            for target, where in ROUTES.items():
                pipeline.assert_equal(target, source_rows(database.url, "things", sid="eu", where=where))
    finally:
        lake.remove()


#: Nothing else has a target, but for rows that the filter leaves out.
CLOSED = {name: value for name, value in ROUTE.items() if name != "rest"}
NO_TARGET = "has no target: `route` neither allows it nor has a `rest`"


@pytest.mark.parametrize("kind", ["clone", pytest.param("history", marks=pytest.mark.slow)])
def test_values_without_a_target_are_rejected_where_nothing_takes_the_rest(
    database: Database, lake_folder: LakeFolder, kind: str
) -> None:
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    options = {"route": CLOSED, "type": kind, "filter": "n <> 3 OR n IS NULL", "on_bad_value": "reject"}
    config = lake_folder.config(group({"eu": database}, {"events": options}), lake={"about": "_kuvasz"})
    closed = {target: ROUTES[target] for target in ("of_a", "of_b")}

    def check(pipeline: Pipeline) -> None:
        pipeline.wait_applied(database)
        assert set(pipeline.states().values()) == {State.STREAMING}, pipeline.errors()
        for target, where in closed.items():
            wanted = source_rows(database.url, "events", sid="eu", where=f"({where}) AND n IS DISTINCT FROM 3")
            if kind == "clone":
                pipeline.assert_equal(target, wanted)

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        check(pipeline)
        change(database)
        check(pipeline)
        database.execute("UPDATE events SET kind = 'c' WHERE id % 4 = 1")
        check(pipeline)
        database.execute("UPDATE events SET kind = 'a' WHERE kind = 'c' AND id % 8 = 1")
        database.execute("DELETE FROM events WHERE kind = 'c' AND id % 3 = 1")
        check(pipeline)
        for report in verify.reports(config, session=lake_folder.session):
            assert (report.error, report.differences) == ("", 0)
    told = rejects(lake_folder)
    assert {row["target"] for row in told} == {"shop.of_a"}
    assert {row["reason"] for row in told} == {"the filter fails for it"}
    assert {row["operation"] for row in told} == {"R", "I", "U"}
    assert "3" not in {json.loads(row["raw_row"])["n"] for row in told}, "the filter leaves it out"


def test_a_value_without_a_target_stops_that_of_the_first_value(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE events (id int PRIMARY KEY, kind text, n int)")
    config = lake_folder.config(group({"eu": database}, {"events": {"route": CLOSED}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO events VALUES (1, 'a', 1), (2, 'b', 1)")
        pipeline.wait_applied(database)
        database.execute("INSERT INTO events VALUES (3, 'c', 1)")
        pipeline.wait_state("shop_eu", "shop.of_a", State.ERROR)
        (error,) = pipeline.errors()
        assert f"c {NO_TARGET}" in error
        database.execute("INSERT INTO events VALUES (4, 'b', 1)")
        wait_until(lambda: len(pipeline.rows("of_b")) == 2, "the other one goes on")


def test_a_route_that_stops_waits_alone_and_comes_back(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    config = lake_folder.config(group({"eu": database}, {"events": {"route": ROUTE}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", "shop.of_b", "shop_eu")
        pipeline.wait_state("shop_eu", "shop.of_b", State.PAUSED)
        change(database)
        database.execute("ALTER TABLE events ADD COLUMN more int")
        database.execute("UPDATE events SET more = 1, kind = 'b' WHERE id % 9 = 0")
        pipeline.wait_state("shop_eu", "shop.of_a", State.STREAMING)
        pipeline.tell("resume", "shop.of_b", "shop_eu")
        pipeline.wait_streaming()
        assert_equal(pipeline, database)
        pipeline.tell("resync", "shop.others", "shop_eu")
        change(database, begin=300)
        pipeline.wait_streaming()
        assert_equal(pipeline, database)
    killed = Pipeline(config, lake_folder)
    killed.__enter__()
    killed.wait_streaming()
    change(database, begin=400)
    killed.die()
    change(database, begin=500)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert_equal(pipeline, database)


@pytest.mark.slow
def test_another_map_has_other_routes(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    config = lake_folder.config(group({"eu": database}, {"events": {"route": ROUTE}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert_equal(pipeline, database)
        reload(pipeline, lake_folder, database, {"events": {"route": ROUTE | {"allow": ["a", "b", "c"]}}})
        change(database)
        routes = {**ROUTES, "of_c": "kind = 'c'", "others": "kind IS NULL OR kind NOT IN ('a', 'b', 'c')"}
        pipeline.wait_streaming()
        assert_equal(pipeline, database, routes)
        reload(pipeline, lake_folder, database, {"events": {"route": ROUTE | {"allow": ["a"]}}})
        change(database, begin=300)
        pipeline.wait_streaming()
        assert_equal(pipeline, database, {"of_a": "kind = 'a'", "others": "kind IS NULL OR kind <> 'a'"})


def test_a_target_that_is_new_has_what_the_rest_loses_to_it(database: Database, lake_folder: LakeFolder) -> None:
    """The table was taken in before, so what it has had since must not go with the rows that were skipped."""
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    config = lake_folder.config(group({"eu": database}, {"events": {"route": ROUTE, "initial": "skip"}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert not any(pipeline.rows(target) for target in ROUTES)
        change(database)
        pipeline.wait_applied(database)
        another = ROUTE | {"allow": ["a", "b", "c"]}
        reload(pipeline, lake_folder, database, {"events": {"route": another, "initial": "skip"}})
        pipeline.wait_streaming()
        rest = "kind IS NULL OR kind NOT IN ('a', 'b', 'c')"
        assert_equal(pipeline, database, {"of_c": "kind = 'c'", "others": rest})
        assert pipeline.app.lake.notes.skipped("shop.of_a", "shop_eu"), "its rows are what they were"


@pytest.mark.slow
def test_rows_that_keep_large_values_need_replica_identity_full_to_move(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"events": {"route": ROUTE}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE events SET n = n + 1, body = 'small' WHERE kind = 'a'")
        database.execute("UPDATE events SET n = n + 1 WHERE kind = 'b'")  # stays, and what is large with it
        database.execute("UPDATE events SET kind = 'b' WHERE kind = 'a' AND id % 3 = 0")
        assert_equal(pipeline, database)
        database.execute("UPDATE events SET kind = 'a' WHERE kind = 'b' AND body <> 'small'")
        pipeline.wait_state("shop_eu", "shop.of_a", State.ERROR)
        assert "REPLICA IDENTITY FULL" in str(pipeline.errors())
        pipeline.wait_state("shop_eu", "shop.of_b", State.STREAMING)
        database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
        pipeline.tell("resync", "shop.of_a", "shop_eu")
        pipeline.wait_streaming()
        database.execute("UPDATE events SET kind = 'c' WHERE kind = 'a' AND id % 2 = 0")
        assert_equal(pipeline, database)


@pytest.mark.slow
def test_types_that_keep_the_past_and_partitioned_tables_have_routes(
    database: Database, lake_folder: LakeFolder
) -> None:
    for name in ("parts", "past", "log", "added"):
        database.execute(
            f"CREATE TABLE {name} (id int, kind text, n int, PRIMARY KEY (id, n))"
            + (" PARTITION BY RANGE (n)" if name == "parts" else "")
        )
    database.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)")
    tables = {
        name: {
            "type": kind,
            "route": {"by": "lower(kind)", "to": f"{name}_{{value}}", "allow": ["a"], "rest": f"{name}_x"},
        }
        for name, kind in (("parts", "clone"), ("past", "history"), ("log", "changelog"), ("added", "append"))
    }
    database.execute("ALTER TABLE parts_1 REPLICA IDENTITY FULL")
    for name in tables:
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {name} VALUES (1, 'A', 1), (2, 'b', 1), (3, NULL, 1)")
    config = lake_folder.config(group({"eu": database}, tables))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)")
        database.execute("ALTER TABLE parts_2 REPLICA IDENTITY FULL")
        for name in tables:
            database.execute(f"UPDATE {name} SET kind = 'a' WHERE id = 2")
            database.execute(f"INSERT INTO {name} VALUES (4, 'a', 101)")
            database.execute(f"DELETE FROM {name} WHERE id = 1")
        pipeline.wait_applied(database)
        shown = {
            target: sorted(
                tuple(row.values())
                for row in lake_folder.session.sql(
                    f"SELECT {columns} FROM {lake_folder.catalog}.shop.{target}"
                ).toArrow().to_pylist()
            )
            for target, columns in (
                ("parts_a", "id"), ("parts_x", "id"), ("added_a", "id"), ("added_x", "id"),
                ("past_a", "id, kvsz_end > timestamp '9000-01-01' AS is_open"),
                ("past_x", "id, kvsz_end > timestamp '9000-01-01' AS is_open"),
                ("log_a", "id, _op"), ("log_x", "id, _op"),
            )
        }  # fmt: skip
        assert shown == {
            "parts_a": [(2,), (4,)], "parts_x": [(3,)],
            "added_a": [(1,), (2,), (4,)], "added_x": [(2,), (3,)],
            "past_a": [(1, False), (2, True), (4, True)], "past_x": [(2, False), (3, True)],
            "log_a": [(1, "D"), (1, "R"), (2, "U"), (4, "I")], "log_x": [(2, "D"), (2, "R"), (3, "R")],
        }  # fmt: skip
        database.execute("DROP TABLE parts_2")
        database.execute("INSERT INTO parts VALUES (5, 'q', 5)")
        target = f"{lake_folder.catalog}.shop.parts_a"
        wait_until(
            lambda: [row.id for row in lake_folder.session.sql(f"SELECT id FROM {target}").collect()] == [2],
            "the partition's rows are gone", 90,
        )  # fmt: skip
        assert [report.differences for report in verify.reports(config, session=lake_folder.session)] == [0] * 8


def test_a_group_shows_a_row_in_one_target_at_a_time(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    (databases,) = group({"eu": database}, {"events": {"route": ROUTE}})
    config = lake_folder.config([databases | {"consistency": "group"}])
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database)
        assert_equal(pipeline, database)


@pytest.mark.slow
def test_routes_are_repaired_after_a_lost_slot_and_by_verify(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("ALTER TABLE events REPLICA IDENTITY FULL")
    (databases,) = group({"eu": database}, {"events": {"route": ROUTE}})
    config = lake_folder.config([databases | {"on_slot_lost": "repair"}])
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database)
        assert_equal(pipeline, database)
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    )
    change(database, begin=200)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, begin=300)
        assert_equal(pipeline, database)
    # As if rows had been lost, or left behind, in the lake.
    for target in ("of_a", "others"):
        lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.{target} WHERE id % 2 = 0")
    lake_folder.session.sql(
        f"INSERT INTO {lake_folder.catalog}.shop.of_b SELECT * FROM {lake_folder.catalog}.shop.of_a LIMIT 1"
    )
    found = {report.target: report.differences for report in verify.reports(config, session=lake_folder.session)}
    assert all(found.values()), found
    fixed = verify.reports(config, session=lake_folder.session, is_fixing=True)
    assert [report.left for report in fixed] == [0, 0, 0]
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, begin=400)
        assert_equal(pipeline, database)
