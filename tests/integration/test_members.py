"""`partitions_regex`: tables of their own at the source are one target."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.admin.metrics import Metrics
from kuvasz.admin.observer import Observer
from kuvasz.config.model import MetricsScope
from kuvasz.config.names import object_name
from kuvasz.state.tables import State
from kuvasz.sync import watches
from kuvasz.verbs import check, offline, plan, verify
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group, on_a_branch
from tests.support.oracle import source_rows
from tests.support.postgres import Database, EmbeddedPostgres, create_database, drop_database
from tests.support.process import Process
from tests.support.two_tables import confirmed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

MONTH = "CREATE TABLE {} (id bigint PRIMARY KEY, kind text, n int, big text)"
MAP = {"events": {"partitions_regex": "events_[0-9]+"}}
ALL = "(SELECT * FROM {}) AS t"


def run(database: Database, *statements: str) -> None:
    """In one transaction."""
    with database.connect() as session:
        for statement in statements:
            session.execute(statement)


def month(database: Database, number: int, rows: range, *more: str) -> str:
    """Create a member with rows."""
    name = f"events_{number}"
    fill = f"""INSERT INTO {name} SELECT i, 'kind ' || i % 7, i, repeat(md5(i::text), 3)
        FROM generate_series({rows.start}, {rows.stop - 1}) i"""
    run(database, MONTH.format(name), fill, *more)
    return name


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_PARTITIONS_S", 0.1)


def members(pipeline: Pipeline) -> dict[str, State]:
    """Name at the source -> state."""
    return {state.table.removeprefix("public."): state.state for state in pipeline.app.states.snapshot()}


def every(database: Database, *tables: str, sid: str | None = "eu") -> oracle.Rows:
    first, *others = (source_rows(database.url, table, sid=sid) for table in tables)
    for more in others:
        first = first + more
    return first


@on_a_branch
def test_members_are_copied_and_followed(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    names = [month(database, n, range(n * 100, n * 100 + 50)) for n in (1, 2, 3)]
    run(database, "CREATE TABLE other (id int PRIMARY KEY)", "CREATE TABLE events_x (id int PRIMARY KEY)")
    config = lake_folder.config(group({"eu": database}, MAP | {"other": None}))
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 4, "all members are known")
        pipeline.wait_streaming()
        assert set(members(pipeline)) == {*names, "other"}
        pipeline.assert_equal("events", every(database, *names))
        run(database, "INSERT INTO events_1 VALUES (1000, 'new', 1)", "UPDATE events_2 SET n = -1 WHERE id % 2 = 0",
            "DELETE FROM events_3 WHERE id % 3 = 0")  # fmt: skip
        # A row moves to and fro, in one transaction and in several.
        run(database, "DELETE FROM events_1 WHERE id = 101", "INSERT INTO events_2 VALUES (101, 'moved', 1)")
        run(database, "INSERT INTO events_3 VALUES (102, 'moved first', 1)", "DELETE FROM events_1 WHERE id = 102")
        run(database, "DELETE FROM events_2 WHERE id = 101", "INSERT INTO events_1 VALUES (101, 'back', 1)")
        run(database, "DELETE FROM events_1 WHERE id = 101", "INSERT INTO events_3 VALUES (101, 'on', 1)",
            "DELETE FROM events_3 WHERE id = 101", "INSERT INTO events_1 VALUES (101, 'home', 1)")  # fmt: skip
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, *names))
        # A newcomer, filled before anybody knows of it, and then while it is copied.
        names.append(month(database, 4, range(400, 480)))
        run(database, "UPDATE events_4 SET n = n + 1", "DELETE FROM events_1 WHERE id = 103",
            "INSERT INTO events_4 VALUES (103, 'moved', 1)")  # fmt: skip
        wait_until(lambda: members(pipeline).get("events_4") is State.STREAMING, "the newcomer streams")
        run(database, "UPDATE events_4 SET kind = 'late' WHERE id < 420", "UPDATE events_1 SET n = 7")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, *names))
        assert database.execute("SELECT count(*) FROM pg_publication_tables") == [(5,)]
        # Compaction keeps them apart, and one of them is emptied: the others' rows stay.
        assert pipeline.app.lake.maintenance.run("shop.events", full=True).rewrites > 0
        pipeline.assert_equal("events", every(database, *names))
        run(database, "TRUNCATE events_2", "INSERT INTO events_2 VALUES (1, 'after', 1)")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, *names))
    # While nobody looks.
    names.append(month(database, 5, range(500, 520), "UPDATE events_1 SET n = 8", "TRUNCATE events_3"))
    with Pipeline(lake_folder.config(group({"eu": database}, MAP | {"other": None})), lake_folder) as pipeline:
        wait_until(lambda: members(pipeline).get("events_5") is State.STREAMING, "the newcomer streams")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, *names))


@on_a_branch
def test_members_come_go_and_are_renamed(
    postgres16: EmbeddedPostgres, lake_folder: LakeFolder, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    database = create_database(postgres16)
    config = lake_folder.config(group({"eu": database}, MAP))
    with Pipeline(config, lake_folder) as pipeline:  # there is none yet
        wait_until(lambda: pipeline.app.sources[0].reader is not None, "the stream begins")
        month(database, 1, range(10, 30))
        month(database, 2, range(30, 50))
        wait_until(lambda: list(members(pipeline).values()) == [State.STREAMING] * 2, "both are taken in")
        # One gets another name, and a new table takes the old one.
        run(database, "UPDATE events_1 SET n = 0 WHERE id = 10", "ALTER TABLE events_1 RENAME TO events_11",
            "UPDATE events_11 SET n = 0 WHERE id = 11", MONTH.format("events_1"))  # fmt: skip
        wait_until(lambda: members(pipeline).get("events_11") is State.STREAMING, "the new name is known")
        wait_until(lambda: members(pipeline).get("events_1") is State.STREAMING, "the new table is taken in")
        run(database, "UPDATE events_11 SET n = 1 WHERE id = 12", "INSERT INTO events_1 VALUES (1, 'new', 1)")
        pipeline.wait_applied(database)
        now = every(database, "events_1", "events_11", "events_2")
        pipeline.assert_equal("events", now)
        # What was dropped leaves its rows.
        run(database, "DROP TABLE events_2")
        wait_until(lambda: set(members(pipeline)) == {"events_1", "events_11"}, "the drop is noticed")
        assert "a table is gone; its rows stay in the lake" in caplog.text
        run(database, "INSERT INTO events_1 VALUES (2, 'new', 1)")
        pipeline.wait_applied(database)
        assert len(pipeline.rows("events")) == len(now) + 1
        # One that takes its name must not be put beside them.
        month(database, 2, range(30, 40))
        wait_until(lambda: members(pipeline).get("events_2") is State.ERROR, "it is refused")
        (error,) = pipeline.errors()
        assert "public.events_2: it was dropped and created again, and shop.events has the rows" in error
        run(database, "ALTER TABLE events_2 RENAME TO events_22")
        wait_until(lambda: members(pipeline).get("events_22") is State.STREAMING, "under another name it is welcome")
        pipeline.wait_applied(database)
        assert len(pipeline.rows("events")) == len(now) + 11
        # Away and back: what happened meanwhile is not missed.
        run(database, "ALTER TABLE events_22 RENAME TO away", "UPDATE away SET n = 99")
        wait_until(lambda: "events_22" not in members(pipeline), "it is gone")
        run(database, "DELETE FROM away WHERE id = 30", "ALTER TABLE away RENAME TO events_22")
        wait_until(lambda: members(pipeline).get("events_22") is State.STREAMING, "it is back")
        pipeline.wait_applied(database)
        rows = {(row[0], row[2]) for row in pipeline.rows("events")}
        assert len(pipeline.rows("events")) == len(now) + 10
        assert {(31, 99), (31, 31)} <= rows  # of the one that is there, and of the one that was dropped
        tell_all(pipeline, "resync")
        pipeline.wait_streaming()
        assert len(pipeline.rows("events")) == len(now) + 10
    run(database, "DROP TABLE events_11")
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: set(members(pipeline)) == {"events_1", "events_22"}, "the members are known")
        run(database, "INSERT INTO events_1 VALUES (3, 'new', 1)")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert len(pipeline.rows("events")) == len(now) + 11
    drop_database(database)


RENAME, SET_SCHEMA = "ALTER TABLE {} RENAME TO {}", "ALTER TABLE {} SET SCHEMA {}"


@pytest.mark.parametrize(
    ("away", "is_running"),
    [
        (RENAME, True),
        (SET_SCHEMA, False),
        pytest.param(RENAME, False, marks=pytest.mark.slow),
        pytest.param(SET_SCHEMA, True, marks=pytest.mark.slow),
    ],
)
def test_a_member_that_is_away_between_two_looks(
    database: Database, lake_folder: LakeFolder, *, away: str, is_running: bool
) -> None:
    month(database, 1, range(10))
    month(database, 2, range(10), "CREATE SCHEMA attic")
    config = lake_folder.config(group({"eu": database}, MAP))
    has_name = away is RENAME
    there, home = ("public.away", "events_1") if has_name else ("attic.events_1", "public")

    def away_and_back() -> None:
        run(database, away.format("events_1", "away" if has_name else "attic"))
        run(database, f"UPDATE {there} SET n = 99 WHERE id = 5", f"INSERT INTO {there} VALUES (500, 'new', 1)")
        run(database, away.format(there, home))

    def settle(pipeline: Pipeline) -> None:
        wait_until(lambda: len(members(pipeline)) == 2, "all members are known")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)

    with Pipeline(config, lake_folder) as pipeline:
        settle(pipeline)
        if is_running:
            away_and_back()
            settle(pipeline)
            pipeline.assert_equal("events", every(database, "events_1", "events_2"))
    if not is_running:
        away_and_back()
        with Pipeline(config, lake_folder) as pipeline:
            run(database, "UPDATE events_1 SET n = 7 WHERE id = 1")
            settle(pipeline)
            pipeline.assert_equal("events", every(database, "events_1", "events_2"))


@pytest.mark.parametrize("is_renamed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_only_member_is_away_while_kuvasz_runs(
    database: Database, lake_folder: LakeFolder, quick: None, *, is_renamed: bool
) -> None:
    """Its target has no member, so nobody loads it."""
    month(database, 1, range(10), "CREATE TABLE other (id int PRIMARY KEY)")
    publication = object_name("shop", "eu")
    run(database, f"CREATE PUBLICATION {publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    here = lake_folder.config(group({"eu": database}, MAP | {"other": None}))
    with Pipeline(here, lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 2, "the member is known")
        pipeline.wait_streaming()
    away = here
    if is_renamed:
        run(database, "ALTER TABLE events_1 RENAME TO away")
    else:
        none = {"events": {"partitions_regex": "nothing_[0-9]+"}, "other": None}
        away = lake_folder.config(group({"eu": database}, none))
    with Pipeline(away, lake_folder) as pipeline:
        pipeline.wait_streaming()
        run(database, f"UPDATE {'away' if is_renamed else 'events_1'} SET n = 99 WHERE id < 5")
        pipeline.wait_applied(database)
        assert set(members(pipeline)) == {"other"}
        wait_confirmed(database)
    if is_renamed:
        run(database, "ALTER TABLE away RENAME TO events_1")
    with Pipeline(here, lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 2, "the member is back")
        run(database, "UPDATE events_1 SET n = 7 WHERE id = 5")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, "events_1"))


def wait_confirmed(database: Database) -> None:
    """Have the source let go of everything up to now."""
    ((now,),) = database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    wait_until(lambda: confirmed(database) >= now, "the source lets go of its WAL")


def test_a_table_of_its_own_that_is_called_like_a_member(
    database: Database, lake_folder: LakeFolder, quick: None
) -> None:
    month(database, 1, range(10))
    run(database, MONTH.format("other"), "INSERT INTO other VALUES (1, 'other', 1)")
    config = lake_folder.config(group({"eu": database}, MAP | {"other": None}))
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 2, "both are known")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        run(database, "ALTER TABLE other RENAME TO events_2", "UPDATE events_2 SET n = 99")
        month(database, 3, range(5))
        wait_until(lambda: members(pipeline).get("events_3") is State.STREAMING, "a newcomer is taken in")
        pipeline.wait_applied(database)
        pipeline.assert_equal("other", source_rows(database.url, "events_2", sid="eu"))
    run(database, "UPDATE events_2 SET n = 100")
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 3, "all are known")
        pipeline.wait_applied(database)
        pipeline.assert_equal("other", source_rows(database.url, "events_2", sid="eu"))
        pipeline.assert_equal("events", every(database, "events_1", "events_3"))


def tell_all(pipeline: Pipeline, verb: str) -> None:
    """As the HTTP server does for a target."""
    for state in pipeline.app.states.snapshot():
        with contextlib.suppress(KeyError):  # it has left since: the server looks and tells in one step of the loop
            pipeline.tell(verb, state.key, state.source)


def test_partitions_published_on_their_own(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    run(database, "CREATE TABLE log (id bigint, kind text, PRIMARY KEY (id, kind)) PARTITION BY LIST (kind)",
        "CREATE TABLE events_1 PARTITION OF log FOR VALUES IN ('a')",
        "CREATE TABLE events_2 PARTITION OF log FOR VALUES IN ('b')",
        "CREATE TABLE others PARTITION OF log DEFAULT",
        "INSERT INTO log VALUES (1, 'a'), (2, 'b'), (3, 'c')")  # fmt: skip
    options = MAP["events"] | {"set": {"number": "id + 0", "kind": "upper(kind)"}, "filter": "id <> 5"}
    options["key"] = ["number", "kind"]
    with Pipeline(lake_folder.config(group({None: database}, {"events": options})), lake_folder) as pipeline:
        wait_until(lambda: set(members(pipeline)) == {"events_1", "events_2"}, "both are known")
        pipeline.wait_streaming()
        assert sorted(pipeline.rows("events")) == [(1, "A"), (2, "B")]
        run(database, "UPDATE log SET kind = 'b' WHERE id = 1", "INSERT INTO log VALUES (4, 'a'), (5, 'a'), (6, 'c')")
        run(database, "UPDATE log SET kind = 'c' WHERE id = 2", "UPDATE log SET id = 7 WHERE id = 5")
        pipeline.wait_applied(database)
        assert sorted(pipeline.rows("events")) == [(1, "B"), (4, "A"), (7, "A")]


@pytest.mark.parametrize("sid", ["eu", pytest.param(None, marks=pytest.mark.slow)])
def test_members_of_another_source_are_not_put_beside_those_before(
    postgres18: EmbeddedPostgres, database: Database, lake_folder: LakeFolder, sid: str | None
) -> None:
    other = create_database(postgres18)
    month(database, 1, range(100, 120))
    names = [month(other, number, range(number * 100, number * 100 + 20)) for number in (2, 3)]
    with Pipeline(lake_folder.config(group({sid: database}, MAP)), lake_folder) as pipeline:
        wait_until(lambda: members(pipeline).get("events_1") is State.STREAMING, "it streams")
    with Pipeline(lake_folder.config(group({sid: other}, MAP, "store")), lake_folder) as pipeline:
        wait_until(lambda: list(members(pipeline).values()) == [State.ERROR] * 2, "they stop")
        assert all("drop the table shop.events from the lake" in error for error in pipeline.errors())
        pipeline.assert_equal("events", every(database, "events_1", sid=sid))
    oracle.open_catalog(lake_folder.pyiceberg, catalog=lake_folder.catalog).drop_table("shop.events")
    with Pipeline(lake_folder.config(group({sid: other}, MAP, "store")), lake_folder) as pipeline:
        wait_until(lambda: list(members(pipeline).values()) == [State.STREAMING] * 2, "they stream")
        pipeline.assert_equal("events", every(other, *names, sid=sid))
    drop_database(other)


def test_an_odd_member_is_in_error_alone(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    run(database, "CREATE TABLE events_1 (id int PRIMARY KEY, n int)", "INSERT INTO events_1 VALUES (1, 1)")
    run(database, "CREATE TABLE events_2 (id int PRIMARY KEY, n int, more text)",
        "INSERT INTO events_2 VALUES (2, 2, 'b')")  # fmt: skip
    with Pipeline(lake_folder.config(group({"eu": database}, MAP)), lake_folder) as pipeline:
        wait_until(lambda: len(members(pipeline)) == 2, "both are known")
        pipeline.wait_streaming()
        run(database, "CREATE TABLE events_3 (id int PRIMARY KEY, n date)", "CREATE TABLE events_4 (id int, n int)")
        wait_until(lambda: members(pipeline).get("events_4") is State.ERROR, "no key")
        wait_until(lambda: members(pipeline).get("events_3") is State.ERROR, "another type")
        assert any("table public.events_3" in error for error in pipeline.errors())
        assert members(pipeline)["events_1"] is members(pipeline)["events_2"] is State.STREAMING
        ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        wait_until(lambda: pipeline.app.progress.confirmable("shop_eu") >= now, "they hold nobody up")
        run(database, "INSERT INTO events_4 VALUES (1, 1)", "UPDATE events_4 SET n = 2",  # not published: no error
            "UPDATE events_1 SET n = 3", "UPDATE events_2 SET more = 'c'", "DROP TABLE events_3")  # fmt: skip
        run(database, "ALTER TABLE events_4 ADD PRIMARY KEY (id)")
        tell_all(pipeline, "retry")
        wait_until(lambda: members(pipeline).get("events_4") is State.STREAMING, "with a key it is welcome")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, "events_1", "events_2", "events_4"))


@on_a_branch
def test_every_type_and_another_start(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    types = ("append", "changelog", "history")
    for name in types:
        for number in (1, 2):
            table = f"{name}_{number}"
            run(database, f"CREATE TABLE {table} (id int PRIMARY KEY, n int, big text)",
                f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL",
                f"INSERT INTO {table} VALUES ({number}, 0, repeat('x', 9000)), (9, {number}, 'b')")  # fmt: skip
    tables = {name: {"type": name, "partitions_regex": f"{name}_.*"} for name in types}
    for start in (1, 2):
        with Pipeline(lake_folder.config(group({"eu": database}, tables)), lake_folder) as pipeline:
            wait_until(lambda: len(members(pipeline)) == 6, "all are known")
            pipeline.wait_streaming()
            for name in types:
                run(database, f"UPDATE {name}_1 SET n = n + 1", f"UPDATE {name}_2 SET n = n + 1 WHERE id = 9")
                if start == 2:
                    run(database, f"TRUNCATE {name}_1")
            pipeline.wait_applied(database)
            found = {name: shown(pipeline, name) for name in types}
        # An index that was lost is read from the files, whose names say whose rows they hold.
        shutil.rmtree(lake_folder.folder / "state" / "index")
    of_one = [(1, 1), (1, 2), (9, 2), (9, 3)]
    assert found["append"] == sorted([(1, 0), (2, 0), (9, 1), (9, 2), (9, 3), (9, 4), *of_one])
    assert len(found["changelog"]) == 11  # with the row of the TRUNCATE
    assert found["history"] == [(2, 0), (9, 4)]  # what is open


def shown(pipeline: Pipeline, target: str) -> list[tuple]:
    rows = oracle.lake_rows_pyiceberg(pipeline.folder.pyiceberg, f"shop.{target}", catalog=pipeline.folder.catalog)
    place = rows.columns.index
    forever = max(row[place("kvsz_end")] for row in rows.rows) if target == "history" else None
    found = []
    for row in rows.rows.elements():
        if target == "history" and (row[place("kvsz_end")] != forever):
            continue
        found.append((row[place("id")], row[place("n")]))
    assert all(row[place("big")] in ("b", None) or len(row[place("big")]) == 9000 for row in rows.rows)
    return found if target == "changelog" else sorted(found)


# Slow: test_tenants.py has the same verbs by sid.
@pytest.mark.slow
def test_the_verbs_know_members(database: Database, lake_folder: LakeFolder, quick: None) -> None:
    config = lake_folder.config(group({"eu": database}, MAP))
    (finding,) = [one for one in check.findings(config) if one.check == "members"]
    assert (finding.value, finding.ok, finding.is_blocking) == ("no table yet", False, False)
    month(database, 1, range(10))
    month(database, 2, range(10))
    assert {str(one.table) for one in check.findings(config) if one.table} == {"public.events_1", "public.events_2"}
    (planned,) = plan.plans(config)
    assert [(one.table, one.target, one.action) for one in planned.tables] == [
        ("public.events_1", "shop.events", "copy"), ("public.events_2", "shop.events", "copy"),
    ]  # fmt: skip
    Path(config.pipeline.state).mkdir()  # as an earlier run leaves it, or there is nobody to tell
    offline.command(config, "pause", table="events", sid=None)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: list(members(pipeline).values()) == [State.PAUSED] * 2, "both are paused")
        tell_all(pipeline, "resume")
        wait_until(lambda: len(members(pipeline)) == 2, "both are known")
        pipeline.wait_streaming()
        run(database, "DELETE FROM events_1 WHERE id < 5")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, "events_1", "events_2"))
        lake_folder.session.sql(f"DELETE FROM {lake_folder.catalog}.shop.events WHERE id = 1")
        found = verify.reports(config, session=lake_folder.session, is_fixing=True)
        told = [(one.table, one.source_rows, one.missing, one.mended, one.error) for one in found]
        assert told == [("public.events_1", 5, 0, 0, ""), ("public.events_2", 10, 1, 1, "")]
        run(database, "UPDATE events_2 SET n = 100 WHERE id = 1")
        pipeline.wait_applied(database)
        pipeline.assert_equal("events", every(database, "events_1", "events_2"))
        lines = generate(pipeline)
        assert (
            'kuvasz_table_state{source="shop_eu",table="shop.events/public.events_1",state="streaming"} 1.0' in lines
        )
    (planned,) = plan.plans(config)
    assert [one.action for one in planned.tables] == ["follow", "follow"]
    assert not planned.is_due


def generate(pipeline: Pipeline) -> list[str]:
    app = pipeline.app
    return Metrics(MetricsScope.PER_SOURCE).render(Observer(app).snapshot()).decode().splitlines()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_in_the_copy_of_a_newcomer(database: Database, new_process: Callable[..., Process]) -> None:
    month(database, 1, range(100))
    process = new_process(group({"eu": database}, MAP))
    process.start(failpoints="copy_range_done:kill:2")
    process.wait_event("copied")
    month(database, 2, range(100, 200), "UPDATE events_1 SET n = -1")
    process.wait_killed()
    run(database, "UPDATE events_2 SET n = -2 WHERE id < 150", "DELETE FROM events_1 WHERE id = 7",
        "INSERT INTO events_2 VALUES (7, 'moved', 7)")  # fmt: skip
    process.start("--until-caught-up")
    assert process.wait() == 0, process.report()
    process.assert_equal("events", every(database, "events_1", "events_2"))
