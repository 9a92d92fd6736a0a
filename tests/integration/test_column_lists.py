"""The option `column_list`: what the map leaves out stays at the source, and nothing is lost as lists change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import psycopg
import pytest

from kuvasz.source import conninfo
from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from kuvasz.sync.context.publications import Publications
from tests.support import publishing
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import Rows, source_rows
from tests.support.postgres import Database, needs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU, PEOPLE = "shop_eu", "shop.people"
EXCLUDE = {"exclude": ["secret"], "column_list": True}
COLUMNS = {"columns": ["id", "a", "b"], "column_list": True}


@pytest.fixture(autouse=True)
def has_lists(database: Database) -> None:
    needs(database.server, 15, "column lists")


def fill(database: Database, more: str = "") -> None:
    database.execute("CREATE TABLE people (secret text, id int PRIMARY KEY, a text, b text)")
    database.execute("INSERT INTO people SELECT 's' || i, i, 'a' || i, 'b' || i FROM generate_series(1, 50) i")
    if more:
        database.execute(more)


def change(database: Database, number: int) -> None:
    database.execute(f"UPDATE people SET a = 'n{number}', secret = 'z{number}' WHERE id % 5 = 0")
    database.execute(f"UPDATE people SET id = id + 100000 WHERE id = {number}")
    database.execute(f"DELETE FROM people WHERE id = {number + 10}")
    database.execute(
        f"INSERT INTO people SELECT 's', {number}000 + i, 'a{number}', 'b{number}' FROM generate_series(1, 9) i"
    )


def listed(database: Database) -> set[str] | None:
    """The columns that the publication sends; None: all, in no list."""
    rows = database.execute(
        "SELECT r.prattrs IS NULL, a.attname FROM pg_publication_rel r JOIN pg_attribute a ON a.attrelid = r.prrelid"
        " AND a.attnum > 0 AND NOT a.attisdropped AND (r.prattrs IS NULL OR a.attnum = ANY(r.prattrs::int2[]))"
    )
    assert rows, "it is not published"
    return None if rows[0][0] else {name for _, name in rows}


def running(lake: LakeFolder, database: Database, entry: Mapping[str, object]) -> AbstractContextManager[Pipeline]:
    return publishing.running(lake, database, "people", entry)


def assert_equal(pipeline: Pipeline, database: Database, *columns: str) -> None:
    pipeline.wait_applied(database)
    pipeline.assert_equal("people", rows(database, *columns))


def rows(database: Database, *columns: str) -> Rows:
    return source_rows(database.url, "people", sid="eu").select(("sid", *columns))


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], int]:
    """How often a message was logged."""
    caplog.set_level("INFO", logger="kuvasz")
    return lambda message: publishing.times_told(caplog, message)


# Slow: test_columns.py copies and streams with both ways to say it.
@pytest.mark.parametrize("entry", [EXCLUDE, pytest.param(COLUMNS, marks=pytest.mark.slow)])
def test_what_is_left_out_never_comes(database: Database, lake_folder: LakeFolder, entry: dict) -> None:
    fill(database)
    with running(lake_folder, database, entry) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        change(database, 1)
        assert_equal(pipeline, database, "id", "a", "b")
    change(database, 2)
    with running(lake_folder, database, entry) as pipeline:
        change(database, 3)
        assert_equal(pipeline, database, "id", "a", "b")
    name = pipeline.app.sources[0].source.object_name
    database.execute("SELECT pg_create_logical_replication_slot('watch', 'pgoutput')")
    database.execute("INSERT INTO people VALUES ('Zq7secret', 77777, 'Zq7plain', 'b')")
    wait_until(lambda: b"Zq7plain" in sent(database, name), "it is in the stream")
    assert b"Zq7secret" not in sent(database, name)


def sent(database: Database, publication: str) -> bytes:
    """What the slot `watch` has for who names a publication."""
    query = (
        "SELECT data FROM pg_logical_slot_peek_binary_changes('watch', NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)"
    )
    return b"".join(bytes(data) for (data,) in database.execute(query, (publication,)))


def test_a_table_that_follows_gets_a_list_and_misses_nothing(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, {"exclude": ["secret"]}) as pipeline:
        change(database, 1)
        assert_equal(pipeline, database, "id", "a", "b")
        assert listed(database) is None
    change(database, 2)  # a backlog from before the list
    with running(lake_folder, database, EXCLUDE) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        change(database, 3)
        assert_equal(pipeline, database, "id", "a", "b")
    change(database, 4)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        change(database, 5)
        assert_equal(pipeline, database, "id", "a", "b")
    assert told("table copied") == 1
    assert told("a table was not published without interruption, and is compared with its source") == 0


def test_a_column_that_is_added_is_taken_whole(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        change(database, 1)
        database.execute("ALTER TABLE people ADD c text")
        database.execute("UPDATE people SET c = 'c' || id WHERE id % 2 = 0")
        wait_until(lambda: listed(database) == {"id", "a", "b", "c"}, "the list is widened")
        pipeline.wait_streaming()
        database.execute("UPDATE people SET c = 'd' || id WHERE id % 4 = 0")
        assert_equal(pipeline, database, "id", "a", "b", "c")
        assert told("table copied") == 2
    database.execute("ALTER TABLE people ADD d text")  # while nobody looks
    database.execute("UPDATE people SET d = 'd' || id WHERE id % 3 = 0")
    with running(lake_folder, database, EXCLUDE) as pipeline:
        assert listed(database) == {"id", "a", "b", "c", "d"}
        change(database, 2)
        assert_equal(pipeline, database, "id", "a", "b", "c", "d")
        assert told("table copied") == 3


def test_columns_that_are_listed_ask_for_no_copy_when_others_come(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, COLUMNS) as pipeline:
        database.execute("ALTER TABLE people ADD c text; ALTER TABLE people DROP secret")
        database.execute("ALTER TABLE people RENAME b TO x; ALTER TABLE people RENAME x TO b")
        database.execute("UPDATE people SET c = 'c', b = 'new' WHERE id % 2 = 0")
        assert_equal(pipeline, database, "id", "a", "b")
        assert listed(database) == {"id", "a", "b"}
    assert told("table copied") == 1
    database.execute("UPDATE people SET c = 'd', b = 'newer' WHERE id % 3 = 0")
    with running(lake_folder, database, {**COLUMNS, "columns": ["id", "b", "c"]}) as pipeline:
        assert listed(database) == {"id", "b", "c"}
        database.execute("UPDATE people SET c = 'e', b = 'newest' WHERE id % 5 = 0")
        pipeline.wait_applied(database)
        found = {(row[0], row[-2], row[-1]) for row in pipeline.rows("people")}
        assert found == set(database.execute("SELECT id, b, c FROM people"))


def test_a_full_replica_identity_takes_the_list_away(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        database.execute("ALTER TABLE people REPLICA IDENTITY FULL")
        wait_until(lambda: database.takes("UPDATE people SET a = 'full' WHERE id < 9"), "UPDATEs go on")
        pipeline.wait_streaming()
        assert listed(database) is None
        change(database, 1)
        assert_equal(pipeline, database, "id", "a", "b")
        assert told("columns that the map leaves out leave the source, though it asks for a list of columns") == 1
        database.execute("ALTER TABLE people REPLICA IDENTITY DEFAULT")
        change(database, 2)
        assert_equal(pipeline, database, "id", "a", "b")
    with running(lake_folder, database, EXCLUDE) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        change(database, 3)
        assert_equal(pipeline, database, "id", "a", "b")


def test_a_paused_table_is_not_in_the_way_of_the_application_either(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        pipeline.tell("pause", PEOPLE, EU)
        pipeline.wait_state(EU, PEOPLE, State.PAUSED)
        database.execute("ALTER TABLE people REPLICA IDENTITY FULL")
        wait_until(lambda: database.takes("UPDATE people SET a = 'full' WHERE id < 9"), "UPDATEs go on")
        change(database, 1)
        pipeline.tell("resume", PEOPLE, EU)
        pipeline.wait_streaming()
        change(database, 2)
        assert_equal(pipeline, database, "id", "a", "b")


def test_a_key_that_the_map_leaves_out_has_the_table_leave_the_publication(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database, "ALTER TABLE people ADD other int GENERATED ALWAYS AS IDENTITY")
    entry = {**COLUMNS, "exclude": None}
    with running(lake_folder, database, entry) as pipeline:
        database.execute("ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (other)")
        pipeline.wait_state(EU, PEOPLE, State.ERROR)
        wait_until(lambda: database.takes("UPDATE people SET a = 'other' WHERE id < 9"), "UPDATEs go on")
        database.execute("ALTER TABLE people DROP CONSTRAINT people_pkey, ADD PRIMARY KEY (id)")
        pipeline.wait_streaming()
        change(database, 1)
        assert_equal(pipeline, database, "id", "a", "b")
        assert listed(database) == {"id", "a", "b"}


def test_a_table_that_is_dropped_from_the_publication_with_a_column_is_compared(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        assert not database.takes("ALTER TABLE people DROP b")
        assert not database.takes("ALTER TABLE people ALTER b TYPE varchar(9)")
        with database.connect() as session:
            session.execute("ALTER TABLE people DROP b CASCADE")
            session.execute("UPDATE people SET a = 'unseen' WHERE id < 20")
        wait_until(lambda: database.execute("SELECT 1 FROM pg_publication_rel"), "it is published again")
        pipeline.wait_streaming()
        database.execute("UPDATE people SET a = 'seen' WHERE id < 5")
        pipeline.wait_applied(database)
        found = {(row[0], row[1]) for row in pipeline.rows("people")}
        assert found == set(database.execute("SELECT id, a FROM people"))


def test_a_partitioned_table_has_the_list_of_its_root(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(
        "CREATE TABLE people (secret text, id int PRIMARY KEY, a text, b text) PARTITION BY RANGE (id);"
        "CREATE TABLE low (b text, gone int, secret text, id int NOT NULL, a text); ALTER TABLE low DROP gone;"
        "ALTER TABLE people ATTACH PARTITION low FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE high PARTITION OF people DEFAULT"
    )
    database.execute("INSERT INTO people SELECT 's' || i, i, 'a' || i, 'b' || i FROM generate_series(1, 150) i")
    with running(lake_folder, database, EXCLUDE) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        change(database, 1)
        assert_equal(pipeline, database, "id", "a", "b")
        database.execute("ALTER TABLE people ADD c text")
        database.execute("UPDATE people SET c = 'c' WHERE id < 120")
        wait_until(lambda: listed(database) == {"id", "a", "b", "c"}, "the list is widened")
        pipeline.wait_streaming()
        change(database, 2)
        assert_equal(pipeline, database, "id", "a", "b", "c")


def test_a_filter_and_masks_have_what_they_read(database: Database, lake_folder: LakeFolder) -> None:
    fill(database, "ALTER TABLE people ADD age int DEFAULT 30")
    entry = {"columns": ["id", "a"], "column_list": True, "filter": "AGE > 20 AND b <> 'b7'", "mask": {"a": "redact"}}
    with running(lake_folder, database, entry) as pipeline:
        assert listed(database) == {"id", "a", "b", "age"}
        database.execute("UPDATE people SET age = 10 WHERE id % 2 = 0")
        change(database, 1)
        database.execute("UPDATE people SET b = 'b7' WHERE id % 3 = 0")
        pipeline.wait_applied(database)
        found = {(row[0], row[1]) for row in pipeline.rows("people")}
        assert found == set(database.execute("SELECT id, '***' FROM people WHERE age > 20 AND b <> 'b7'"))


def test_an_append_table_goes_on_with_another_list(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    entry = {"columns": ["id", "a"], "type": "append"}
    with running(lake_folder, database, entry) as pipeline:
        assert listed(database) is None
    database.execute("INSERT INTO people VALUES ('s', 1001, 'x', 'y')")
    with running(lake_folder, database, {**entry, "column_list": True}) as pipeline:
        assert listed(database) == {"id", "a"}
        database.execute("INSERT INTO people VALUES ('s', 1002, 'x', 'y')")
        pipeline.wait_applied(database)
    database.execute("INSERT INTO people VALUES ('s', 1003, 'x', 'y')")
    with running(lake_folder, database, {**entry, "column_list": True, "columns": ["id", "a", "b"]}) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        database.execute("INSERT INTO people VALUES ('s', 1004, 'x', 'y')")
        pipeline.wait_applied(database)
        found = [row for row in pipeline.rows("people") if row[0] > 1000]
        assert sorted(map(repr, found)) == sorted(
            map(repr, [(1001, "x", None), (1002, "x", None), (1003, "x", None), (1004, "x", "y")])
        )
    assert told("table copied") == 1


def test_exclude_of_what_keeps_the_past_gets_no_list(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, {**EXCLUDE, "type": "append"}):
        assert listed(database) is None
    assert told("columns that the map leaves out leave the source, though it asks for a list of columns") == 1


def test_without_the_option_a_list_stays_and_is_no_longer_altered(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    with running(lake_folder, database, COLUMNS):
        pass
    with running(lake_folder, database, {"columns": ["id", "a"]}) as pipeline:
        assert listed(database) == {"id", "a", "b"}
        change(database, 1)
        pipeline.wait_applied(database)
    config = lake_folder.config(group({"eu": database}, {"people": None, "others": None}))
    database.execute("CREATE TABLE others (id int PRIMARY KEY)")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, PEOPLE, State.ERROR)
        (error,) = pipeline.errors()
        assert "without its columns secret" in error
        assert "ALTER PUBLICATION" in error


def test_a_locked_table_gets_its_list_later(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conninfo, "LOCK_WAIT", "SET LOCAL lock_timeout = '100ms'")
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.5)
    fill(database)
    with running(lake_folder, database, {"exclude": ["secret"]}):
        pass
    config = lake_folder.config(group({"eu": database}, {"people": EXCLUDE, "others": None}))
    database.execute("CREATE TABLE others (id int PRIMARY KEY)")
    with database.connect() as other:
        other.execute("LOCK TABLE people IN SHARE UPDATE EXCLUSIVE MODE")
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state(EU, PEOPLE, State.ERROR)
            assert "locked by another session" in str(pipeline.errors())
            change(database, 1)
            other.rollback()
            wait_until(lambda: listed_of(database, "people") == {"id", "a", "b"}, "it has its list")
            pipeline.wait_streaming()
            change(database, 2)
            assert_equal(pipeline, database, "id", "a", "b")


def listed_of(database: Database, table: str) -> set[str]:
    found = database.execute(
        "SELECT a.attname FROM pg_publication_rel r JOIN pg_attribute a ON a.attrelid = r.prrelid"
        " AND a.attnum = ANY(r.prattrs::int2[]) WHERE r.prrelid = %s::regclass", (table,),
    )  # fmt: skip
    return {name for (name,) in found}


def test_who_ends_between_the_list_and_the_note_of_it_has_a_gap_looked_for(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, {"exclude": ["secret"]}):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(Publications, "_note_list", lambda *_: None)
        with running(lake_folder, database, EXCLUDE) as pipeline:
            pipeline.stop()
    change(database, 1)
    with running(lake_folder, database, EXCLUDE) as pipeline:
        change(database, 2)
        assert_equal(pipeline, database, "id", "a", "b")
    assert told("table copied") >= 1


def test_lists_come_and_go_while_rows_are_written(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    stop = threading.Event()

    def write() -> None:
        number = 0
        with psycopg.connect(database.url, autocommit=True) as session:
            while not stop.wait(0.002):
                number += 1
                with session.transaction():
                    session.execute(
                        "UPDATE people SET a = %s, secret = 'w' WHERE id = %s", (f"w{number}", number % 50)
                    )
                    session.execute("INSERT INTO people VALUES ('s', %s, 'a', 'b')", (200000 + number,))
                    session.execute("UPDATE people SET b = %s WHERE id = %s", (f"w{number}", 200000 + number // 2))

    writer = threading.Thread(target=write)
    writer.start()
    entries = [{"exclude": ["secret"]}, EXCLUDE, COLUMNS, {**COLUMNS, "columns": ["id", "a", "b", "secret"]}, EXCLUDE]
    try:
        for entry in entries:
            with running(lake_folder, database, entry) as pipeline:
                pipeline.wait_applied(database)
    finally:
        stop.set()
        writer.join()
    with running(lake_folder, database, EXCLUDE) as pipeline:
        change(database, 1)
        pipeline.wait_applied(database)
        found = {row[:3] for row in pipeline.rows("people")}
        assert found == set(database.execute("SELECT id, a, b FROM people"))
        assert len(pipeline.rows("people")) == len(found)


def test_check_and_plan_know_of_the_list(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)

    def told(entry: dict) -> tuple[list[str], list[str]]:
        return publishing.verbs_say(lake_folder, database, "people", entry)

    (create,), (value,) = told(EXCLUDE)
    assert 'FOR TABLE ONLY "public"."people" ("id", "a", "b")' in create
    assert value == "may be made so "
    with running(lake_folder, database, {"exclude": ["secret"]}):
        pass
    (drop, add), (value,) = told(EXCLUDE)
    assert drop == 'ALTER PUBLICATION "kuvasz_shop_eu" DROP TABLE ONLY "public"."people";'
    assert add == 'ALTER PUBLICATION "kuvasz_shop_eu" ADD TABLE ONLY "public"."people" ("id", "a", "b");'
    assert value == "may be made so "
    database.execute(drop)
    database.execute(add)
    for entry in (EXCLUDE, {"exclude": ["secret"]}):  # made by hand, too: it lacks nothing that the map takes
        assert told(entry) == ([], ["fits "])
