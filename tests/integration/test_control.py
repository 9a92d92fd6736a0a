"""Tables that are paused, resumed, retried and copied again while kuvasz runs, and over restarts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.two_tables import EU, ITEMS, OTHERS, US, confirmed, fill, lake_counts, load
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


@contextlib.contextmanager
def readers(pipeline: Pipeline, table: str) -> Iterator[list[int]]:
    """Read a table in Spark over and over; what is yielded holds the numbers of rows that were seen."""
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            seen.append(lake_counts(pipeline, table))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()


def test_a_paused_table_stays_while_the_others_go_on_and_follows_again_when_resumed(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with load(database):
            pipeline.tell("pause", ITEMS, EU)
            assert pipeline.states()[EU, ITEMS] is State.PAUSED
        database.execute("UPDATE items SET n = -1 WHERE id <= 10")
        database.execute("UPDATE others SET n = -1 WHERE id <= 10")
        wait_until(lambda: lake_counts(pipeline, "others", "n = -1") == 10, "the other table goes on")
        pipeline.assert_equal("others", source_rows(database.url, "others", sid="eu"))
        assert lake_counts(pipeline, "items", "n = -1") == 0
        since = pipeline.app.states.get(ITEMS, EU).since
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        assert pipeline.app.states.get(ITEMS, EU).state is State.PAUSED
        assert pipeline.app.states.get(ITEMS, EU).since == pytest.approx(since, abs=2)
        database.execute("UPDATE others SET n = -2 WHERE id = 1")
        wait_until(lambda: lake_counts(pipeline, "others", "n = -2") == 1, "the other table goes on")
        assert lake_counts(pipeline, "items", "n = -1") == 0
        with load(database):
            pipeline.tell("resume", ITEMS, EU)
            pipeline.wait_streaming()
        pipeline.wait_applied(database)
        for table in ("items", "others"):
            pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))
        wait_until(lambda: confirmed(database) >= pipeline.app.progress.confirmable(EU) > 0, "nothing is held")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()


def test_a_table_that_is_paused_before_its_first_copy_is_copied_when_it_is_resumed(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    with Pipeline(lake_folder.config(group({"eu": database}, {"others": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.app.states.add(ITEMS, EU, "items")
        pipeline.app.states.pause(ITEMS, EU)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        database.execute("UPDATE others SET n = 5")
        database.execute("UPDATE items SET n = 5")
        pipeline.wait_applied(database)
        assert lake_counts(pipeline, "items") == 0
        pipeline.tell("resume", ITEMS, EU)
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))


def miss_updates(database: Database) -> None:
    """Have the stream lack changes, as nothing should."""
    ((publication,),) = database.execute("SELECT pubname FROM pg_publication")
    database.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert')")
    database.execute("UPDATE items SET at = '2001-01-01' WHERE id % 2 = 0")
    database.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")


def test_a_copy_beside_the_stream_replaces_the_rows_at_once(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source)
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        miss_updates(database)
        with load(database, second):
            with readers(pipeline, "items") as seen:
                wait_until(lambda: seen, "it is read")
                for number in range(1, 3):
                    pipeline.tell("resync", ITEMS, EU)
                    wait_until(
                        lambda number=number: lake_counts(pipeline, "items", "at IS NOT NULL AND sid = 'eu'") == 500
                        and copies(pipeline) >= number, "it is copied again",
                    )  # fmt: skip
                    pipeline.wait_streaming()
            assert set(seen) == {2000}, "never empty, never half"
        pipeline.wait_applied(database, second)
        for table in ("items", "others"):
            rows = [source_rows(source.url, table, sid=sid) for sid, source in (("eu", database), ("us", second))]
            pipeline.assert_equal(table, *rows, key=("sid", "id"))


def copies(pipeline: Pipeline) -> int:
    """Copies of eu's items since the first, told by the position: a copy's has no transaction."""
    state = pipeline.app.states.get(ITEMS, EU)
    return int(state.copies) - 1


def test_a_table_dropped_from_the_lake_is_cured_without_a_restart(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source, 100)
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        lake_folder.session.sql(f"DROP TABLE {lake_folder.catalog}.shop.items PURGE")
        database.execute("UPDATE items SET n = 1")
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        pipeline.wait_state(US, ITEMS, State.ERROR)
        (error,) = set(pipeline.errors())
        assert error == (
            "table shop.items: someone dropped it from the lake\n"
            "hint: restore it, or copy it again: kuvasz resync --table shop.items"
        )
        second.execute("UPDATE others SET n = 2")
        wait_until(lambda: lake_counts(pipeline, "others", "n = 2") == 100, "the other table goes on")
        pipeline.tell("resync", ITEMS, EU, US)
        pipeline.wait_streaming()
        # And once more, before anything else notices.
        lake_folder.session.sql(f"DROP TABLE {lake_folder.catalog}.shop.items PURGE")
        pipeline.tell("resync", ITEMS, EU)
        pipeline.wait_state(US, ITEMS, State.ERROR)
        second.execute("UPDATE items SET n = 4 WHERE id < 50")
        pipeline.wait_state(EU, ITEMS, State.STREAMING)
        assert lake_counts(pipeline, "items") == 100
        pipeline.tell("retry", ITEMS, US)
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 3 WHERE id < 50")
        pipeline.wait_applied(database, second)
        for table in ("items", "others"):
            rows = [source_rows(source.url, table, sid=sid) for sid, source in (("eu", database), ("us", second))]
            pipeline.assert_equal(table, *rows, key=("sid", "id"))


def test_one_source_of_a_table_is_in_error_and_the_others_go_on(
    database: Database, second: Database, lake_folder: LakeFolder
) -> None:
    for source in (database, second):
        fill(source, 100)
    config = lake_folder.config(group({"eu": database, "us": second}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET at = 'infinity' WHERE id = 1")
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        second.execute("UPDATE items SET n = 1")
        database.execute("UPDATE others SET n = 1")
        wait_until(lambda: lake_counts(pipeline, "others", "n = 1") == 100, "the other table goes on")
        wait_until(lambda: lake_counts(pipeline, "items", "n = 1 AND sid = 'us'") == 100, "us follows")
        assert (pipeline.states()[EU, ITEMS], pipeline.states()[US, ITEMS]) == (State.ERROR, State.STREAMING)
        # What eu sent cannot be taken back: only a copy passes it.
        database.execute("UPDATE items SET at = NULL, n = 2 WHERE id = 1")
        pipeline.tell("resync", ITEMS, EU)
        pipeline.wait_streaming()
        second.execute("UPDATE items SET n = 3")
        pipeline.wait_applied(database, second)
        rows = [source_rows(source.url, "items", sid=sid) for sid, source in (("eu", database), ("us", second))]
        pipeline.assert_equal("items", *rows, key=("sid", "id"))


def test_a_table_that_may_not_be_published_stops_alone(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("CREATE TABLE apart (id int PRIMARY KEY)")
    database.execute("INSERT INTO apart VALUES (1)")
    role = f"least_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    database.execute("CREATE PUBLICATION kuvasz_shop_eu FOR TABLE ONLY items, ONLY others"
                     " WITH (publish_via_partition_root = true)")  # fmt: skip
    (databases,) = group({"eu": database}, {"items": None, "others": None, "apart": None})
    databases["urls"][0]["url"] = database.server.url(database.name, user=role)
    try:
        with Pipeline(lake_folder.config([databases]), lake_folder) as pipeline:
            for table in ("items", "others"):
                pipeline.wait_state("shop_eu", f"shop.{table}", State.STREAMING)
            pipeline.wait_state("shop_eu", "shop.apart", State.ERROR)
            (error,) = pipeline.errors()
            assert error == (
                f"source shop_eu: table public.apart is not in publication kuvasz_shop_eu, and role {role} does not"
                " own the publication\nhint: let the tables' owner, or a superuser, run: ALTER PUBLICATION"
                ' "kuvasz_shop_eu" ADD TABLE ONLY "public"."apart";'
            )
            database.execute('ALTER PUBLICATION "kuvasz_shop_eu" ADD TABLE ONLY "public"."apart"')
            pipeline.tell("retry", "shop.apart", "shop_eu")
            pipeline.wait_streaming()
            database.execute("INSERT INTO apart VALUES (2)")
            wait_until(lambda: sorted(pipeline.rows("apart")) == [(1,), (2,)], "it follows")
    finally:
        database.execute(f"DROP OWNED BY {role}")
        database.execute(f"DROP ROLE {role}")
