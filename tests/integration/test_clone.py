"""The table type clone through the whole path: real PostgreSQL, Spark and Iceberg; PostgreSQL is the oracle."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = (
    "CREATE TABLE items (id bigint PRIMARY KEY, n int, name text, price numeric(12,2), at timestamptz DEFAULT now())"
)


def test_copies_and_follows(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, i % 7, 'item ' || i, i * 1.25 FROM generate_series(1, 5000) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        database.execute("UPDATE items SET n = n + 1, name = NULL WHERE id % 3 = 0")
        database.execute("DELETE FROM items WHERE id % 5 = 0")
        database.execute("INSERT INTO items SELECT i, 1, '', NULL FROM generate_series(6000, 6100) i")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_without_sid_the_target_has_the_sources_columns(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 10) i")
    with Pipeline(lake_folder.config(group({None: database}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 2 WHERE id = 1")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


def test_one_key_changed_many_times_in_one_transaction(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i")
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            for n in range(5):
                session.execute("UPDATE items SET n = %s WHERE id = 1", (n,))
            session.execute("INSERT INTO items (id) VALUES (100)")
            session.execute("DELETE FROM items WHERE id = 100")
            session.execute("DELETE FROM items WHERE id = 2")
            session.execute("INSERT INTO items (id, n) VALUES (2, 9)")
            session.execute("UPDATE items SET id = 200 WHERE id = 3")
            session.execute("UPDATE items SET id = 3 WHERE id = 200")
            session.execute("UPDATE items SET id = 300 WHERE id = 4")
            session.execute("INSERT INTO items (id, n) VALUES (4, 44)")
            session.execute("SAVEPOINT s")
            session.execute("UPDATE items SET n = 999")
            session.execute("ROLLBACK TO s")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


# Slow: under FULL test_expressions.py keeps such values with each run.
@pytest.mark.parametrize(
    "identity", ["DEFAULT", *(pytest.param(one, marks=pytest.mark.slow) for one in ("FULL", "USING INDEX other"))]
)
def test_unchanged_large_values_are_kept(database: Database, lake_folder: LakeFolder, identity: str) -> None:
    database.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, code text NOT NULL, n int, body text, extra bytea, tags text[])"
    )
    database.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL, ALTER tags SET STORAGE EXTERNAL")
    database.execute("CREATE UNIQUE INDEX other ON docs (code)")
    database.execute(f"ALTER TABLE docs REPLICA IDENTITY {identity}")
    database.execute(
        "INSERT INTO docs SELECT i, 'c' || i, 0, repeat('x', 4000) || i, decode(repeat('ab', 3000), 'hex'),"
        " array_fill('tag'::text, ARRAY[2000]) FROM generate_series(1, 60) i"
    )
    with Pipeline(lake_folder.config(group({"eu": database}, {"docs": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE docs SET n = n + 1 WHERE id % 2 = 0")
        pipeline.wait_applied(database)
        with database.connect() as session:
            session.execute("UPDATE docs SET n = n + 1 WHERE id % 3 = 0")
            session.execute("UPDATE docs SET n = n + 1 WHERE id % 6 = 0")
            session.execute("UPDATE docs SET id = id + 1000, code = code || 'k' WHERE id < 7")
            session.execute("UPDATE docs SET body = repeat('y', 3000) WHERE id % 10 = 0")
            session.execute("INSERT INTO docs (id, code, n, body) VALUES (500, 'new', 0, repeat('z', 5000))")
            session.execute("UPDATE docs SET n = 1 WHERE id = 500")
        pipeline.wait_applied(database)
        pipeline.assert_equal("docs", source_rows(database.url, "docs", sid="eu"))


def test_composite_and_text_keys_and_names_with_capitals(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(
        'CREATE TABLE "Order Lines" ("Order" uuid, "No." int, day date, what text, "a""b" text,'
        ' PRIMARY KEY (day, "Order", what))'
    )
    database.execute(
        "INSERT INTO \"Order Lines\" SELECT gen_random_uuid(), i, date '2024-01-01' + i % 9, 'w' || i, 'q'"
        " FROM generate_series(1, 500) i"
    )
    with Pipeline(lake_folder.config(group({"eu": database}, {"Order Lines": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute('UPDATE "Order Lines" SET "No." = -1 WHERE "No." % 4 = 0')
        database.execute('UPDATE "Order Lines" SET what = what || \'x\' WHERE "No." % 5 = 0')
        database.execute('DELETE FROM "Order Lines" WHERE "No." % 6 = 1')
        pipeline.wait_applied(database)
        expected = source_rows(database.url, '"Order Lines"', sid="eu")
        pipeline.assert_equal("Order Lines", expected, key=("Order", "day", "what"))


@pytest.fixture
def second(postgres16) -> Database:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def test_sources_of_one_group_with_different_columns(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int, only_here text)")
    second.execute("CREATE TABLE items (only_there timestamp, n int, id int PRIMARY KEY)")
    database.execute("INSERT INTO items SELECT i, i, 'a' FROM generate_series(1, 100) i")
    second.execute("INSERT INTO items SELECT now(), i, i FROM generate_series(1, 100) i")
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 0 WHERE id < 50")
        second.execute("DELETE FROM items WHERE id > 50")
        pipeline.wait_applied(database, second)
        rows = source_rows(database.url, "items", sid="eu"), source_rows(second.url, "items", sid="us")
        pipeline.assert_equal("items", *rows, key=("sid", "id"))


def test_position_deletes_in_format_version_2(database: Database, spark_session: object) -> None:
    folder = LakeFolder(spark_session, format_version=2)
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 1000) i")
    with Pipeline(folder.config(group({"eu": database}, {"items": None})), folder) as pipeline:
        pipeline.wait_streaming()
        for modulus in (7, 5, 3):
            database.execute(f"UPDATE items SET n = n + 1 WHERE id % {modulus} = 0")
            database.execute(f"DELETE FROM items WHERE id % {modulus * 4} = 1")
            pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    folder.remove()


def test_truncate_in_order_with_the_rows_around_it(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        source.execute(ITEMS)
        source.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 300) i")
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("UPDATE items SET n = 2")
            session.execute("TRUNCATE items")
            session.execute("INSERT INTO items SELECT i, 3 FROM generate_series(200, 210) i")
        second.execute("UPDATE items SET n = 5 WHERE id = 1")
        pipeline.wait_applied(database, second)
        rows = source_rows(database.url, "items", sid="eu"), source_rows(second.url, "items", sid="us")
        pipeline.assert_equal("items", *rows, key=("sid", "id"))
        database.execute("DELETE FROM items WHERE id > 205")
        pipeline.wait_applied(database)
        rows = source_rows(database.url, "items", sid="eu"), source_rows(second.url, "items", sid="us")
        pipeline.assert_equal("items", *rows, key=("sid", "id"))


def test_a_large_transaction_comes_in_parts_and_shows_at_once(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    database.execute("INSERT INTO items SELECT i, 1, 'item' FROM generate_series(1, 2000) i")
    config = lake_folder.config(
        group({"eu": database}, {"items": None, "other": None}), memory="4MB", transaction_spill_bytes="256kB"
    )
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        before = pipeline.snapshots("items")
        with database.connect() as session:
            session.execute("INSERT INTO items SELECT i, 1, repeat('v', 80) FROM generate_series(3000, 20000) i")
            session.execute("UPDATE items SET n = n + 1")
            session.execute("DELETE FROM items WHERE id % 3 = 0")
            session.execute("INSERT INTO other VALUES (1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        pipeline.assert_equal("other", source_rows(database.url, "other", sid="eu"))
        assert pipeline.snapshots("items") == before + 1


def test_restart_goes_on_where_it_was_and_commits_nothing_twice(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 500) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 2 WHERE id < 100")
        pipeline.wait_applied(database)
    database.execute("UPDATE items SET n = 3 WHERE id < 50")
    database.execute("DELETE FROM items WHERE id = 77")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        commits = pipeline.snapshots("items")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert pipeline.snapshots("items") == commits


# Slow: test_history.py, test_append.py and test_changelog.py go on without one.
@pytest.mark.slow
def test_the_index_may_be_deleted_between_runs(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(
        "CREATE TABLE items (code text, part numeric(5,1), day date, n int, PRIMARY KEY (code, part, day))"
    )
    database.execute("INSERT INTO items SELECT 'c' || i, i, date '2000-01-01' + i, 1 FROM generate_series(1, 500) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 2 WHERE part < 100")
        pipeline.wait_applied(database)
    import shutil

    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 3 WHERE part < 50")
        database.execute("DELETE FROM items WHERE part > 450")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"), key=("code", "part", "day"))


# Slow: acceptance/test_live_map.py has a process do so.
@pytest.mark.slow
def test_a_table_added_to_the_map_is_copied_while_the_rest_streams(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute(ITEMS)
    database.execute("CREATE TABLE late (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO late SELECT i, 1 FROM generate_series(1, 500) i")
    with Pipeline(lake_folder.config(group({"eu": database}, {"items": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO items (id) VALUES (1)")
        pipeline.wait_applied(database)
    database.execute("UPDATE late SET n = 2 WHERE id < 100")
    config = lake_folder.config(group({"eu": database}, {"items": None, "late": None}))
    with Pipeline(config, lake_folder) as pipeline:
        database.execute("INSERT INTO items (id) VALUES (2)")
        database.execute("UPDATE late SET n = 3 WHERE id < 50")
        pipeline.wait_streaming()
        database.execute("UPDATE late SET n = 4 WHERE id < 20")
        database.execute("INSERT INTO items (id) VALUES (3)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("late", source_rows(database.url, "late", sid="eu"))
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    with Pipeline(lake_folder.config(group({"eu": database}, {"late": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
    published = database.execute("SELECT tablename FROM pg_publication_tables")
    assert published == [("late",)]


def test_a_table_without_key_is_refused_with_its_mend_and_not_published(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE bare (n int)")
    database.execute(ITEMS)
    config = lake_folder.config(group({"eu": database}, {"items": None, "bare": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.STREAMING)
        assert pipeline.states()["shop_eu", "shop.bare"] is State.ERROR
        (error,) = pipeline.errors()
        assert "hint: ALTER TABLE" in error
        database.execute("INSERT INTO bare VALUES (1)")
        database.execute("UPDATE bare SET n = 2")
        database.execute("INSERT INTO items (id) VALUES (1)")
        wait_until(lambda: not pipeline.app.progress.pending("shop_eu"), "nothing is pending")
    assert database.execute("SELECT tablename FROM pg_publication_tables") == [("items",)]


def test_old_snapshots_are_expired_and_positions_survive(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    maintenance = {"interval": "100ms", "snapshot_age": "0ms", "snapshots_kept": 2}
    config = lake_folder.config(group({"eu": database}, {"items": None}), maintenance)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        for number in range(6):
            database.execute(
                "INSERT INTO items (id, n) SELECT %s * 10 + i, 0 FROM generate_series(1, 9) i", (number,)
            )
            database.execute("UPDATE items SET n = n + 1 WHERE id %% 3 = 0 AND id <> %s", (number,))
            pipeline.wait_applied(database)
        wait_until(lambda: pipeline.snapshots("items") == 2, "old snapshots are gone")
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("DELETE FROM items WHERE id % 2 = 0")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_columns_added_while_it_was_down_are_taken_over(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items (id, n) SELECT i, 1 FROM generate_series(1, 50) i")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    database.execute("UPDATE items SET n = 2 WHERE id < 10")
    database.execute("ALTER TABLE items ADD COLUMN note text")
    database.execute("UPDATE items SET note = 'new' WHERE id < 5")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def test_another_table_of_the_name_stops_it(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(ITEMS)
    database.execute("INSERT INTO items (id, n) VALUES (1, 1)")
    config = lake_folder.config(group({"eu": database}, {"items": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    with database.connect() as session:
        session.execute("DROP TABLE items; " + ITEMS)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state("shop_eu", "shop.items", State.ERROR)
        errors = "\n".join(pipeline.errors())
        assert "dropped and created again" in errors
        assert "kuvasz resync --table shop.items copies" in errors
