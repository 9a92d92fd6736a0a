"""The option `row_filter`: rows outside the filter stay at the source, and nothing is lost as row filters change."""

from __future__ import annotations

import collections
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import psycopg
import pytest

from kuvasz.source import conninfo
from kuvasz.state.tables import State
from kuvasz.sync.context.publications import Publications
from kuvasz.verbs import check
from tests.support import publishing
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import Rows, source_rows
from tests.support.postgres import Database, create_database, drop_database, needs
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

EU, DEEDS = "shop_eu", "shop.deeds"
PLAIN = {"filter": "region = 'in'"}
FILTERED = {**PLAIN, "row_filter": True}
COMPARED = "a table was not published without interruption, and is compared with its source"
FULL = "ALTER TABLE deeds REPLICA IDENTITY FULL"


@pytest.fixture(autouse=True)
def has_row_filters(request: pytest.FixtureRequest) -> None:
    for name in {"database", "any_version"} & set(request.fixturenames):
        needs(request.getfixturevalue(name).server, 15, "row filters")


# Slow: all but 18; `make test-versions` has the tests of this file with 15, the first that has filters, as well.
@pytest.fixture(params=[*(pytest.param(one, marks=pytest.mark.slow) for one in (15, 16, 17)), 18])
def any_version(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A fresh database on a server of each version that does something else with publications."""
    created = create_database(request.getfixturevalue(f"postgres{request.param}"))
    yield created
    drop_database(created)


def fill(database: Database, identity: str = FULL) -> None:
    database.execute("CREATE TABLE deeds (id int PRIMARY KEY, region text, n int, body text)")
    database.execute("ALTER TABLE deeds ALTER body SET STORAGE EXTERNAL")
    database.execute(identity)
    database.execute(
        "INSERT INTO deeds SELECT i, CASE i % 3 WHEN 0 THEN 'in' WHEN 1 THEN 'out' END, i, 'b' || i"
        " FROM generate_series(1, 60) i"
    )


def change(database: Database, number: int) -> None:
    database.execute(f"UPDATE deeds SET region = 'in', n = {number} WHERE id % 10 = {number}")
    database.execute(f"UPDATE deeds SET region = 'out', n = {number} WHERE id % 15 = {number}")
    database.execute(f"UPDATE deeds SET id = id + 100000 WHERE id = {number}")
    database.execute(f"DELETE FROM deeds WHERE id IN ({number + 10}, {number + 20}, {number + 30})")
    database.execute(
        f"INSERT INTO deeds SELECT {number}000 + i, (ARRAY['in', 'out', NULL])[i % 3 + 1], {number},"
        " repeat('x', 3000) FROM generate_series(1, 9) i"
    )


def row_filter(database: Database) -> str | None:
    """The condition by which the publication sends rows; None: all of them."""
    ((condition,),) = database.execute("SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel")
    return condition


def running(lake: LakeFolder, database: Database, entry: Mapping[str, object]) -> AbstractContextManager[Pipeline]:
    return publishing.running(lake, database, "deeds", entry)


def assert_equal(pipeline: Pipeline, database: Database, condition: str = "region = 'in'") -> None:
    pipeline.wait_applied(database)
    pipeline.assert_equal("deeds", rows(database, condition))


def rows(database: Database, condition: str) -> Rows:
    whole = source_rows(database.url, "deeds", sid="eu")
    inside = {id for (id,) in database.execute(f"SELECT id FROM deeds WHERE {condition}")}
    place = whole.columns.index("id")
    left = {row: count for row, count in whole.rows.items() if row[place] in inside}
    return Rows(columns=whole.columns, rows=collections.Counter(left))


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], int]:
    """How often a message was logged."""
    caplog.set_level("INFO", logger="kuvasz")
    return lambda message: publishing.times_told(caplog, message)


def sent(database: Database) -> list[bytes]:
    """What the slot `watch` has for who names the publication."""
    query = (
        "SELECT data FROM pg_logical_slot_peek_binary_changes('watch', NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'kuvasz_shop_eu')"
    )
    return [bytes(data) for (data,) in database.execute(query)]


def test_rows_outside_never_come(any_version: Database, lake_folder: LakeFolder) -> None:
    database = any_version
    fill(database)
    with running(lake_folder, database, FILTERED) as pipeline:
        change(database, 1)
        assert_equal(pipeline, database)
    database.execute("SELECT pg_create_logical_replication_slot('watch', 'pgoutput')")
    database.execute("INSERT INTO deeds VALUES (70001, 'out', 1, 'Zq7Outside'), (70002, NULL, 1, 'Zq7Outside')")
    database.execute("UPDATE deeds SET n = 2, body = 'Zq7Outside' WHERE id > 70000")
    database.execute("INSERT INTO deeds VALUES (70003, 'in', 1, 'Zq7Left')")
    database.execute("UPDATE deeds SET region = 'out', body = 'Zq7Outside' WHERE id = 70003")
    database.execute("UPDATE deeds SET region = 'in', body = 'Zq7Entered' WHERE id = 70002")
    database.execute("DELETE FROM deeds WHERE id = 70001")
    database.execute("INSERT INTO deeds VALUES (70004, 'in', 1, 'Zq7Last')")
    wait_until(lambda: b"Zq7Last" in b"".join(sent(database)), "it is in the stream")
    messages = [message for message in sent(database) if message[:1] in {b"I", b"U", b"D"}]
    assert [message[:1] for message in messages] == [b"I", b"D", b"I", b"I"]
    assert b"Zq7Outside" not in b"".join(messages)
    assert b"Zq7Left" in messages[0]
    assert b"Zq7Entered" in messages[2]
    with running(lake_folder, database, FILTERED) as pipeline:
        assert_equal(pipeline, database)


FILTERS = [
    ("region = 'in'", "region = 'in'"),
    ("region <> 'in' OR n > 40 AND body <> 'b'", "region <> 'in' OR n > 40 AND body <> 'b'"),
    ("NOT (region IN ('out', 'far')) AND length(body) > 2", "region NOT IN ('out', 'far') AND length(body) > 2"),
    ("n BETWEEN -5 AND 30 AND region IS NOT NULL", "n BETWEEN -5 AND 30 AND region IS NOT NULL"),
]


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "UNIQUE (id)"], ids=["key", "whole rows"])
def test_updates_that_cross_the_filter_leave_what_the_filter_alone_leaves(
    any_version: Database, lake_folder: LakeFolder, key: str
) -> None:
    """Random transactions, large values and other keys among them."""
    database = any_version
    draw = random.Random()  # noqa: S311 (no secret)
    seed = draw.randint(0, 10**9)
    draw.seed(seed)
    filters = FILTERS if key.startswith("PRIMARY") else FILTERS[:2]
    tables: dict[str, dict] = {
        f"deeds{n}": {"filter": text, "row_filter": True} for n, (text, _) in enumerate(filters)
    }
    if key.startswith("PRIMARY"):
        soft = {"filter": FILTERS[1][0], "deletes": "soft"}
        tables |= {"soft": {**soft, "row_filter": True}, "soft_and_whole": soft}
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int, region text, n int, body text, {key})")
        database.execute(f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL")
        database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    config = lake_folder.config(group({"eu": database}, tables))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect(autocommit=True) as session:
            for _ in range(150):
                with session.transaction():
                    for _ in range(draw.randint(1, 5)):
                        one = random_change(draw)
                        for table in tables:
                            session.execute(one.format(table=table))
        pipeline.wait_applied(database)
        for number, (_, condition) in enumerate(filters):
            wanted = database.execute(f"SELECT id, region, n, body FROM deeds{number} WHERE {condition}")
            found = pipeline.rows(f"deeds{number}")
            assert sorted(map(repr, found)) == sorted(map(repr, wanted)), f"seed {seed}, {condition}"
        if "soft" in tables:
            one, other = (sorted(map(repr, pipeline.rows(table))) for table in ("soft", "soft_and_whole"))
            assert one == other, f"seed {seed}"
            assert len(one) > len(database.execute(f"SELECT FROM soft WHERE {FILTERS[1][1]}")), "some are deleted"


def random_change(draw: random.Random) -> str:
    region = draw.choice(["'in'", "'out'", "'far'", "NULL"])
    n = draw.randint(-10, 60)
    body = draw.choice(["'b'", f"'b{n}'", f"repeat('{draw.choice('xyz')}', 3000)", "NULL"])
    at, other = draw.randint(1, 25), draw.randint(1, 25)
    return draw.choice([
        f"INSERT INTO {{table}} VALUES ({at}, {region}, {n}, {body}) ON CONFLICT (id) DO NOTHING",
        f"INSERT INTO {{table}} VALUES ({at}, {region}, {n}, {body}) ON CONFLICT (id) DO UPDATE SET n = {n}",
        f"UPDATE {{table}} SET region = {region} WHERE id = {at}",
        f"UPDATE {{table}} SET n = {n} WHERE id BETWEEN {at} AND {at + 4}",
        f"UPDATE {{table}} SET n = {n}, body = {body} WHERE id = {at}",
        f"UPDATE {{table}} SET id = {other}, region = {region} WHERE id = {at}"
        f" AND NOT EXISTS (SELECT FROM {{table}} WHERE id = {other})",
        f"DELETE FROM {{table}} WHERE id = {at}",
    ])  # fmt: skip


def test_a_filter_of_the_key_needs_no_full_identity(any_version: Database, lake_folder: LakeFolder) -> None:
    database = any_version
    database.execute(
        "CREATE TABLE deeds (tenant uuid, id int, region text, body text, PRIMARY KEY (tenant, id));"
        "ALTER TABLE deeds ALTER body SET STORAGE EXTERNAL"
    )
    ours, theirs = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"
    database.execute(
        f"INSERT INTO deeds SELECT (ARRAY['{ours}', '{theirs}'])[i % 2 + 1]::uuid, i, 'in', repeat('b', 3000)"
        " FROM generate_series(1, 40) i"
    )
    entry = {"filter": f"tenant = '{ours}' AND region <> 'out'", "row_filter": True}

    def is_equal(pipeline: Pipeline) -> bool:
        pipeline.wait_applied(database)
        wanted = database.execute(f"SELECT * FROM deeds WHERE tenant = '{ours}' AND region <> 'out'")
        return sorted(map(repr, pipeline.rows("deeds"))) == sorted(repr((str(row[0]), *row[1:])) for row in wanted)

    with running(lake_folder, database, entry) as pipeline:
        condition = row_filter(database)
        assert condition is not None
        assert "tenant" in condition
        assert "region" not in condition
        database.execute("UPDATE deeds SET region = 'out' WHERE id % 5 = 0")
        database.execute(f"UPDATE deeds SET tenant = '{theirs}' WHERE id % 7 = 0")
        database.execute(f"UPDATE deeds SET tenant = '{ours}', body = 'small' WHERE id % 3 = 0")
        database.execute("DELETE FROM deeds WHERE id % 11 = 0")
        database.execute(f"INSERT INTO deeds VALUES ('{ours}', 100, 'in', 'x'), ('{theirs}', 101, 'in', 'x')")
        assert is_equal(pipeline)
        # As without a row filter: nobody has the large value that did not change.
        database.execute(f"UPDATE deeds SET tenant = '{ours}' WHERE tenant = '{theirs}' AND id % 2 = 1")
        database.execute(f"UPDATE deeds SET tenant = '{ours}' WHERE tenant = '{theirs}'")
        pipeline.wait_state(EU, DEEDS, State.ERROR)
        (error,) = pipeline.errors()
        assert "REPLICA IDENTITY FULL" in error
        pipeline.tell("resync", DEEDS, EU)
        pipeline.wait_streaming()
        assert is_equal(pipeline)


def test_a_row_filter_beside_a_list_of_columns(database: Database, lake_folder: LakeFolder) -> None:
    fill(database, "ALTER TABLE deeds REPLICA IDENTITY DEFAULT")
    entry = {"filter": "id > 20 AND region <> 'out'", "exclude": ["body"], "column_list": True}
    listed = "SELECT array_length(prattrs::int2[], 1), prqual IS NOT NULL FROM pg_publication_rel"
    for wanted, said in ((False, entry), (True, {**entry, "row_filter": True}), (False, entry)):
        with running(lake_folder, database, said) as pipeline:
            assert database.execute(listed) == [(3, wanted)]
            database.execute("UPDATE deeds SET region = NULL WHERE id % 7 = 0")
            database.execute("UPDATE deeds SET id = 200 - id WHERE id % 9 = 0")
            database.execute("UPDATE deeds SET region = 'in' WHERE id % 5 = 0")
            pipeline.wait_applied(database)
            found = {row[:3] for row in pipeline.rows("deeds")}
            assert found == set(database.execute("SELECT id, region, n FROM deeds WHERE id > 20 AND region <> 'out'"))


def test_a_table_that_follows_gets_a_row_filter_and_misses_nothing(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, PLAIN) as pipeline:
        change(database, 1)
        assert_equal(pipeline, database)
        assert row_filter(database) is None
    change(database, 2)  # a backlog from before the row filter
    for number in (3, 5):
        with running(lake_folder, database, FILTERED) as pipeline:
            assert row_filter(database) is not None
            change(database, number)
            assert_equal(pipeline, database)
        change(database, number + 1)
    assert told("table copied") == 1
    assert told(COMPARED) == 0
    with running(lake_folder, database, PLAIN) as pipeline:
        assert row_filter(database) is None
        change(database, 7)
        assert_equal(pipeline, database)
    assert told(COMPARED) == 1


def test_another_filter_gets_what_the_one_before_held_back(
    database: Database, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    """A transaction that runs all the while has written by the one filter, and commits by the other."""
    fill(database)
    with running(lake_folder, database, FILTERED):
        pass
    change(database, 1)
    other = {"filter": "region = 'out'", "row_filter": True}
    config = lake_folder.config(group({"eu": database}, {"deeds": other}))
    with database.connect() as session:
        session.execute("INSERT INTO deeds VALUES (90001, 'out', 1, 'by the one')")
        with Pipeline(config, lake_folder) as pipeline:
            time.sleep(3)
            session.execute("INSERT INTO deeds VALUES (90002, 'out', 1, 'still')")
            session.commit()
            pipeline.wait_streaming()
            change(database, 2)
            assert_equal(pipeline, database, "region = 'out'")
            condition = row_filter(database)
            assert condition is not None
            assert "out" in condition


def test_an_identity_that_lacks_a_column_takes_the_row_filter_away(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: Callable[[str], int]
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with running(lake_folder, database, FILTERED) as pipeline:
        database.execute("ALTER TABLE deeds REPLICA IDENTITY DEFAULT")
        wait_until(lambda: database.takes("UPDATE deeds SET n = 7 WHERE id < 9"), "UPDATEs go on")
        pipeline.wait_streaming()
        assert row_filter(database) is None
        change(database, 1)
        assert_equal(pipeline, database)
        assert told("rows outside the filter leave the source, though the map asks for a row filter") == 1
        database.execute(FULL)
        change(database, 2)
        assert_equal(pipeline, database)
    with running(lake_folder, database, FILTERED) as pipeline:
        assert row_filter(database) is not None
        change(database, 3)
        assert_equal(pipeline, database)


def test_a_paused_table_is_not_in_the_way_of_the_application_either(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)
    with running(lake_folder, database, FILTERED) as pipeline:
        pipeline.tell("pause", DEEDS, EU)
        pipeline.wait_state(EU, DEEDS, State.PAUSED)
        database.execute("ALTER TABLE deeds REPLICA IDENTITY DEFAULT")
        wait_until(lambda: database.takes("UPDATE deeds SET n = 7 WHERE id < 9"), "UPDATEs go on")
        change(database, 1)
        database.execute(FULL)
        pipeline.tell("resume", DEEDS, EU)
        pipeline.wait_streaming()
        change(database, 2)
        assert_equal(pipeline, database)


@pytest.mark.parametrize("is_running", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_name_that_becomes_another_columns_is_another_filter(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, *, is_running: bool
) -> None:
    """The row filter goes on to read the column that had the name."""
    monkeypatch.setattr("kuvasz.sync.watches.PATROL_S", 0.3)
    fill(database)

    def rename() -> None:
        with database.connect() as session:
            session.execute("ALTER TABLE deeds RENAME region TO earlier")
            session.execute("ALTER TABLE deeds ADD region text")
            session.execute("UPDATE deeds SET region = CASE WHEN earlier = 'in' THEN 'out' ELSE 'in' END")

    with running(lake_folder, database, FILTERED) as pipeline:
        if is_running:
            rename()
            wait_until(lambda: "kuvasz" in str(row_filter(database)) and " 5'" in str(row_filter(database)), "new")
    if not is_running:
        rename()
    with running(lake_folder, database, FILTERED) as pipeline:
        change(database, 1)
        pipeline.wait_applied(database)
        wanted = database.execute("SELECT id, n, body, earlier, region FROM deeds WHERE region = 'in'")
        found = [dict(zip(columns(pipeline), row, strict=True)) for row in pipeline.rows("deeds")]
        assert sorted(map(repr, wanted)) == sorted(
            repr(tuple(row[name] for name in ("id", "n", "body", "earlier", "region"))) for row in found
        )


def columns(pipeline: Pipeline) -> list[str]:
    from tests.support import oracle

    found = oracle.lake_rows_pyiceberg(pipeline.folder.pyiceberg, DEEDS, catalog=pipeline.folder.catalog)
    return [name for name in found.columns if name != "sid"]


def test_who_ends_between_the_row_filter_and_the_note_of_it_has_a_gap_looked_for(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, told: Callable[[str], int]
) -> None:
    fill(database)
    with running(lake_folder, database, PLAIN):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(Publications, "_note_list", lambda *_: None)
        with running(lake_folder, database, FILTERED) as pipeline:
            pipeline.stop()
    change(database, 1)
    with running(lake_folder, database, FILTERED) as pipeline:
        change(database, 2)
        assert_equal(pipeline, database)


# Slow: lists of columns come and go so in test_column_lists.py, by the same statements.
@pytest.mark.slow
@pytest.mark.parametrize("any_version", [15, 16, 17, 18], indirect=True)
def test_row_filters_come_and_go_while_rows_are_written(any_version: Database, lake_folder: LakeFolder) -> None:
    database = any_version
    fill(database)
    stop = threading.Event()

    def write() -> None:
        number = 0
        with psycopg.connect(database.url, autocommit=True) as session:
            while not stop.wait(0.002):
                number += 1
                region = ("in", "out", None)[number % 3]
                with session.transaction():
                    session.execute("UPDATE deeds SET region = %s, n = n + 1 WHERE id = %s", (region, number % 50))
                    session.execute("INSERT INTO deeds VALUES (%s, %s, 1, 'b')", (200000 + number, region))
                    session.execute("UPDATE deeds SET n = %s WHERE id = %s", (number, 200000 + number // 2))

    entries = [FILTERED, {"filter": "region = 'out'", "row_filter": True}, {"filter": "region = 'out'"}, FILTERED,
               {"filter": "region = 'in' OR n < 100", "row_filter": True}, FILTERED]  # fmt: skip
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for entry in entries:
            with running(lake_folder, database, entry) as pipeline:
                pipeline.wait_applied(database)
    finally:
        stop.set()
        writer.join()
    with running(lake_folder, database, FILTERED) as pipeline:
        change(database, 1)
        assert_equal(pipeline, database)


LIVE = [
    (FILTERED, "region = 'in'"),
    (PLAIN, "region = 'in'"),
    ({"filter": "region = 'out'", "row_filter": True}, "region = 'out'"),
    ({"filter": "region = 'in' OR n < 100", "row_filter": True}, "region = 'in' OR n < 100"),
    ({"filter": "region = 'in' OR n < 100"}, "region = 'in' OR n < 100"),
    (FILTERED, "region = 'in'"),
    ({"filter": "n BETWEEN 3 AND 5000 AND region IS NOT NULL", "row_filter": True},
     "n BETWEEN 3 AND 5000 AND region IS NOT NULL"),
    ({}, "true"),
    (FILTERED, "region = 'in'"),
]  # fmt: skip


@pytest.mark.slow
def test_a_live_map_gives_takes_and_changes_row_filters_while_rows_cross_them(
    any_version: Database, lake_folder: LakeFolder
) -> None:
    """Read by Spark, PyIceberg and DuckDB after each; kuvasz goes on meanwhile, and so does who writes."""
    database = any_version
    fill(database)
    stop, paused, resting = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        with psycopg.connect(database.url, autocommit=True) as session:
            while not stop.wait(0.002):
                if paused.is_set():
                    resting.set()
                    continue
                resting.clear()
                number += 1
                region = ("in", "out", None)[number % 3]
                with session.transaction():
                    session.execute("UPDATE deeds SET region = %s, n = n + 1 WHERE id = %s", (region, number % 50))
                    session.execute(
                        "INSERT INTO deeds VALUES (%s, %s, 1, repeat('b', 3000))", (200000 + number, region)
                    )
                    session.execute(
                        "UPDATE deeds SET n = %s, region = %s WHERE id = %s",
                        (number, ("out", None, "in")[number % 3], 200000 + number // 2),
                    )
                    session.execute("DELETE FROM deeds WHERE id = %s", (200000 + number // 3,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with running(lake_folder, database, LIVE[0][0]) as pipeline:
            for entry, condition in LIVE[1:]:
                publishing.config_of(lake_folder, database, "deeds", entry)
                pipeline.take_over()
                time.sleep(0.3)
                pipeline.wait_streaming()
                assert (row_filter(database) is not None) == ("row_filter" in entry)
                paused.set()
                resting.clear()
                wait_until(lambda: resting.is_set() or not writer.is_alive(), "nobody writes")
                assert writer.is_alive()
                assert_equal(pipeline, database, condition)
                paused.clear()
    finally:
        stop.set()
        writer.join()


@pytest.mark.slow
def test_a_locked_table_gets_its_row_filter_later(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conninfo, "LOCK_WAIT", "SET LOCAL lock_timeout = '100ms'")
    fill(database)
    with running(lake_folder, database, FILTERED):
        pass
    database.execute("CREATE TABLE others (id int PRIMARY KEY)")
    entry = {"filter": "region = 'out'", "row_filter": True}
    config = lake_folder.config(group({"eu": database}, {"deeds": entry, "others": None}))
    with database.connect() as other:
        other.execute("LOCK TABLE deeds IN SHARE UPDATE EXCLUSIVE MODE")
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_state(EU, DEEDS, State.ERROR)
            assert "locked by another session" in str(pipeline.errors())
            change(database, 1)
            other.rollback()
            pipeline.wait_streaming()
            change(database, 2)
            assert_equal(pipeline, database, "region = 'out'")


def test_a_row_filter_of_somebody_else_is_left_alone(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    database.execute("CREATE TABLE others (id int PRIMARY KEY)")
    database.execute(
        "CREATE PUBLICATION kuvasz_shop_eu FOR TABLE deeds WHERE (n > 5), others WITH (publish_via_partition_root)"
    )
    config = lake_folder.config(group({"eu": database}, {"deeds": FILTERED, "others": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, DEEDS, State.ERROR)
        (error,) = pipeline.errors()
        assert "with a row filter" in error
    assert database.execute(
        "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel WHERE prqual IS NOT NULL"
    ) == [("(n > 5)",)]


def test_partitioned_tables_get_none(database: Database, lake_folder: LakeFolder, told: Callable[[str], int]) -> None:
    database.execute(
        "CREATE TABLE deeds (id int, region text, n int, body text, PRIMARY KEY (id, region))"
        " PARTITION BY LIST (region); CREATE TABLE part PARTITION OF deeds FOR VALUES IN ('in', 'out')"
    )
    with running(lake_folder, database, FILTERED):
        assert row_filter(database) is None
    assert told("rows outside the filter leave the source, though the map asks for a row filter") == 1


def test_a_server_that_has_none_sends_all(
    postgres14: object, lake_folder: LakeFolder, told: Callable[[str], int]
) -> None:
    database = create_database(postgres14)  # type: ignore[arg-type]
    try:
        fill(database)
        with running(lake_folder, database, FILTERED) as pipeline:
            change(database, 1)
            assert_equal(pipeline, database)
        assert told("rows outside the filter leave the source, though the map asks for a row filter") == 1
    finally:
        drop_database(database)


def test_a_collation_of_ones_own_gets_none(database: Database, lake_folder: LakeFolder) -> None:
    database.execute('CREATE COLLATION mine FROM "C"')
    database.execute("CREATE TABLE deeds (id int PRIMARY KEY, region text COLLATE mine, n int, body text)")
    database.execute(FULL)
    with running(lake_folder, database, FILTERED) as pipeline:
        assert row_filter(database) is None
        change(database, 1)
        assert_equal(pipeline, database)


def test_check_and_plan_know_of_the_row_filter(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)

    def said(entry: dict) -> tuple[list[str], list[str]]:
        return publishing.verbs_say(lake_folder, database, "deeds", entry)

    (create,), (value,) = said(FILTERED)
    assert 'FOR TABLE ONLY "public"."deeds" WHERE (\'kuvasz ' in create
    assert '"region"::text COLLATE "C" = \'in\'' in create
    assert value == "may be made so "
    with running(lake_folder, database, PLAIN):
        pass
    (drop, add), (value,) = said(FILTERED)
    assert drop == 'ALTER PUBLICATION "kuvasz_shop_eu" DROP TABLE ONLY "public"."deeds";'
    assert "WHERE ('kuvasz " in add
    assert value == "may be made so "
    database.execute(drop)
    database.execute(add)
    assert said(FILTERED) == ([], ["fits "])
    assert said(PLAIN)[0] == [drop, 'ALTER PUBLICATION "kuvasz_shop_eu" ADD TABLE ONLY "public"."deeds";']
    database.execute("ALTER TABLE deeds REPLICA IDENTITY DEFAULT")
    assert "PostgreSQL can decide nothing of it" in str(
        [one.value for one in check.findings(lake_folder.config(group({"eu": database}, {"deeds": FILTERED})))
         if one.check == "row_filter"]
    )  # fmt: skip
