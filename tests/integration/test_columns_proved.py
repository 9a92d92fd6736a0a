"""Which column a row of a backlog means is proved by looks at the catalog, or a person is asked."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, needs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

KEEPS = ("append", "changelog", "history")


def values(pipeline: Pipeline, table: str, *columns: str) -> set[tuple]:
    """Distinct rows of a lake table."""
    lake = pipeline.folder
    found = oracle.lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", list(columns), catalog=lake.catalog)
    return set(found.select(list(columns)).rows)


def test_a_column_that_was_dropped_and_added_again_is_told_from_its_successor_by_a_person(
    database: Database, lake_folder: LakeFolder
) -> None:
    """Its name and type are the same, and it is the last one, so no look proves which one a row means."""
    for kind in KEEPS:
        database.execute(f"CREATE TABLE {kind} (id int PRIMARY KEY, b text)")
        database.execute(f"INSERT INTO {kind} VALUES (1, 'copied')")
    config = lake_folder.config(group({"eu": database}, {kind: {"type": kind} for kind in KEEPS}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    for kind in KEEPS:
        database.execute(f"INSERT INTO {kind} VALUES (2, 'old')")
        database.execute(f"ALTER TABLE {kind} DROP b; ALTER TABLE {kind} ADD b text")
        database.execute(f"INSERT INTO {kind} VALUES (3, 'new')")
    with Pipeline(config, lake_folder) as pipeline:
        for kind in KEEPS:
            pipeline.wait_state("shop_eu", f"shop.{kind}", State.ERROR)
        for kind, error in zip(sorted(KEEPS), sorted(pipeline.errors()), strict=True):
            assert f"table public.{kind}: which of its columns the transaction at" in error
            assert f"(id is number 1, b is number 2): kuvasz retry --table shop.{kind} takes them so; or" in error
        wait_until(lambda: len(list(pipeline.app.lot.views())) == len(KEEPS), "what comes meanwhile is parked")
        for kind in KEEPS:
            pipeline.tell("retry", f"shop.{kind}", "shop_eu")
        # Who was told of the first answer was not told of the next one.
        wait_until(lambda: " ".join(pipeline.errors()).count("b is number 3") == len(KEEPS), "they stop again")
        for kind in KEEPS:
            pipeline.tell("retry", f"shop.{kind}", "shop_eu")
            pipeline.wait_state("shop_eu", f"shop.{kind}", State.STREAMING)
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        expected = {(1, "copied", None), (2, "old", None), (3, None, "new")}
        for kind in KEEPS:
            assert values(pipeline, kind, "id", "b__old", "b") == expected, kind


def test_a_column_that_came_and_was_given_another_type_between_two_looks(
    database: Database, lake_folder: LakeFolder
) -> None:
    """No look has shown its first type; the message of the rows tells it."""
    for kind in KEEPS:
        database.execute(f"CREATE TABLE {kind} (id int PRIMARY KEY)")
    config = lake_folder.config(group({"eu": database}, {kind: {"type": kind} for kind in KEEPS}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    for kind in KEEPS:
        database.execute(f"ALTER TABLE {kind} ADD b text")
        database.execute(f"INSERT INTO {kind} VALUES (1, '7')")
        database.execute(f"ALTER TABLE {kind} ALTER b TYPE int USING b::int")
        database.execute(f"INSERT INTO {kind} VALUES (2, 8)")
    expected = {(1, "7", None), (2, None, 8)}
    for _ in range(2):  # it is remembered
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            pipeline.wait_applied(database)
            assert [values(pipeline, kind, "id", "b__old", "b") for kind in KEEPS] == [expected] * len(KEEPS)


def test_a_column_list_made_by_hand_and_a_message_from_before_the_position(
    database: Database, lake_folder: LakeFolder
) -> None:
    """What messages have is known from the publication; one that comes again has numbers as every other one."""
    needs(database.server, 18, "published generated columns")
    database.execute("CREATE TABLE listed (id int PRIMARY KEY, secret text, a text, b text)")
    database.execute("INSERT INTO listed VALUES (1, 's', 'a1', 'b1'), (2, 's', 'a2', 'b2')")
    database.execute("CREATE TABLE made (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED, b int)")
    database.execute("INSERT INTO made VALUES (1, 1, DEFAULT, 1)")
    database.execute("CREATE TABLE moved (id int PRIMARY KEY, a int, b int)")
    database.execute("INSERT INTO moved VALUES (1, 1, -1), (2, 2, -2)")
    database.execute(
        "CREATE PUBLICATION kuvasz_shop_eu FOR TABLE listed (id, a, b), made, moved"
        " WITH (publish_via_partition_root = true, publish_generated_columns = stored)"
    )
    tables = {"listed": {"exclude": ["secret"]}, "made": None, "moved": None}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE listed SET a = 'a3', b = 'b3' WHERE id = 1")
        database.execute("UPDATE made SET a = 5, b = 6")
        pipeline.call(hold(pipeline))
        database.execute("UPDATE moved SET a = 10, b = -10 WHERE id = 1")
        reached = "pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        ((now,),) = database.execute(f"SELECT {reached}")
        wait_until(lambda: pipeline.app.lake.positions("shop.moved")["shop_eu"].lsn >= now - 100, "it is applied")
        wait_until(lambda: (1, 10, -10) in values(pipeline, "moved", "id", "a", "b"), "it is there")
        pipeline.call(rewind(pipeline))
        database.execute("UPDATE moved SET a = 20, b = -20 WHERE id = 2")
        database.execute(
            "ALTER TABLE moved RENAME a TO x; ALTER TABLE moved RENAME b TO a; ALTER TABLE moved RENAME x TO b"
        )
        database.execute("INSERT INTO moved (id, b, a) VALUES (3, 30, -30)")
        pipeline.call(release(pipeline))
        pipeline.wait_applied(database)
        for table, columns in (("listed", "id, a, b"), ("made", "id, a, b"), ("moved", "id, a, b")):
            expected = set(database.execute(f"SELECT {columns} FROM {table}"))
            assert values(pipeline, table, *columns.split(", ")) == expected, table
        database.execute("ALTER TABLE listed ADD c text")
        database.execute("UPDATE listed SET c = 'c' WHERE id = 1")
        pipeline.wait_state("shop_eu", "shop.listed", State.ERROR)
        (error,) = pipeline.errors()
        assert "publication kuvasz_shop_eu has table public.listed without its columns c, so copy and stream" in error
        database.execute("ALTER PUBLICATION kuvasz_shop_eu SET TABLE listed (id, a, b, c), made, moved")
        database.execute("UPDATE listed SET c = 'd', b = 'b4' WHERE id = 2")
        pipeline.tell("retry", "shop.listed", "shop_eu")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert values(pipeline, "listed", "id", "a", "b", "c") == set(
            database.execute("SELECT id, a, b, c FROM listed")
        )


async def hold(pipeline: Pipeline) -> None:
    pipeline.app.progress.hold("shop_eu", "a test")


async def release(pipeline: Pipeline) -> None:
    pipeline.app.progress.release("shop_eu", "a test")


async def rewind(pipeline: Pipeline) -> None:
    pipeline.app.sync("shop_eu").reader.rewind()
