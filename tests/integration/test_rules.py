"""The map says otherwise what becomes of rows: the lake goes to it, or stops and says so; never both side by side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pytest

from kuvasz.errors import OtherRule
from kuvasz.verbs import plan
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import EU, ITEMS, OTHERS, confirmed, lake_counts
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BY = "that its rows were made by"


def fill(database: Database) -> None:
    for table in ("items", "others"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, email text DEFAULT 'a@b')")
        database.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 100) i")


def pipeline_of(
    lake: LakeFolder, database: Database, items: Mapping[str, object], *, has_others: bool = True, **pipeline: object
) -> Pipeline:
    tables = {"items": dict(items)} | ({"others": None} if has_others else {})
    return Pipeline(lake.config(group({"eu": database}, tables), **pipeline), lake)


def change(database: Database, value: int) -> None:
    database.execute(f"INSERT INTO items SELECT max(id) + 1, {value} FROM items")
    database.execute(f"UPDATE items SET n = {value} WHERE id % 7 = 0")
    database.execute("DELETE FROM items WHERE id = (SELECT min(id) FROM items)")


def pass_by(pipeline: Pipeline, database: Database) -> None:
    """Have the source let go of everything up to now, with a change of a table that follows."""
    database.execute("UPDATE others SET n = n + 1 WHERE id = 1")
    ((now,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    wait_until(lambda: confirmed(database) >= now, f"the source lets go of its WAL: {pipeline.errors()}")


def counts(pipeline: Pipeline, database: Database, lake: str, source: str) -> tuple[int, int]:
    """How many rows are in the lake, and how many of them are right."""
    pipeline.wait_streaming()
    pipeline.wait_applied(database)
    ((at_source,),) = database.execute(f"SELECT count(*) FROM items WHERE {source}")
    return lake_counts(pipeline, "items"), lake_counts(pipeline, "items", lake) - at_source


@pytest.mark.parametrize(
    ("before", "now", "lake", "source"),
    [
        pytest.param(
            {"filter": "id < 50"}, {"filter": "id < 80"}, "id < 80", "id < 80", id="filter", marks=pytest.mark.slow
        ),
        pytest.param(
            {"set": {"id": "id", "m": "n + 1"}},
            {"set": {"m": "n  + 1000", "id": "id"}},
            "m >= 1000",
            "true",
            id="set",
            marks=pytest.mark.slow,
        ),
        pytest.param({}, {"mask": {"email": "redact"}}, "email = '***'", "true", id="mask"),
    ],
)
def test_a_clone_is_copied_again(
    database: Database, lake_folder: LakeFolder, caplog: pytest.LogCaptureFixture, before: dict, now: dict, lake: str,
    source: str,
) -> None:  # fmt: skip
    fill(database)
    with pipeline_of(lake_folder, database, before) as pipeline:
        pipeline.wait_streaming()
    caplog.set_level(logging.INFO)
    wanted = pipeline_of(lake_folder, database, now)
    (option,) = now
    why = f"`{option}` of the map is another one than the one {BY}"
    ((planned, other),) = [one.tables for one in plan.plans(wanted.config)]
    assert (planned.action, planned.why, other.action) == ("copy", why, "follow")
    with wanted as pipeline:
        change(database, 7)
        rows, wrong = counts(pipeline, database, lake, source)
        assert (wrong, pipeline.app.states.get(ITEMS, EU).copies, pipeline.app.states.get(OTHERS, EU).copies) == (
            0,
            1,
            0,
        )
        assert rows == lake_counts(pipeline, "items", lake)
    told = [record.__dict__["what"] for record in caplog.records if record.__dict__.get("event") == "schema_changed"]
    assert f"its rows are copied again: {why}" in told
    reordered = {
        key: dict(reversed(value.items())) if isinstance(value, dict) else f" {value}\n" for key, value in now.items()
    }
    with pipeline_of(lake_folder, database, reordered) as pipeline:
        change(database, 8)
        assert counts(pipeline, database, lake, source)[1] == 0
        assert pipeline.app.states.get(ITEMS, EU).copies == 0, "that is no other rule"


CODED = {"id": "id", "n": "n", "code": "concat('c', id)"}


NAMED = ({"set": CODED}, {"set": CODED, "key": ["code"]}, "code")
RENAMED = ({"set": {"id": "id", "n": "n"}}, {"set": {"number": "id", "n": "n"}}, "number")


@pytest.mark.parametrize(
    ("identity", "before", "now", "key"),
    [
        pytest.param("DEFAULT", *NAMED, id="named"),
        pytest.param("FULL", *RENAMED, id="renamed, whole rows", marks=pytest.mark.slow),
        # Slow: each key and each identity is met once with each run.
        pytest.param("FULL", *NAMED, id="named, whole rows", marks=pytest.mark.slow),
        pytest.param("DEFAULT", *RENAMED, id="renamed", marks=pytest.mark.slow),
    ],
)
def test_a_clone_with_another_key_is_copied_again(
    database: Database, lake_folder: LakeFolder, identity: str, before: dict, now: dict, key: str
) -> None:
    fill(database)
    database.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")
    with pipeline_of(lake_folder, database, before) as pipeline:
        pipeline.wait_streaming()
    with pipeline_of(lake_folder, database, now) as pipeline:
        change(database, 7)
        assert counts(pipeline, database, f"{key} IS NOT NULL", "true") == (100, 0)
        ((changed,),) = database.execute("SELECT count(*) FROM items WHERE n = 7")
        assert lake_counts(pipeline, "items", "n = 7") == changed
        assert pipeline.app.states.get(ITEMS, EU).copies == 1


def test_another_secret_gives_all_rows_other_pseudonyms(database: Database, lake_folder: LakeFolder) -> None:
    database.execute(
        "CREATE TABLE items (id text PRIMARY KEY, n int); CREATE TABLE others (id int PRIMARY KEY, n int)"
    )
    database.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i; INSERT INTO others VALUES (1, 0)")
    masked = {"mask": {"id": "hmac"}}
    with pipeline_of(lake_folder, database, masked, mask_secret="0123456789abcdef") as pipeline:
        pipeline.wait_streaming()
    with pipeline_of(lake_folder, database, masked, mask_secret="fedcba9876543210") as pipeline:
        database.execute("UPDATE items SET n = 1 WHERE id < '15'; DELETE FROM items WHERE id = '9'")
        assert counts(pipeline, database, "true", "true") == (19, 0)
        assert pipeline.app.states.get(ITEMS, EU).copies == 1


def wait_stopped(pipeline: Pipeline) -> None:
    """Wait until the table says why itself, and not only what was noted of it."""
    state = pipeline.app.states
    wait_until(lambda: isinstance(state.get(ITEMS, EU).error, OtherRule), lambda: f"it stops: {pipeline.errors()}")


def keep(pipeline: Pipeline) -> None:
    pipeline.tell("retry", ITEMS, EU)


def copy(pipeline: Pipeline) -> None:
    pipeline.tell("resync", ITEMS, EU)
    wait_until(lambda: pipeline.app.states.get(ITEMS, EU).copies == 1, "the table is copied again")


def test_settings_of_spark_that_give_expressions_another_meaning_are_part_of_it(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, at timestamptz)")
    database.execute("INSERT INTO items SELECT i, '2024-01-01 00:30+00' FROM generate_series(1, 3) i")
    config = lake_folder.config(group({None: database}, {"items": {"set": {"id": "id", "hour": "hour(at)"}}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert sorted(pipeline.rows("items")) == [(1, 0), (2, 0), (3, 0)]
    zone, conf = "spark.sql.session.timeZone", lake_folder.session.conf
    spark = config.spark.model_copy(update={"conf": {zone: "Asia/Tokyo"}})
    before = conf.get(zone)
    conf.set(zone, "Asia/Tokyo")
    try:
        with Pipeline(config.model_copy(update={"spark": spark}), lake_folder) as pipeline:
            database.execute("INSERT INTO items VALUES (4, '2024-01-01 00:30+00')")
            pipeline.wait_streaming()
            pipeline.wait_applied(database)
            assert sorted(pipeline.rows("items")) == [(1, 9), (2, 9), (3, 9), (4, 9)]
    finally:
        conf.set(zone, before)


@pytest.mark.parametrize(
    ("kind", "mend", "hint"),
    [
        ("append", keep, "kuvasz retry --table"),
        pytest.param("append", copy, "copies it again", marks=pytest.mark.slow),
        ("history", copy, "kuvasz resync"),
    ],
)
def test_what_keeps_the_past_stops_until_a_person_says_how_it_goes_on(
    database: Database, lake_folder: LakeFolder, kind: str, mend: Callable[[Pipeline], None], hint: str
) -> None:
    fill(database)
    with pipeline_of(lake_folder, database, {"type": kind}) as pipeline:
        pipeline.wait_streaming()
    masked = {"type": kind, "mask": {"email": "redact"}}
    with pipeline_of(lake_folder, database, masked) as pipeline:
        wait_stopped(pipeline)
        (error,) = pipeline.errors()
        assert f"table public.items: `mask` of the map is another one than the one {BY}\nhint: " in error
        assert hint in error
        database.execute("INSERT INTO items VALUES (101, 1)")
        pass_by(pipeline, database)
        assert lake_counts(pipeline, "items", "id = 101") == 0
    with pipeline_of(lake_folder, database, masked) as pipeline:
        wait_stopped(pipeline)
        mend(pipeline)
        database.execute("INSERT INTO items VALUES (102, 1)")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        open_ones = "true" if kind == "append" else "kvsz_end > '9000-01-01'"
        clear = 100 if mend is keep else 0
        assert lake_counts(pipeline, "items", f"email = 'a@b' AND {open_ones}") == clear
        assert lake_counts(pipeline, "items", f"email = '***' AND {open_ones}") == 102 - clear
    with pipeline_of(lake_folder, database, masked) as pipeline:
        pipeline.wait_streaming()


def test_an_answer_counts_before_the_table_was_looked_at_again(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    with pipeline_of(lake_folder, database, {"type": "append"}) as pipeline:
        pipeline.wait_streaming()
    masked = {"type": "append", "mask": {"email": "redact"}}
    with pipeline_of(lake_folder, database, masked) as pipeline:
        wait_stopped(pipeline)
    with pipeline_of(lake_folder, database, masked) as pipeline:
        keep(pipeline)
        database.execute("INSERT INTO items VALUES (101, 1)")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert lake_counts(pipeline, "items", "email = '***'") == 1


def test_a_map_of_nothing_else_can_be_told_how_it_goes_on(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    with pipeline_of(lake_folder, database, {"type": "append"}, has_others=False) as pipeline:
        pipeline.wait_streaming()
    changed = {"type": "append", "filter": "id < 500"}
    with pipeline_of(lake_folder, database, changed, has_others=False) as pipeline:
        wait_stopped(pipeline)
        database.execute("INSERT INTO items VALUES (101, 1), (500, 1)")
        keep(pipeline)
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert lake_counts(pipeline, "items") == 101


PLAIN = {"id": "id", "n": "n"}
CASES = [
    ({}, {"mask": {"email": "redact"}}),
    pytest.param(
        {"set": {**PLAIN, "email": "upper(email)"}},
        {"set": {**PLAIN, "email": "lower(email)"}},
        marks=pytest.mark.slow,
    ),
]


# Slow: append tables write as changelogs do, without a kind.
@pytest.mark.parametrize("kind", [pytest.param("append", marks=pytest.mark.slow), "changelog"])
@pytest.mark.parametrize(("before", "now"), CASES, ids=["mask", "set"])
def test_no_later_row_has_a_value_that_another_rule_made(
    database: Database, lake_folder: LakeFolder, kind: str, before: dict, now: dict
) -> None:
    """A person agreed to the rows that are there; an UPDATE leaves out large values that did not change."""
    fill(database)
    database.execute("ALTER TABLE items ALTER email SET STORAGE EXTERNAL")
    database.execute("UPDATE items SET email = repeat('aB', 3000)")
    with pipeline_of(lake_folder, database, {"type": kind, **before}) as pipeline:
        pipeline.wait_streaming()
    wanted = {"type": kind, **now}
    with pipeline_of(lake_folder, database, wanted) as pipeline:
        wait_stopped(pipeline)
        keep(pipeline)
        pipeline.wait_streaming()
    with pipeline_of(lake_folder, database, wanted) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 9 WHERE id = 5")
        wait_until(lambda: lake_counts(pipeline, "items", "n = 9") or pipeline.errors(), "it comes, or is refused")
        assert lake_counts(pipeline, "items", "n = 9") == 0
        assert "another rule of the map made what the lake has of it" in pipeline.errors()[0]
        database.execute("ALTER TABLE items REPLICA IDENTITY FULL")  # as the hint says
        copy(pipeline)
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 10 WHERE id = 5")
        pipeline.wait_applied(database)
        assert lake_counts(pipeline, "items", "n = 10") == 1
