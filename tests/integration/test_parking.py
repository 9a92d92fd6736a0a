"""Tables that do not follow: their changes are parked, and their source lets go of its WAL."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kuvasz.state.tables import State
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.two_tables import EU, ITEMS, OTHERS, confirmed, fill, lake_counts, load, wait_let_go, wal_end
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def logs(lake_folder: LakeFolder) -> list[Path]:
    return list((lake_folder.folder / "state" / "parked").rglob("*.log"))


def is_noted(pipeline: Pipeline, target: str = ITEMS) -> bool:
    return pipeline.app.lake.notes.parked(target, EU) is not None


def wait_unparked(pipeline: Pipeline, lake_folder: LakeFolder) -> None:
    wait_until(lambda: not logs(lake_folder), "what was parked is applied and removed")
    assert not is_noted(pipeline)


def assert_equal(pipeline: Pipeline, database: Database, *tables: str) -> None:
    for table in tables:
        pipeline.assert_equal(table, source_rows(database.url, table, sid="eu"))


def change(database: Database, number: int) -> None:
    """Change both tables by every operation, in several transactions."""
    for table in ("items", "others"):
        database.execute(f"UPDATE {table} SET n = {number} WHERE id % 3 = 0")
        database.execute(f"DELETE FROM {table} WHERE id = {number}")
        database.execute(f"INSERT INTO {table} SELECT i, {number} FROM generate_series({number}000, {number}099) i")


def test_the_changes_of_a_paused_table_are_parked_and_its_source_lets_go_of_its_wal(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with load(database):
            pipeline.tell("pause", ITEMS, EU)
            wait_let_go(database)
            change(database, 5)
            wait_let_go(database)
            assert is_noted(pipeline)
            assert pipeline.states()[EU, ITEMS] is State.PAUSED
            assert lake_counts(pipeline, "items", "n = 5") == 0
            pipeline.tell("resume", ITEMS, EU)
            pipeline.wait_streaming()
        wait_unparked(pipeline, lake_folder)
        change(database, 6)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")
    with Pipeline(config, lake_folder) as pipeline:  # and nothing of it is left
        pipeline.wait_streaming()
        change(database, 7)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")


def test_a_table_in_error_holds_nothing_and_has_all_of_its_changes_after_retry(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    name = f"{lake_folder.catalog}.shop.items"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        lake_folder.session.sql(f"ALTER TABLE {name} RENAME COLUMN n TO m")
        change(database, 5)
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        wait_let_go(database)
        database.execute("TRUNCATE items")
        database.execute("ALTER TABLE items ADD COLUMN more text DEFAULT 'x'")
        database.execute("INSERT INTO items SELECT i, i, now(), 'y' FROM generate_series(1, 50) i")
        change(database, 6)
        wait_let_go(database)
        change(database, 7)
        wait_let_go(database)
        lake_folder.session.sql(f"ALTER TABLE {name} RENAME COLUMN m TO n")
        assert_brought_back(pipeline, lake_folder, database)


def test_what_is_parked_survives_restarts(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
    change(database, 6)
    items, others = verify.reports(config, session=lake_folder.session)
    assert "how far the lake is cannot be told" in items.error
    assert (others.error, others.keys) == ("", ())
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        assert pipeline.states()[EU, ITEMS] is State.PAUSED
        change(database, 7)
        wait_let_go(database)
        assert lake_counts(pipeline, "items", "n = 5") == 0
        pipeline.tell("resume", ITEMS, EU)
        pipeline.wait_streaming()
        wait_unparked(pipeline, lake_folder)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")


@pytest.mark.parametrize("is_running", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_older_state_folder_that_is_put_back_is_told_by_the_slot(
    database: Database, lake_folder: LakeFolder, *, is_running: bool
) -> None:
    """It has an older parking log, with all that says how far that went: nothing in the folder tells."""
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    state, aside = lake_folder.folder / "state", lake_folder.folder / "aside"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
        if is_running:
            shutil.copytree(state, aside, ignore=shutil.ignore_patterns("spool"))
            change(database, 6)
            wait_let_go(database)
    if not is_running:
        shutil.copytree(state, aside)
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state(EU, OTHERS, State.STREAMING)
            change(database, 6)
            wait_let_go(database)
    shutil.rmtree(state)
    aside.rename(state)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: pipeline.exit_code is not None, lambda: f"kuvasz ends: {pipeline.errors()}")
        assert pipeline.exit_code == 5
        (error,) = pipeline.errors()
        assert "was advanced by someone else: the changes between" in error


def test_a_table_whose_parked_changes_are_gone_says_so_until_it_is_copied_again(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
    shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        (error,) = pipeline.errors()
        assert f"source {EU}, table public.items: changes between 0/" in error
        assert "may be missing: they were parked, and" in error
        assert "copy the table again: kuvasz resync --table shop.items" in error
        change(database, 6)
        wait_let_go(database)  # nothing can be saved for it
        pipeline.tell("retry", ITEMS, EU)
        wait_until(lambda: pipeline.states()[EU, ITEMS] is State.ERROR, "a retry does not pass it")
        pipeline.tell("resync", ITEMS, EU)
        pipeline.wait_streaming()
        change(database, 7)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")


# Slow: one in error does so as well.
@pytest.mark.slow
def test_a_paused_table_whose_parked_changes_are_gone_says_so_at_once(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))

    def assert_told() -> None:
        assert pipeline.states()[EU, ITEMS] is State.PAUSED
        (error,) = pipeline.errors()
        assert error.startswith(f"source {EU}, table public.items: changes between 0/")
        assert "may be missing: they were parked, and" in error
        assert "kuvasz resync --table shop.items, and then kuvasz resume --table shop.items" in error

    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
        shutil.rmtree(lake_folder.folder / "state" / "parked")
        wait_until(pipeline.errors, "it is told while kuvasz runs")
        assert_told()
        change(database, 6)
        wait_let_go(database)  # nothing can be saved for it
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, OTHERS, State.STREAMING)
        assert_told()
        pipeline.tell("resync", ITEMS, EU)
        assert_told()
        pipeline.tell("resume", ITEMS, EU)
        pipeline.wait_streaming()
        change(database, 7)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")


def test_the_source_keeps_what_finds_no_room(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}), park_bytes="40kB")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
        database.execute("UPDATE items SET n = 6")
        database.execute("UPDATE others SET n = 6")
        database.execute("UPDATE items SET n = 7")
        wait_until(lambda: pipeline.app.lot.is_full(ITEMS, EU), "it is full")
        wait_until(lambda: lake_counts(pipeline, "others", "n = 6") > 1000, "the other table goes on")
        assert confirmed(database) < wal_end(database)
        assert logs(lake_folder)[0].stat().st_size <= 40 << 10
        pipeline.tell("resume", ITEMS, EU)
        pipeline.wait_streaming()
        wait_unparked(pipeline, lake_folder)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")
        wait_let_go(database)


def test_a_table_is_copied_again_if_its_changes_find_no_room_and_the_map_says_so(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    groups = group({"eu": database}, {"items": None, "others": None})
    config = lake_folder.config(groups, park_bytes="20kB", when_parked_full="resync")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 5)
        wait_let_go(database)
        database.execute("UPDATE items SET n = 6")
        wait_until(lambda: not logs(lake_folder), "what was parked is dropped")
        wait_let_go(database)
        assert pipeline.states()[EU, ITEMS] is State.PAUSED
        (error,) = pipeline.errors()
        assert error == (
            f"source {EU}, table public.items: its parked changes found no room and were dropped\n"
            "hint: it is copied again when it is resumed: kuvasz resume --table shop.items"
        )
        pipeline.tell("resume", ITEMS, EU)
        pipeline.wait_streaming()
        change(database, 7)
        pipeline.wait_applied(database)
        assert_equal(pipeline, database, "items", "others")


def test_a_retry_before_the_cause_is_mended_leaves_the_table_in_error(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database)
    config = lake_folder.config(group({"eu": database}, {"items": None, "others": None}))
    name = f"{lake_folder.catalog}.shop.items"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        lake_folder.session.sql(f"ALTER TABLE {name} RENAME COLUMN n TO m")
        change(database, 5)
        pipeline.wait_state(EU, ITEMS, State.ERROR)
        wait_let_go(database)
        pipeline.tell("retry", ITEMS, EU)
        wait_refused(pipeline)
        change(database, 6)
        wait_let_go(database)
        assert logs(lake_folder)
    with Pipeline(config, lake_folder) as pipeline:  # nor does a restart pass it
        wait_refused(pipeline)
        change(database, 7)
        wait_let_go(database)
        lake_folder.session.sql(f"ALTER TABLE {name} RENAME COLUMN m TO n")
        assert_brought_back(pipeline, lake_folder, database)


def assert_brought_back(pipeline: Pipeline, lake_folder: LakeFolder, database: Database) -> None:
    """A retry applies what was parked, and the table follows again."""
    pipeline.tell("retry", ITEMS, EU)
    pipeline.wait_streaming()
    wait_unparked(pipeline, lake_folder)
    change(database, 8)
    pipeline.wait_applied(database)
    assert_equal(pipeline, database, "items", "others")


def wait_refused(pipeline: Pipeline) -> None:
    """Wait until the table was tried again and not taken."""
    wait_until(lambda: pipeline.app.states.get(ITEMS, EU).retry_at is not None, f"it is tried: {pipeline.states()}")
    assert pipeline.states()[EU, ITEMS] is State.ERROR
    (error,) = pipeline.errors()
    assert error.startswith("table shop.items: column n was renamed to m in the lake by someone else\nhint: give it")
