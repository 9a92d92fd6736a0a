"""The options `columns` and `exclude` through the whole path: what is left out is not looked at."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import Rows, source_rows
from tests.support.postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: `born` may hold what the lake cannot (out_of_range is `error`), `body` is stored out of line.
PEOPLE = """
CREATE TABLE people (born date, id bigint PRIMARY KEY, name text, body text, n int);
ALTER TABLE people ALTER body SET STORAGE EXTERNAL;
"""


def _rows(database: Database, *columns: str) -> Rows:
    return source_rows(database.url, "people", sid="eu").select(("sid", *columns))


def _fill(database: Database) -> None:
    with database.connect() as session:
        session.execute(PEOPLE)
        session.execute(
            "INSERT INTO people SELECT 'infinity', i, 'p' || i, repeat('x', 4000), 0 FROM generate_series(1, 40) i"
        )


@pytest.mark.parametrize("entry", [{"exclude": ["born", "body"]}, {"columns": ["n", "id", "name"]}])
def test_what_is_left_out_is_neither_written_nor_looked_at(
    database: Database, lake_folder: LakeFolder, entry: dict
) -> None:
    _fill(database)
    config = lake_folder.config(group({"eu": database}, {"people": entry}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("UPDATE people SET n = n + 1 WHERE id % 3 = 0")  # body: unchanged, not sent
            session.execute("INSERT INTO people VALUES ('-infinity', 100, 'new', 'b', 1)")
            session.execute("UPDATE people SET id = id + 1000, born = '20000-01-01' WHERE id < 5")
            session.execute("DELETE FROM people WHERE id = 7")
        pipeline.wait_applied(database)
        pipeline.assert_equal("people", _rows(database, "id", "name", "n"))


def test_a_filter_may_look_at_what_is_left_out(database: Database, lake_folder: LakeFolder) -> None:
    _fill(database)
    entry = {"exclude": ["born", "body"], "filter": "length(body) > 10 AND n < 3"}
    database.execute("ALTER TABLE people REPLICA IDENTITY FULL")
    with Pipeline(lake_folder.config(group({"eu": database}, {"people": entry})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("UPDATE people SET body = 'short' WHERE id % 5 = 0")
            session.execute("UPDATE people SET n = id % 6")
        pipeline.wait_applied(database)
        database.execute("DELETE FROM people WHERE length(body) <= 10 OR n >= 3")
        pipeline.wait_applied(database)
        pipeline.assert_equal("people", _rows(database, "id", "name", "n"))


def test_a_new_column_is_taken_unless_the_map_lists_those_it_wants(
    database: Database, lake_folder: LakeFolder
) -> None:
    _fill(database)
    listed = lake_folder.config(group({"eu": database}, {"people": {"columns": ["id", "n"]}}))
    with Pipeline(listed, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE people ADD later int")
        database.execute("UPDATE people SET later = 1, n = 5 WHERE id < 10")
        pipeline.wait_applied(database)
        pipeline.assert_equal("people", _rows(database, "id", "n"))
    wider = lake_folder.config(group({"eu": database}, {"people": {"columns": ["id", "n", "later"]}}))
    with Pipeline(wider, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("people", _rows(database, "id", "n", "later"))


def test_exclude_takes_columns_that_come_later(database: Database, lake_folder: LakeFolder) -> None:
    _fill(database)
    config = lake_folder.config(group({"eu": database}, {"people": {"exclude": ["born", "body"]}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    database.execute("ALTER TABLE people ADD later int")
    database.execute("UPDATE people SET later = 1 WHERE id < 10")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("people", _rows(database, "id", "name", "n", "later"))


def test_a_column_left_out_from_now_on_stays_as_it_is_and_is_no_longer_filled(
    database: Database, lake_folder: LakeFolder
) -> None:
    _fill(database)
    database.execute("UPDATE people SET born = '2000-01-01'")
    with Pipeline(lake_folder.config(group({"eu": database}, {"people": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
    config = lake_folder.config(group({"eu": database}, {"people": {"exclude": ["body"]}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE people SET n = 1, body = 'no'")
        pipeline.wait_applied(database)
        database.execute("UPDATE people SET body = NULL")
        expected = source_rows(database.url, "people", sid="eu")
        pipeline.assert_equal("people", expected)


def test_a_wrong_list_is_refused_with_its_place(database: Database, lake_folder: LakeFolder) -> None:
    _fill(database)
    database.execute("CREATE TABLE fine (id int PRIMARY KEY)")
    tables = {"people": {"exclude": ["bodi"]}, "fine": None}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.people", State.ERROR)
        (error,) = pipeline.errors()
        assert "source shop_eu, table public.people: exclude names 'bodi'" in error
        assert "did you mean 'body'?" in error


# Slow: append tables write as changelogs do, without a kind.
@pytest.mark.parametrize("kind", ["history", "changelog", pytest.param("append", marks=pytest.mark.slow)])
def test_a_large_value_that_was_left_out_is_never_taken_for_null(
    database: Database, lake_folder: LakeFolder, kind: str
) -> None:
    """Rows of before stay without it, and an UPDATE that does not change it has no other place to take it from."""
    _fill(database)
    database.execute("UPDATE people SET born = NULL")
    without, whole = (
        lake_folder.config(group({"eu": database}, {"people": {"type": kind} | entry}))
        for entry in ({"exclude": ["body"]}, {})
    )
    with Pipeline(without, lake_folder, until_caught_up=True) as job:
        assert job.ended() == 0
    database.execute("UPDATE people SET n = 1 WHERE id = 1; UPDATE people SET n = 1, body = 'new' WHERE id = 2")
    with Pipeline(whole, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.people", State.ERROR)
        assert "leaves out a large value that did not change" in pipeline.errors()[0]
        pipeline.tell("resync", "shop.people", "shop_eu")
        pipeline.wait_streaming()
        database.execute("UPDATE people SET n = 2 WHERE id IN (1, 2)")
        pipeline.wait_applied(database)
        rows = pipeline.folder.session.table(f"{pipeline.folder.catalog}.shop.people").toArrow().to_pylist()
        assert {row["id"]: row["body"][:3] for row in rows if row["n"] == 2} == {1: "xxx", 2: "new"}


#: Table -> its entry, the column that comes, and what is said of it.
UNREAD = {
    "marked": ({}, "_deleted", "Iceberg has something of its own by the name _deleted, so Spark reads no such table"),
    "alike": ({}, '"Name"', "the columns name and Name differ in case only, and Spark reads no table with both"),
    "parted": (
        {"partition_by": ["days(at)"]},
        "at_day",
        "shop.parted is or was partitioned by what Iceberg calls at_day",
    ),
}


def test_a_column_that_would_keep_readers_out_is_told_with_what_helps(
    database: Database, lake_folder: LakeFolder
) -> None:
    for table in (*UNREAD, "again"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text, at timestamptz)")
        database.execute(f"INSERT INTO {table} VALUES (1, 'a', '2024-02-29')")
    entries = {table: entry for table, (entry, _, _) in UNREAD.items()}
    config = lake_folder.config(group({None: database}, entries | {"again": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for table, (_, column, _) in UNREAD.items():
            database.execute(
                f"ALTER TABLE {table} ADD {column} text; INSERT INTO {table} VALUES (2, 'b', now(), 'x')"
            )
        database.execute("ALTER TABLE again DROP name; ALTER TABLE again ADD \"Name\" text DEFAULT 'n'")
        for table, (_, column, said) in UNREAD.items():
            pipeline.wait_state("shop", f"shop.{table}", State.ERROR)
            error = next(str(one.error) for one in pipeline.app.view().tables if one.target == f"shop.{table}")
            assert said in error
            name = column.strip('"')
            assert f"`exclude: [{name}]`" in error
            entries[table]["exclude"] = [name]
    with Pipeline(lake_folder.config(group({None: database}, entries | {"again": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for table in UNREAD:
            pipeline.assert_equal(table, source_rows(database.url, table, ["id", "name", "at"]))
        again = lake_folder.session.table(lake_folder.spark_name("again"))
        assert again.columns == ["id", "name__old", "at", "Name"]
        assert [row.Name for row in again.collect()] == ["n"]
