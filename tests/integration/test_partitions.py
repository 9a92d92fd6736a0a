"""Partitioned tables of the source: one target, whatever comes and goes below the root."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.errors import SourceLocked
from kuvasz.model import TableName
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect, look, partitions
from kuvasz.state.tables import State
from kuvasz.sync import watches
from kuvasz.sync.rules import partition_memory
from kuvasz.verbs import check, verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import open_table, source_rows
from tests.support.partitioned import ATTACH, EVENTS, MARCH, STANDALONE, run, wait_equal
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

FEBRUARY = "FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')"
APRIL = "FOR VALUES FROM ('2024-04-01') TO ('2024-05-01')"
FILL = "INSERT INTO p VALUES (1, '2024-03-01')"
KEY = ("id", "day")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.1)
    monkeypatch.setattr(watches, "PATROL_S", 0.5)


def known(pipeline: Pipeline) -> int:
    return len(partition_memory.parse(pipeline.app.lake.notes.partitions("shop.events", "shop_eu") or ()).parts)


def files(of: Pipeline | Database) -> set[int]:
    """Return the files of the partitions, as they are known or as they are."""
    if isinstance(of, Pipeline):
        return {
            part.file
            for part in partition_memory.parse(of.app.lake.notes.partitions("shop.events", "shop_eu") or ()).parts
        }
    found = of.execute("SELECT relfilenode::int FROM pg_class WHERE relkind = 'r' AND relname LIKE 'events%'")
    return {file for (file,) in found}


@pytest.mark.parametrize(
    ("steps", "has_rows"),
    [
        (["CREATE TABLE p PARTITION OF events " + MARCH], False),
        (["CREATE TABLE p PARTITION OF events " + MARCH, "INSERT INTO events VALUES (1, '2024-03-01', 1)"], False),
        ([STANDALONE.format("p"), ATTACH, FILL], False),
        ([STANDALONE.format("p"), FILL, ATTACH], True),
        (["ALTER TABLE events DETACH PARTITION events_2",
          f"ALTER TABLE events ATTACH PARTITION events_2 {FEBRUARY}"], True),
        (["CREATE TABLE b (LIKE events) PARTITION BY LIST (n)", "CREATE TABLE p PARTITION OF b DEFAULT",
          "INSERT INTO b VALUES (1, '2024-03-01', 1)", f"ALTER TABLE events ATTACH PARTITION b {MARCH}"], True),
        (["CREATE TABLE b (LIKE events) PARTITION BY LIST (n)", "CREATE TABLE p PARTITION OF b DEFAULT",
          f"ALTER TABLE events ATTACH PARTITION b {MARCH}", "INSERT INTO b VALUES (1, '2024-03-01', 1)"], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_rows_from_before_are_told_from_later_ones(
    database: Database, steps: list[str], has_rows: bool, together: bool
) -> None:
    run(database, EVENTS.replace(", PRIMARY KEY (id, day)", ""))
    with psycopg.connect(database.url, autocommit=True) as session:
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        before = {part.links for part in partitions.load(session, [oid])[oid]}
        assert len(before) == 2
        if together:
            run(database, *steps)
        else:
            for step in steps:
                session.execute(step)
        fresh = [part for part in partitions.load(session, [oid])[oid] if part.links not in before]
        assert len(fresh) == 1
        is_seen = partitions.are_seen(session) or not any("ATTACH" in step for step in steps)
        assert partitions.has_earlier_rows(session, fresh[0]) is (has_rows or not is_seen)


@pytest.fixture
def old(postgres14: EmbeddedPostgres) -> Iterator[Database]:
    """A database of a server whose streams do not see that partitions come and go."""
    made = create_database(postgres14)
    yield made
    drop_database(made)


def test_rows_that_an_old_server_may_not_stream_are_from_before(old: Database) -> None:
    with psycopg.connect(old.url, autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot('kuvasz_old', 'pgoutput')")
        for step in (EVENTS, STANDALONE.format("p"), FILL, ATTACH, "UPDATE events SET n = 7"):
            session.execute(step)
        session.execute(f"CREATE TABLE made PARTITION OF events {APRIL}")
        session.execute("INSERT INTO events VALUES (1, '2024-04-02', 1)")
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        found = {part.table.name: part for part in partitions.load(session, [oid])[oid]}
        assert partitions.has_earlier_rows(session, found["p"])
        assert not partitions.has_earlier_rows(session, found["made"])
        assert partitions.unsettled(session, "kuvasz_old", found.values()) == {found["p"].links}
        assert partitions.is_confirmed(session, "kuvasz_old", 1)
        assert not partitions.is_confirmed(session, "kuvasz_old", look.wal_end(session))
        session.execute("SELECT pg_drop_replication_slot('kuvasz_old')")
        assert partitions.unsettled(session, "kuvasz_old", found.values()) == {found["p"].links}
        assert not partitions.is_confirmed(session, "kuvasz_old", 1)
        session.execute("SELECT pg_create_logical_replication_slot('kuvasz_new', 'pgoutput')")
        assert partitions.unsettled(session, "kuvasz_new", found.values()) == set()
        session.execute("SELECT pg_drop_replication_slot('kuvasz_new')")


# Slow: what becomes of partitions while kuvasz streams reaches the lake above.
@pytest.mark.slow
def test_partitions_come_and_go_behind_the_back_of_a_stream(
    old: Database, lake_folder: LakeFolder, quick: None
) -> None:
    """PostgreSQL 14 goes on to send nothing of what it sent nothing of, and as the root's what it sent so."""
    run(old, EVENTS)
    config = lake_folder.config(group({"eu": old}, {"events": {"partition_removed": "keep"}}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    for steps in ([STANDALONE.format("p"), FILL], [ATTACH], ["UPDATE events SET n = n + 1"]):
        run(old, *steps)
    with Pipeline(config, lake_folder) as pipeline:
        wait_equal(pipeline, old, ["events"])
        run(old, "INSERT INTO events VALUES (2, '2024-03-02', 2)", "UPDATE events SET n = n + 1")
        wait_equal(pipeline, old, ["events"])
        reader = pipeline.app.sync("shop_eu").reader
        epoch = reader.epoch
        kept = set(pipeline.rows("events"))
        run(old, "ALTER TABLE events DETACH PARTITION p")
        wait_until(lambda: known(pipeline) == 2 and reader.epoch > epoch, "another connection streams")
        run(old, "INSERT INTO p VALUES (3, '2024-03-03', 3)", "INSERT INTO events VALUES (1000, '2024-01-01', 1)")
        pipeline.wait_applied(old)
        assert set(pipeline.rows("events")) == kept | {(1000, datetime.date(2024, 1, 1), 1)}


def test_a_partition_that_somebody_has_locked_is_asked_for_its_rows_only_if_it_was_attached(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conninfo, "LOCK_WAIT", "SET LOCAL lock_timeout = '50ms'")
    run(database, EVENTS, STANDALONE.format("p"), FILL, ATTACH, f"CREATE TABLE later PARTITION OF events {APRIL}")
    with conninfo.connect(database.url) as session, database.connect() as other:
        other.execute("LOCK TABLE p, later IN ACCESS EXCLUSIVE MODE")
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        parts = {part.table.name: part for part in partitions.load(session, [oid])[oid]}
        assert not partitions.has_earlier_rows(session, parts["later"])
        with pytest.raises(SourceLocked, match=r"cannot look into partition public\.p: canceling statement"):
            partitions.has_earlier_rows(session, parts["p"])


@pytest.mark.parametrize("steps", [
    [STANDALONE.format("p"), "SAVEPOINT s", FILL, "RELEASE s", ATTACH],
    ["CREATE TABLE b (LIKE events) PARTITION BY LIST (n)", "CREATE TABLE p PARTITION OF b DEFAULT",
     "SAVEPOINT s", "INSERT INTO b VALUES (1, '2024-03-01', 1)", "RELEASE s",
     f"ALTER TABLE events ATTACH PARTITION b {MARCH}"],
])  # fmt: skip
def test_rows_of_a_savepoint_are_from_before(database: Database, steps: list[str]) -> None:
    run(database, EVENTS.replace(", PRIMARY KEY (id, day)", ""))
    run(database, *steps)
    with psycopg.connect(database.url, autocommit=True) as session:
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        (fresh,) = [part for part in partitions.load(session, [oid])[oid] if part.table.name == "p"]
        assert partitions.has_earlier_rows(session, fresh)


LOAD = "INSERT INTO {0} SELECT i, date '2024-01-02', 7 FROM generate_series(1001, 1050) i"
UNLOGGED_LOAD = f"ALTER TABLE {{0}}_1 SET UNLOGGED; {LOAD}; ALTER TABLE {{0}}_1 SET LOGGED"


@pytest.mark.parametrize(
    ("steps", "has_some"),
    [
        (["TRUNCATE events_1"], False),
        (["TRUNCATE events_1", LOAD], False),
        (["TRUNCATE events", LOAD, "UPDATE events SET n = 8 WHERE id = 1001"], False),
        (["CREATE TABLE other ()", "TRUNCATE events", LOAD], False),
        ([f"TRUNCATE events; {LOAD}"], False),
        ([f"CREATE TABLE other (); TRUNCATE events; {LOAD}"], False),
        ([UNLOGGED_LOAD], True),
        (UNLOGGED_LOAD.split("; "), True),
        ([f"TRUNCATE events; {UNLOGGED_LOAD}"], True),
        ([f"TRUNCATE events; {UNLOGGED_LOAD}; DELETE FROM events WHERE id = 1001"], True),
        ([UNLOGGED_LOAD, "GRANT SELECT ON events_1 TO public"], True),
        ([UNLOGGED_LOAD, "ALTER TABLE events ADD c int", LOAD.replace("100", "200").replace("7", "7, 1")], True),
        (["ALTER TABLE events ALTER n TYPE bigint"], True),
    ],
)
def test_rows_of_a_file_that_was_made_with_them_are_told_from_later_ones(
    database: Database, steps: list[str], *, has_some: bool
) -> None:
    run(database, EVENTS)
    for step in steps:
        run(database, step.format("events"))
    with psycopg.connect(database.url, autocommit=True) as session:
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        parts = {part.table.name: part for part in partitions.load(session, [oid])[oid]}
        assert parts["events_1"].file != parts["events_1"].oid
        assert partitions.has_rewritten_rows(session, parts["events_1"]) is has_some


@pytest.mark.parametrize(
    ("statement", "altered"),
    [
        ("ALTER TABLE events ALTER n TYPE bigint", {4}),
        ("ALTER TABLE events ADD c int; TRUNCATE events_1", {5}),
        ("TRUNCATE events_1", set()),
    ],
)
def test_columns_that_were_changed_with_a_file_are_those_of_the_root(
    database: Database, statement: str, altered: set[int]
) -> None:
    """Whatever numbers they have in the partition."""
    run(database, EVENTS.replace("id int", "gone int, id int").replace("SELECT", "SELECT 0,"))
    run(database, "ALTER TABLE events DROP gone")
    run(database, "ALTER TABLE events DETACH PARTITION events_1", "DROP TABLE events_1")
    run(database, STANDALONE.format("events_1"))
    run(database, "ALTER TABLE events ATTACH PARTITION events_1 FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')")
    run(database, statement)
    with psycopg.connect(database.url, autocommit=True) as session:
        oid = introspect.load_relation(session, TableName(schema="public", name="events")).relation.oid
        parts = {part.table.name: part for part in partitions.load(session, [oid])[oid]}
        assert partitions.altered(session, oid, parts["events_1"]) == altered
        assert set(partitions.types(session, [oid])) == {oid}


def test_the_leaves_of_a_snapshot_are_those_that_it_shows(database: Database) -> None:
    run(database, EVENTS, STANDALONE.format("p"))
    name = TableName(schema="public", name="events")
    with psycopg.connect(database.url) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = introspect.load_relation(session, name).leaves
        run(database, ATTACH)
        assert introspect.load_relation(session, name).leaves == before
        session.rollback()
        assert len(introspect.load_relation(session, name).leaves) == len(before) + 1


@pytest.fixture
def horizons(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return those of all looks, which grows: all but the last look have ended."""
    seen: list[int] = []
    horizon = partitions.horizon

    def recorded(connection: psycopg.Connection) -> int:
        seen.append(horizon(connection))
        return seen[-1]

    monkeypatch.setattr(partitions, "horizon", recorded)
    return seen


def test_a_horizon_of_another_past_proves_nothing(database: Database) -> None:
    """A standby that took over without what the old primary wrote last gives the same transaction numbers again.

    So does a server that was put back to an older state, which stays on its timeline.
    """
    database.execute("CREATE TABLE t AS SELECT 1 AS n")
    table = TableName(schema="public", name="t")
    with database.connect() as session:
        at = partitions.horizon(session)
        timeline, xid = divmod(at, 1 << 48)
        assert timeline == 1
        for horizon, is_proved in ((at, True), (xid, True), (at + (1 << 48), False), (at + 1000, False)):
            assert partitions.has_rows_from_before(session, table, horizon) is is_proved


def wait_looked(database: Database, horizons: list[int]) -> None:
    """Wait until a look has ended that takes all rows which are there for rows from before a later one."""
    [(now,)] = database.execute("SELECT pg_current_xact_id()::text::bigint")
    wait_until(
        lambda: sum(horizon % (1 << 48) > now for horizon in list(horizons)) > 1,
        "a look has ended that began behind the rows",
    )


def test_partitions_come_and_rows_move_between_them(
    database: Database,
    lake_folder: LakeFolder,
    quick: None,
    horizons: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run(database, EVENTS)
    with Pipeline(lake_folder.config(group({"eu": database}, {"events": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert known(pipeline) == 2
        run(database, f"CREATE TABLE events_3 PARTITION OF events {MARCH}")
        run(database, "INSERT INTO events SELECT i, date '2024-03-01' + i % 30, 1 FROM generate_series(200, 220) i")
        run(database, "UPDATE events SET day = day + 30, n = n + 1 WHERE id % 3 = 0 AND day < '2024-03-01'")
        run(database, STANDALONE.format("events_4"), f"ALTER TABLE events ATTACH PARTITION events_4 {APRIL}")
        # First: rows of early commands of later transactions may be from before, as far as a look can tell.
        wait_until(lambda: known(pipeline) == 4, "the new partitions are known")
        run(database, "UPDATE events SET day = day + 30 WHERE id % 5 = 0 AND day < '2024-04-01'")
        run(database, "DELETE FROM events WHERE id % 7 = 0", "INSERT INTO events_4 VALUES (500, '2024-04-02', 1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=KEY)
        run(database, "TRUNCATE events")
        run(database, "INSERT INTO events VALUES (1, '2024-02-02', 1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", source_rows(database.url, "events", sid="eu"), key=KEY)
        wait_looked(database, horizons)  # else its row, which no look has seen, says nothing of its file
        with database.connect(autocommit=True) as session:
            session.execute("VACUUM FULL events_2")
        wait_until(lambda: files(pipeline) == files(database), "the new files are known")
        assert "compared with its source" not in caplog.text, "the stream has all of that"


def months(table: str) -> str:
    """Return a table with a partition for January and February each, and one for June that has two of its own."""
    return f"""
CREATE TABLE {table} (id int, day date, n int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE {table}_2 PARTITION OF {table} {FEBRUARY};
CREATE TABLE {table}_6 PARTITION OF {table} FOR VALUES FROM ('2024-06-01') TO ('2024-07-01') PARTITION BY HASH (id);
CREATE TABLE {table}_6_a PARTITION OF {table}_6 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE {table}_6_b PARTITION OF {table}_6 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO {table} SELECT i, date '2024-01-01' + i % 60, 0 FROM generate_series(1, 100) i;
INSERT INTO {table} SELECT i, date '2024-06-02', 0 FROM generate_series(101, 110) i;
"""


#: What becomes of partitions, each with its transactions; {0} is the table.
CHANGES = {
    "truncated": ["TRUNCATE {0}_1", "INSERT INTO {0} VALUES (1, '2024-01-02', 1), (500, '2024-01-03', 1)"],
    "at_once": ["TRUNCATE {0}_1; INSERT INTO {0} VALUES (1, '2024-01-02', 1)"],
    "often": ["TRUNCATE {0}_1", "INSERT INTO {0} VALUES (500, '2024-01-03', 1)", "TRUNCATE {0}_1",
              "INSERT INTO {0} VALUES (501, '2024-01-03', 1)", "TRUNCATE {0}_2"],
    "below": ["TRUNCATE {0}_6_b", "INSERT INTO {0} VALUES (1, '2024-06-03', 0)"],
    "detached": ["INSERT INTO {0} VALUES (500, '2024-02-02', 1)", "ALTER TABLE {0} DETACH PARTITION {0}_2",
                 "INSERT INTO {0}_2 VALUES (1000, '2024-02-02', 5)"],
    "branch": ["ALTER TABLE {0} DETACH PARTITION {0}_6", "INSERT INTO {0} VALUES (500, '2024-01-03', 1)"],
    "returned": ["ALTER TABLE {0} DETACH PARTITION {0}_2", "UPDATE {0}_2 SET n = 7 WHERE id % 2 = 0",
                 "DELETE FROM {0}_2 WHERE id % 3 = 0", f"ALTER TABLE {{0}} ATTACH PARTITION {{0}}_2 {FEBRUARY}"],
    "returned_empty": ["ALTER TABLE {0} DETACH PARTITION {0}_2", "DELETE FROM {0}_2",
                       f"ALTER TABLE {{0}} ATTACH PARTITION {{0}}_2 {FEBRUARY}",
                       "INSERT INTO {0} VALUES (2, '2024-02-02', 1)"],
    "created_again": ["DROP TABLE {0}_2", f"CREATE TABLE {{0}}_2 PARTITION OF {{0}} {FEBRUARY}",
                      "INSERT INTO {0} VALUES (1, '2024-02-02', 1), (500, '2024-02-03', 1)"],
    "attached": [STANDALONE.format("{0}_3"), "INSERT INTO {0}_3 VALUES (300, '2024-03-03', 3)",
                 f"ALTER TABLE {{0}} ATTACH PARTITION {{0}}_3 {MARCH}", "UPDATE {0} SET n = n + 1 WHERE id > 90"],
    "came_and_went": [f"CREATE TABLE {{0}}_4 PARTITION OF {{0}} {APRIL}",
                      "INSERT INTO {0} SELECT i, '2024-04-02', 1 FROM generate_series(1, 9) i", "DROP TABLE {0}_4",
                      "INSERT INTO {0} VALUES (500, '2024-01-03', 1)"],
    "came_truncated": [f"CREATE TABLE {{0}}_4 PARTITION OF {{0}} {APRIL}",
                       "INSERT INTO {0} SELECT i, '2024-04-02', 1 FROM generate_series(1, 9) i", "TRUNCATE {0}_4",
                       "INSERT INTO {0} VALUES (5, '2024-04-03', 1)"],
}  # fmt: skip


def change(database: Database, tables: Iterable[str]) -> None:
    for table in tables:
        for transaction in CHANGES[table]:
            run(database, transaction.format(table))


@pytest.mark.parametrize(
    "when", ["live", pytest.param("paused", marks=pytest.mark.slow), pytest.param("down", marks=pytest.mark.slow)]
)
def test_what_becomes_of_partitions_reaches_the_lake(
    database: Database, lake_folder: LakeFolder, quick: None, when: str
) -> None:
    tables = list(CHANGES)
    run(database, *(months(table) for table in tables))
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(tables)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        wait_equal(pipeline, database, tables)
        if when == "live":
            change(database, tables)
        elif when == "paused":
            for table in tables:
                pipeline.tell("pause", f"shop.{table}", "shop_eu")
                pipeline.wait_state("shop_eu", f"shop.{table}", State.PAUSED)
            change(database, tables)
            for table in tables:
                pipeline.tell("resume", f"shop.{table}", "shop_eu")
        if when != "down":
            wait_equal(pipeline, database, tables)
    if when == "down":
        change(database, tables)
        with Pipeline(config, lake_folder) as pipeline:
            wait_equal(pipeline, database, tables)


def test_rows_that_are_published_as_a_partitions_own_are_not_lost(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    run(database, months("events"))
    with Pipeline(lake_folder.config(group({"eu": database}, {"events": None})), lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, "ALTER PUBLICATION kuvasz_shop_eu SET (publish_via_partition_root = false)")
        run(database, "INSERT INTO events VALUES (500, '2024-01-05', 1)")
        wait_equal(pipeline, database, ["events"])
        run(database, "INSERT INTO events VALUES (501, '2024-01-05', 1)")
        wait_equal(pipeline, database, ["events"])


def ended(pipeline: Pipeline, table: str) -> int:
    return sum(1 for row in pipeline.rows(table) if "True" in str(row))


def test_each_type_has_its_way_with_partitions(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    types = {"clone": {"partition_removed": "keep"}, "history": {}, "append": {}, "changelog": {}}
    run(database, *(months(table) for table in types))
    tables = {table: {"type": table} | options for table, options in types.items()}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        for table in types:
            run(database, f"TRUNCATE {table}_1")
        ((left,),) = database.execute("SELECT count(*) FROM clone")
        wait_until(lambda: len(pipeline.rows("clone")) == left, "the clone lost the partition's rows")
        wait_until(lambda: ended(pipeline, "history") == 110 - left, "their versions ended")
        pipeline.wait_state("shop_eu", "shop.changelog", State.ERROR)
        assert "partition public.changelog_1 was truncated or rewritten" in pipeline.errors()[0]
        pipeline.tell("retry", "shop.changelog", "shop_eu")
        pipeline.wait_streaming()
        for table in types:
            run(database, f"DROP TABLE {table}_2", f"INSERT INTO {table} VALUES (500, '2024-01-05', 1)")
        wait_until(lambda: ended(pipeline, "history") == 100, "versions of a partition that is gone end")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert len(pipeline.rows("clone")) == left + 1, "they are kept"
        assert len(pipeline.rows("append")) == len(pipeline.rows("changelog")) == 111
        (report,) = verify.reports(pipeline.config, table="shop.clone", session=lake_folder.session, is_fixing=True)
        assert report.extra == report.differences == report.left > 0
        assert len(pipeline.rows("clone")) == left + 1, "they are kept still"
        run(database, "TRUNCATE changelog", "INSERT INTO changelog VALUES (500, '2024-01-05', 1)")
        run(database, "TRUNCATE clone_6_a")
        pipeline.wait_state("shop_eu", "shop.clone", State.ERROR)
        assert "the map says `partition_removed: keep`" in pipeline.errors()[0]
        wait_until(lambda: len(pipeline.rows("changelog")) == 113, "a TRUNCATE of the root is a row")
        assert pipeline.states()["shop_eu", "shop.changelog"] is State.STREAMING
        pipeline.tell("resync", "shop.clone", "shop_eu")
        wait_equal(pipeline, database, ["clone"])


def test_what_came_and_went_before_the_snapshot_that_a_table_is_compared_with_is_shown(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    tables = {"history": {"type": "history"}, "softs": {"deletes": "soft"}}
    run(database, *(EVENTS.replace("events", table) for table in tables))
    config = lake_folder.config(group({"eu": database}, tables))
    ((left,),) = database.execute("SELECT count(*) FROM softs_2")

    def change() -> None:
        for table in tables:
            run(database, f"INSERT INTO {table} VALUES (900, '2024-02-02', 1)")
            run(database, f"UPDATE {table} SET n = 2 WHERE id = 900")
            run(database, f"DELETE FROM {table} WHERE id = 900")
            run(database, f"INSERT INTO {table} VALUES (901, '2024-02-02', 1)")

    def is_compared(pipeline: Pipeline) -> bool:
        # Of its deleted rows a clone has the time.
        gone = sum(1 for row in pipeline.rows("softs") if any(isinstance(v, datetime.datetime) for v in row))
        return ended(pipeline, "history") == 100 - left + 1 and gone == 100 - left + 1

    with database.connect() as writing, Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        writing.execute("CREATE TABLE others (id int)")  # a snapshot waits for it
        run(database, *(f"TRUNCATE {table}_1" for table in tables))
        wait_until(lambda: State.COPYING in pipeline.states().values(), "one of them waits for its snapshot")
        change()
        writing.commit()
        wait_until(lambda: is_compared(pipeline), "both are compared")
        seen = shown(pipeline)
    assert seen == {"history": [(900, 1), (900, 2), (901, 1)], "softs": [(900, 2), (901, 1)]}


def shown(pipeline: Pipeline) -> dict[str, list[tuple]]:
    pipeline.wait_streaming()
    return {
        table: sorted((row[0], row[2]) for row in pipeline.rows(table) if row[0] >= 900)
        for table in ("history", "softs")
    }


def test_a_history_that_lacks_what_its_stream_builds_upon_is_compared_all_the_same(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    large = "ALTER TABLE {0} ADD large text; ALTER TABLE {0} ALTER large SET STORAGE EXTERNAL"
    run(database, EVENTS, large.format("events"), STANDALONE.format("p"), large.format("p"))
    run(database, "INSERT INTO p VALUES (900, '2024-03-02', 0, repeat('x', 9000))")
    config = lake_folder.config(group({"eu": database}, {"events": {"type": "history"}}))
    with database.connect() as writing, Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        writing.execute("CREATE TABLE others (id int)")  # a snapshot waits for it
        run(database, ATTACH)
        wait_until(lambda: State.COPYING in pipeline.states().values(), "it waits for its snapshot")
        run(database, "UPDATE events SET n = 1 WHERE id = 900")
        writing.commit()
        wait_until(lambda: any(row[0] == 900 for row in pipeline.rows("events")), "the attached row is there")
        pipeline.wait_streaming()
        run(database, "UPDATE events SET n = 2 WHERE id = 900")
        pipeline.wait_applied(database)
        versions = [(row[2], len(row[3])) for row in pipeline.rows("events") if row[0] == 900]
        assert sorted(versions) == [(1, 9000), (2, 9000)]


#: Ways to fill a partition without WAL between two looks; {0} is the table.
UNLOGGED = {
    "for_a_while": [UNLOGGED_LOAD],
    "made_so": [f"CREATE UNLOGGED TABLE {{0}}_3 PARTITION OF {{0}} {MARCH}",
                LOAD.replace("2024-01", "2024-03"), "ALTER TABLE {0}_3 SET LOGGED"],
    "made_at_once": [f"CREATE UNLOGGED TABLE {{0}}_3 PARTITION OF {{0}} {MARCH};"
                     f"{LOAD.replace('2024-01', '2024-03')}; ALTER TABLE {{0}}_3 SET LOGGED"],
    "truncated": [f"TRUNCATE {{0}}; {UNLOGGED_LOAD}"],
    "altered": [f"ALTER TABLE {{0}} ADD c int; {UNLOGGED_LOAD}"],
}  # fmt: skip


def loaded(pipeline: Pipeline, table: str) -> int:
    return sum(1 for row in pipeline.rows(table) if 1000 < row[0] < 1051)


# Slow: test_accounted_for.py has it in one scene with other mishaps.
@pytest.mark.slow
@pytest.mark.parametrize("when", ["live", pytest.param("down", marks=pytest.mark.slow)])
def test_rows_that_a_partition_got_without_wal_are_not_lost_without_a_word(
    database: Database, lake_folder: LakeFolder, quick: None, when: str
) -> None:
    """PostgreSQL lets partitions be unlogged that a publication has by their root."""
    tables = {f"{kind}_{how}": kind for kind in ("append", "changelog") for how in UNLOGGED}
    tables |= {"clone_truncated": "clone", "history_truncated": "history"}
    run(database, *(EVENTS.replace("events", table) for table in tables))

    def load() -> None:
        for table, kind in tables.items():
            for statement in UNLOGGED[table.removeprefix(f"{kind}_")]:
                run(database, statement.format(table))

    config = lake_folder.config(group({"eu": database}, {table: {"type": kind} for table, kind in tables.items()}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        if when == "live":
            load()
            assert_told(pipeline, tables)
    if when == "down":
        load()
        with Pipeline(config, lake_folder) as pipeline:
            assert_told(pipeline, tables)


def has_gap(pipeline: Pipeline, table: str) -> bool:
    lake = pipeline.folder
    return "kuvasz.gap.shop_eu" in open_table(lake.pyiceberg, f"shop.{table}", catalog=lake.catalog).properties


def assert_told(pipeline: Pipeline, tables: dict[str, str]) -> None:
    for table, kind in tables.items():
        if kind in {"clone", "history"}:
            wait_until(
                lambda table=table: loaded(pipeline, table) == 50,
                lambda table=table: f"{table} has the rows: {pipeline.errors()}",
            )
        else:
            pipeline.wait_state("shop_eu", f"shop.{table}", State.ERROR)
            wait_until(
                lambda table=table: any(f"public.{table}: its changes after" in error for error in pipeline.errors()),
                lambda table=table: f"{table} is told: {pipeline.errors()}",
            )
            pipeline.tell("retry", f"shop.{table}", "shop_eu")
    pipeline.wait_streaming()
    assert [table for table in tables if not has_gap(pipeline, table)] == []


def test_a_truncate_beside_a_change_of_columns_is_not_lost_without_a_word(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    run(database, EVENTS)
    tables = {"events": {"type": "changelog"}}
    with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, "ALTER TABLE events ADD c int", "TRUNCATE events_1")
        pipeline.wait_state("shop_eu", "shop.events", State.ERROR)
        assert "partition public.events_1 was truncated or rewritten" in pipeline.errors()[0]


def test_what_writes_partitions_anew_with_wal_is_no_gap(
    database: Database, lake_folder: LakeFolder, quick: None, horizons: list[int]
) -> None:
    tables = ("append", "changelog")
    run(database, *(EVENTS.replace("events", table) for table in tables))

    def seen(table: str) -> set[int | None]:
        texts = pipeline.app.lake.notes.partitions(f"shop.{table}", "shop_eu") or ()
        return {part.file for part in partition_memory.parse(texts).parts}

    config = lake_folder.config(group({"eu": database}, {table: {"type": table} for table in tables}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        steps = ["VACUUM FULL {0}_1", "CLUSTER {0}_2 USING {0}_2_pkey", "ALTER TABLE {0} ALTER n TYPE bigint",
                 "TRUNCATE {0}", LOAD, "BEGIN; CREATE TABLE also_{0} (); TRUNCATE {0}; COMMIT"]  # fmt: skip
        alone = ["TRUNCATE append_1", LOAD]  # the stream tells a changelog nothing of that
        for step in (*steps, *alone):
            wait_looked(database, horizons)
            for table in tables if step not in alone[:1] else tables[:1]:
                with database.connect(autocommit=True) as session:
                    session.execute(step.format(table))
                now = f"SELECT relfilenode::int FROM pg_class WHERE relkind = 'r' AND relname ~ '^{table}_[12]$'"
                files_now = {file for (file,) in database.execute(now)}
                wait_until(
                    lambda table=table, files_now=files_now: seen(table) == files_now,
                    lambda step=step: f"the new files are known after {step}: {pipeline.errors()}",
                )
        pipeline.wait_applied(database)
        assert pipeline.errors() == []
        assert [table for table in tables if has_gap(pipeline, table)] == []


LOG = """
CREATE TABLE log (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE log_0 PARTITION OF log FOR VALUES FROM (1000) TO (2000);
CREATE TABLE items (id int PRIMARY KEY, n int);
INSERT INTO items SELECT i, 0 FROM generate_series(1, 20) i;
"""
ATTACH_ITEMS = "ALTER TABLE log ATTACH PARTITION items FOR VALUES FROM (0) TO (1000)"
DETACH_ITEMS = "ALTER TABLE log DETACH PARTITION items"


def wait_same(pipeline: Pipeline, database: Database, *tables: str) -> None:
    """Wait until targets have the rows of their tables, also of those that are compared yet."""
    for table in tables:
        wait_until(
            lambda table=table: sorted(pipeline.rows(table)) == sorted(database.execute(f"SELECT * FROM {table}")),
            lambda table=table: f"{table} is as its source: {pipeline.states()} {pipeline.errors()}",
        )


def wait_refused(pipeline: Pipeline, table: str, why: str) -> None:
    pipeline.wait_state("shop", f"shop.{table}", State.ERROR)
    wait_until(lambda: any(why in error for error in pipeline.errors()), lambda: f"told: {pipeline.errors()}")


def test_a_partition_and_its_root_in_one_map(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    run(database, LOG, ATTACH_ITEMS)
    config = lake_folder.config(group({None: database}, {"items": None, "log": None}))
    (told,) = [one for one in check.findings(config) if one.is_blocking]
    assert (told.check, str(told.table)) == ("partition", "public.items")
    with Pipeline(config, lake_folder) as pipeline:
        wait_refused(pipeline, "items", "public.items is a partition of public.log")
        run(database, "UPDATE items SET n = 1 WHERE id = 1")
        wait_same(pipeline, database, "log")
        run(database, DETACH_ITEMS, "UPDATE items SET n = 2 WHERE id = 2")
        wait_same(pipeline, database, "items", "log")


@pytest.mark.parametrize(
    ("publication", "is_running"),
    [
        ("of tables", True),
        ("of all", False),
        pytest.param("of tables", False, marks=pytest.mark.slow),
        pytest.param("of all", True, marks=pytest.mark.slow),
    ],
)
def test_a_table_that_becomes_a_partition_of_what_is_published(
    database: Database, lake_folder: LakeFolder, quick: None, *, publication: str, is_running: bool
) -> None:
    run(database, LOG)
    if publication == "of all":
        run(database, "CREATE PUBLICATION kuvasz_shop FOR ALL TABLES WITH (publish_via_partition_root = true)")
    tables = ("items", "log") if publication == "of tables" else ("items",)
    config = lake_folder.config(group({None: database}, dict.fromkeys(tables)))
    script = ATTACH_ITEMS, "UPDATE items SET n = 1 WHERE id = 1", "INSERT INTO items VALUES (100, 100)"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        if is_running:
            run(database, *script)
            wait_refused(pipeline, "items", "come as changes of that")
    if not is_running:
        run(database, *script)
    detach = DETACH_ITEMS, "UPDATE items SET n = 2 WHERE id = 2"
    with Pipeline(config, lake_folder) as pipeline:
        if "log" in tables:
            wait_refused(pipeline, "items", "come as changes of that")
            wait_same(pipeline, database, "log")
            run(database, *detach)
            wait_same(pipeline, database, *tables)
        else:  # with no other table, kuvasz ends
            wait_until(lambda: any("come as changes of that" in error for error in pipeline.errors()), "it is told")
    if "log" not in tables:
        run(database, *detach)
    with Pipeline(config, lake_folder) as pipeline:
        run(database, "INSERT INTO items VALUES (101, 101)")
        wait_same(pipeline, database, *tables)


@pytest.mark.parametrize("is_running", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_partition_of_the_map_whose_root_someone_publishes(
    database: Database, lake_folder: LakeFolder, quick: None, *, is_running: bool
) -> None:
    run(database, LOG, ATTACH_ITEMS)
    config = lake_folder.config(group({None: database}, {"items": None}))
    script = "ALTER PUBLICATION kuvasz_shop ADD TABLE log", "UPDATE items SET n = 1 WHERE id = 1"
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        if is_running:
            run(database, *script)
            wait_same(pipeline, database, "items")
    if not is_running:
        run(database, *script)
    with Pipeline(config, lake_folder) as pipeline:
        wait_same(pipeline, database, "items")
        run(database, "INSERT INTO items VALUES (101, 101)")
        wait_same(pipeline, database, "items")
    assert database.execute("SELECT tablename::text FROM pg_publication_tables") == [("items",)]
