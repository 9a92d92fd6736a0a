"""Schema changes with several sources, while kuvasz is down, during a copy, in format 2, and after a kill."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from kuvasz.sync.context import requests
from tests.support.evolving import ITEMS, ROWS, assert_same, change, fields, start
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import Rows, lake_rows_pyiceberg
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def second(postgres16) -> Database:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def two(database: Database, second: Database, lake_folder: LakeFolder, **options: object) -> Pipeline:
    for source in (database, second):
        source.execute(ITEMS)
        source.execute(ROWS.format(1, 100))
    options.setdefault("on_schema_change", "evolve")
    return Pipeline(lake_folder.config(group({"eu": database, "us": second}, {"items": options})), lake_folder)


def rows_of(pipeline: Pipeline, sid: str, *columns: str) -> Rows:
    """The lake's rows of one source."""
    lake = pipeline.folder
    found = lake_rows_pyiceberg(lake.pyiceberg, "shop.items", ["sid", *columns], catalog=lake.catalog)
    found = found.select(["sid", *columns])
    return sorted((row[1:] for row in found.rows if row[0] == sid), key=repr)


def test_a_rename_comes_to_one_source_first(database: Database, second: Database, lake_folder: LakeFolder) -> None:
    with two(database, second, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items RENAME name TO label")
        change(second, "UPDATE items SET name = 'still here' WHERE id % 9 = 0")
        pipeline.wait_applied(database, second)
        assert "name" not in fields(pipeline)
        names = second.execute("SELECT id, name FROM items")
        assert rows_of(pipeline, "us", "id", "label") == sorted(names, key=repr)
        change(second, "ALTER TABLE items RENAME name TO label")
        change(second, "UPDATE items SET label = 'now too' WHERE id % 8 = 0")
        pipeline.wait_applied(database, second)
        assert_same(pipeline, database, second, key=("sid", "id"))
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database)
        change(second)
        pipeline.wait_applied(database, second)
        assert_same(pipeline, database, second, key=("sid", "id"))


def test_without_a_word_of_the_map_a_rename_waits_for_the_other_source(
    database: Database, second: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_FIRST_RETRY_S", 0.5)
    rename = "ALTER TABLE items RENAME name TO label"
    with two(database, second, lake_folder, on_schema_change="agree") as pipeline:
        pipeline.wait_streaming()
        change(database, rename)
        change(second, "UPDATE items SET name = 'still here' WHERE id % 9 = 0")
        wait_until(pipeline.errors, "one of them waits")
        assert "name was renamed to label: the lake's too, but shop_us has not done the same" in pipeline.errors()[0]
        expected = sorted(second.execute("SELECT id, name FROM items"), key=repr)
        wait_until(lambda: rows_of(pipeline, "us", "id", "name") == expected, "the other one goes on")
        assert "label" not in fields(pipeline)
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        wait_until(pipeline.errors, "it waits after a restart, too")
        change(second, rename)
        pipeline.wait_streaming()
        pipeline.wait_applied(database, second)
        assert not pipeline.errors()
        assert_same(pipeline, database, second, key=("sid", "id"))


def test_a_person_has_the_lake_follow_the_first(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    with two(database, second, lake_folder, on_schema_change="agree", type="history") as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items ALTER n TYPE text")
        change(second)
        wait_until(pipeline.errors, "one of them waits")
        assert "n__old" not in fields(pipeline)
        pipeline.tell("retry", "shop.items", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database, second)
        assert fields(pipeline)["n__old"] == "int"
        assert not pipeline.errors()


def test_a_column_and_a_type_come_to_one_source_first(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    with two(database, second, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items ADD extra int DEFAULT 7", "ALTER TABLE items ALTER n TYPE text")
        change(second)
        pipeline.wait_applied(database, second)
        assert rows_of(pipeline, "eu", "id", "n", "extra") == sorted(
            database.execute("SELECT id, n, extra FROM items"), key=repr
        )
        assert rows_of(pipeline, "us", "id", "n__old", "n", "extra") == sorted(
            second.execute("SELECT id, n, NULL, NULL FROM items"), key=repr
        )
        change(second, "ALTER TABLE items ALTER n TYPE text", "ALTER TABLE items ADD extra int DEFAULT 8")
        pipeline.wait_applied(database, second)
        assert_same(pipeline, database, second, key=("sid", "id"))


def test_a_row_from_before_a_column_has_no_default_of_another_source(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        source.execute("CREATE TABLE items (id int PRIMARY KEY)")
        source.execute("INSERT INTO items VALUES (1)")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items ADD d int DEFAULT 9")
        database.execute("INSERT INTO items VALUES (2, 2)")
        pipeline.wait_applied(database)
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    for source in (database, second):
        source.execute("INSERT INTO items VALUES (3)")
    second.execute("ALTER TABLE items ADD d int")
    second.execute("INSERT INTO items VALUES (4, 4)")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database, second)
        assert_same(pipeline, database, second, key=("sid", "id"))


def dropped_and_added(pipeline: Pipeline, database: Database, second: Database) -> None:
    """Column n goes in one of the sources, is seen to be gone, and comes again."""
    pipeline.wait_streaming()
    change(database, "ALTER TABLE items DROP n")
    pipeline.wait_applied(database, second)
    change(database, "ALTER TABLE items ADD n int", "INSERT INTO items (id, n) VALUES (5000, 5)")
    change(second)
    pipeline.wait_applied(database, second)


def test_a_column_is_dropped_and_added_again_in_one_source(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    with two(database, second, lake_folder) as pipeline:
        dropped_and_added(pipeline, database, second)
        pipeline.wait_streaming()
        assert_same(pipeline, database, second, key=("sid", "id"))


def test_a_column_is_dropped_and_added_again_in_one_source_of_rows_that_stay(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    with two(database, second, lake_folder, type="append") as pipeline:
        dropped_and_added(pipeline, database, second)
        earlier = rows_of(pipeline, "eu", "id", "n", "n__old")
        assert [row for row in earlier if row[1] is not None] == [(5000, 5, None)]
        assert (3, None, 3) in earlier
        expected = sorted(second.execute("SELECT id, n FROM items"), key=repr)
        assert set(expected) <= set(rows_of(pipeline, "us", "id", "n__old"))


def test_another_key_in_one_of_two_sources_stops_that_one(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    with two(database, second, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET name = 'x' WHERE name IS NULL")
        database.execute(
            "ALTER TABLE items DROP CONSTRAINT items_pkey, ALTER name SET DEFAULT 'x', ADD PRIMARY KEY (id, name)"
        )
        change(database)
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        assert "its key is (id, name) now, but other sources of shop.items have (id)" in pipeline.errors()[0]
        change(second)
        expected = sorted(second.execute("SELECT id, n, name FROM items"), key=repr)
        wait_until(lambda: rows_of(pipeline, "us", "id", "n", "name") == expected, "the other streams on")


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE items RENAME a TO x; ALTER TABLE items RENAME b TO a; ALTER TABLE items RENAME x TO b"],
        ["ALTER TABLE items RENAME b TO c; ALTER TABLE items RENAME a TO b"],
        ["ALTER TABLE items RENAME a TO c", "ALTER TABLE items RENAME b TO a"],
    ],
)
def test_names_that_move_between_columns_of_one_source_leave_the_other_its_own(
    database: Database, second: Database, lake_folder: LakeFolder, statements: list[str]
) -> None:
    for source in (database, second):
        source.execute("CREATE TABLE items (id int PRIMARY KEY, a int, b int)")
        source.execute("INSERT INTO items SELECT i, i, -i FROM generate_series(1, 20) i")
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for statement in statements:
            database.execute(statement)
            database.execute("INSERT INTO items SELECT max(id) + 1, 100, -100 FROM items")
            second.execute("UPDATE items SET a = a + 1, b = b - 1 WHERE id % 3 = 0")
        pipeline.wait_applied(database, second)
        names = [name for (name,) in database.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'items'::regclass AND attnum > 0"
        )]  # fmt: skip
        expected = sorted(database.execute(f"SELECT {', '.join(names)} FROM items"), key=repr)
        assert rows_of(pipeline, "eu", *names) == expected
        # What one source has renamed may go by its new name for all; nothing stands under another column's.
        expected = sorted(second.execute("SELECT * FROM items"), key=repr)
        found = [rows_of(pipeline, "us", "id", first, "b") for first in ("a", "c") if first in fields(pipeline)]
        assert expected in found


DOWN = {
    "rename": (["ALTER TABLE items RENAME name TO label"], False),
    "default": (["ALTER TABLE items ADD c int DEFAULT 5"], True),
    # At once: to a look in between, of whoever ends just then, they are two changes, of which none has values.
    "drop and add": (["ALTER TABLE items DROP n; ALTER TABLE items ADD n int"], True),
    "type": (["ALTER TABLE items ALTER n TYPE numeric(12,3)"], True),
    "digits": (["ALTER TABLE items ALTER price TYPE numeric(20,2)"], False),
    "using": (["ALTER TABLE items ALTER n TYPE int USING n * 10"], True),
}
#: Tried with each run: every case once, and in both versions the one that they tell apart.
OFTEN = {
    ("rename", 2), ("default", 2), ("default", 3), ("drop and add", 3), ("type", 3), ("digits", 2), ("using", 3),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "format_version"),
    [
        pytest.param(case, version, marks=() if (case, version) in OFTEN else pytest.mark.slow)
        for case in DOWN
        for version in (2, 3)
    ],
)
def test_changes_while_it_was_down(
    database: Database, spark_session: object, copied: list[str], format_version: int, case: str
) -> None:
    statements, is_copied = DOWN[case]
    folder = LakeFolder(spark_session, format_version=format_version)
    with start(database, folder) as pipeline:
        pipeline.wait_streaming()
        change(database)
        pipeline.wait_applied(database)
    change(database, *statements)
    with Pipeline(pipeline.config, folder) as pipeline:
        pipeline.wait_streaming()
        change(database)
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert (len(copied) > 1) == (is_copied and (case != "default" or format_version == 2))
    folder.remove()


def test_large_unchanged_values_survive_a_new_name_and_a_wider_type(
    database: Database, lake_folder: LakeFolder
) -> None:
    """The earlier version of a row is read from files that were written under the old name and type."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, body text, price numeric(6,2), ratio real)")
    database.execute("ALTER TABLE items ALTER body SET STORAGE EXTERNAL")
    database.execute("INSERT INTO items SELECT i, repeat('x', 4000) || i, i, i FROM generate_series(1, 50) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items RENAME body TO content")
        database.execute("ALTER TABLE items ALTER price TYPE numeric(9,2)")
        database.execute("ALTER TABLE items ADD note text")
        database.execute("UPDATE items SET ratio = 2, note = 'n' WHERE id % 2 = 0")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
    import shutil

    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET ratio = 3 WHERE id % 3 = 0")
        database.execute("DELETE FROM items WHERE id % 7 = 0")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)


def test_a_key_that_was_renamed_and_an_index_that_was_lost(database: Database, lake_folder: LakeFolder) -> None:
    with start(database, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items RENAME id TO number")
        database.execute("UPDATE items SET n = 0 WHERE number < 9")
        pipeline.wait_applied(database)
        assert_same(pipeline, database, key=("number",))
    import shutil

    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(pipeline.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 1 WHERE number % 3 = 0")
        database.execute("DELETE FROM items WHERE number % 4 = 0")
        pipeline.wait_applied(database)
        assert_same(pipeline, database, key=("number",))


def test_changes_during_the_first_copy(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute(ROWS.format(1, 60000))
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        wait_until(lambda: State.COPYING in pipeline.states().values(), "the copy begins")
        change(database, "ALTER TABLE items ADD note text", "UPDATE items SET note = 'x' WHERE id % 1000 = 0")
        change(database, "ALTER TABLE items RENAME name TO label", "ALTER TABLE items DROP price")
        wait_until(lambda: State.STREAMING in pipeline.states().values(), "it streams")
        change(database)
        pipeline.wait_applied(database)
        assert_same(pipeline, database)


def test_a_partitioned_table(database: Database, lake_folder: LakeFolder, copied: list[str]) -> None:
    database.execute(
        "CREATE TABLE items (id int, n int, name text, ratio real, PRIMARY KEY (id)) PARTITION BY RANGE (id)"
    )
    database.execute("CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (100)")
    # Its columns have other numbers than the root's.
    database.execute("CREATE TABLE high (gone int, name text, id int NOT NULL, n int, ratio real)")
    database.execute("ALTER TABLE high DROP gone")
    database.execute("ALTER TABLE items ATTACH PARTITION high FOR VALUES FROM (100) TO (10000000)")
    database.execute("INSERT INTO items SELECT i, i, 'item ' || i FROM generate_series(1, 200) i")
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, "ALTER TABLE items RENAME name TO label", "ALTER TABLE items ADD more int",
               "UPDATE items SET more = id, label = 'l' WHERE id % 3 = 0")  # fmt: skip
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert len(copied) == 1
        change(database, "ALTER TABLE items ADD kind text DEFAULT 'old' NOT NULL",
               "UPDATE items SET kind = 'new' WHERE id % 5 = 0")  # fmt: skip
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
        assert len(copied) == 1, "its partitions say what their rows show"
        change(database, "ALTER TABLE items ALTER n TYPE bigint USING n * 2", "ALTER TABLE items DROP more")
        pipeline.wait_applied(database)
        assert_same(pipeline, database)
