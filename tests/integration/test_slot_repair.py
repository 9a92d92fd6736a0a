"""`on_slot_lost: repair`: only what differs is written, and an end in the middle is taken up."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kuvasz import failpoints, lsn
from kuvasz.errors import ChangesLost
from kuvasz.lake.compare.comparison import Comparison
from kuvasz.state.tables import State
from tests.support import oracle
from tests.support.failpoints import REPAIRING
from tests.support.lake import LakeFolder, Pipeline, group, on_a_branch
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SLOT = "kuvasz_shop_eu"
ROWS = 30_000
TABLES = {
    "items": None,
    "past": {"type": "history"},
    "events": {"type": "append"},
    "few": {"filter": "id % 2 = 0"},
    "kept": {"type": "history", "filter": "id % 2 = 0"},
    "bare": None,
    "made": {"set": {"id": "id", "twice": "n * 2", "name": "name"}, "mask": {"name": "redact"}},
}
#: Those that are compared.
COMPARED = tuple(table for table in TABLES if table != "events")


def fill(database: Database) -> None:
    for table in TABLES:
        rows = ROWS if table == "items" else 100
        key = "" if table == "bare" else " PRIMARY KEY"
        database.execute(f"CREATE TABLE {table} (id int{key}, n int, name text)")
        if not key:
            database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {table} SELECT i, 0, md5(i::text) FROM generate_series(1, {rows}) i")


def miss(database: Database, *tables: str) -> None:
    for statement in missing(*tables):
        database.execute(statement)


def missing(*tables: str) -> Iterator[str]:
    """Yield changes of every kind: 2 keys changed, 3 gone, 2 new, and 2 more of each by a changed key."""
    for table in tables:
        yield f"UPDATE {table} SET n = 1 WHERE id IN (1, 2)"
        yield f"UPDATE {table} SET n = n WHERE id IN (3, 4)"
        yield f"DELETE FROM {table} WHERE id IN (5, 6, 7)"
        yield f"INSERT INTO {table} SELECT i, 5, 'new' FROM generate_series(100001, 100002) i"
        yield f"UPDATE {table} SET id = id + 200000 WHERE id IN (8, 9)"


DIFFERING = 2 + 3 + 2 + 2 * 2


def lose_slot(database: Database) -> None:
    database.execute(f"SELECT pg_drop_replication_slot('{SLOT}')")


def make_config(folder: LakeFolder, database: Database, *tables: str, policy: str = "repair") -> object:
    (databases,) = group({"eu": database}, {table: TABLES[table] for table in tables or TABLES})
    return folder.config([databases | {"on_slot_lost": policy}])


def gaps(pipeline: Pipeline, table: str) -> list[dict]:
    found = oracle.open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    return json.loads(found.properties["kuvasz.gap.shop_eu"])


def current_summary(pipeline: Pipeline, table: str) -> dict[str, str]:
    """Of the snapshot that repaired a table."""
    found = oracle.open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    (summary,) = [s.summary.additional_properties for s in found.metadata.snapshots if s.summary["kuvasz.repair"]]
    return summary


@on_a_branch
def test_every_table_comes_over_a_lost_slot_in_its_way(database: Database, lake_folder: LakeFolder) -> None:
    fill(database)
    config = make_config(lake_folder, database)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE past SET n = 7 WHERE id < 3")
        pipeline.wait_applied(database)
        before = {table: pipeline.snapshots(table) for table in TABLES}
        at = {table: pipeline.app.lake.positions(f"shop.{table}")["shop_eu"].lsn for table in TABLES}
    miss(database, *TABLES)
    lose_slot(database)
    with Pipeline(config, lake_folder) as pipeline:
        wait_until(lambda: pipeline.states().get(("shop_eu", "shop.events")) is State.ERROR, "events stop")
        for table in COMPARED:
            pipeline.wait_state("shop_eu", f"shop.{table}", State.STREAMING)
            assert pipeline.app.states.get(f"shop.{table}", "shop_eu").copies == 0
        assert_clones(pipeline, database)

        # The clone: one commit, as large as what was missed.
        assert pipeline.snapshots("items") == before["items"] + 1
        summary = current_summary(pipeline, "items")
        assert int(summary["kuvasz.repair"]) == DIFFERING
        assert int(summary["added-records"]) == 2 + 2 + 2
        assert int(summary["added-data-files"]) == 1
        assert "deleted-data-files" not in summary
        assert int(summary["added-files-size"]) < 20_000 < int(summary["total-files-size"]) / 10
        (gap,) = gaps(pipeline, "items")
        assert lsn.parse(gap["from"]) == at["items"] < lsn.parse(gap["to"])

        # The history: versions that changed meanwhile begin at the snapshot's time, and none overlap.
        assert_versions(pipeline, database, gaps(pipeline, "past")[0]["until"])

        assert_few_written(pipeline, database)

        # A history of them keeps its versions.
        (gap,) = gaps(pipeline, "kept")
        rows = versions_of(pipeline, "kept")
        live = sorted((row["id"], row["n"], row["name"]) for row in rows if row["kvsz_end"].year == 9999)
        assert live == sorted(database.execute("SELECT id, n, name FROM kept WHERE id % 2 = 0"))
        assert [row["kvsz_end"] for row in rows if row["id"] == 6] == [datetime.datetime.fromisoformat(gap["until"])]

        # The append table: what it missed is nowhere, so a person has to say that it may go on.
        (error,) = pipeline.errors()
        assert "source shop_eu, table public.events: its changes after" in error
        assert "hint: kuvasz retry --table shop.events goes on with the gap" in error
        state = pipeline.app.states.get("shop.events", "shop_eu")
        assert isinstance(state.error, ChangesLost)
        rows = len(pipeline.rows("events"))
        pipeline.tell("retry", "shop.events", "shop_eu")
        pipeline.wait_streaming()
        assert len(pipeline.rows("events")) == rows
        assert gaps(pipeline, "events")[0]["to"]

        for table in TABLES:
            database.execute(f"INSERT INTO {table} VALUES (7, 7, 'afterwards')")
            database.execute(f"UPDATE {table} SET n = n + 1 WHERE id IN (1, 12, 200008)")
        pipeline.wait_applied(database)
        assert_clones(pipeline, database)
        assert_versions(pipeline, database, gaps(pipeline, "past")[0]["until"])
        assert len(pipeline.rows("events")) == rows + 1 + 3
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        assert pipeline.app.states.get("shop.items", "shop_eu").copies == 0


def assert_clones(pipeline: Pipeline, database: Database) -> None:
    for table in ("items", "few", "bare"):
        where = "id % 2 = 0" if table == "few" else "true"
        pipeline.assert_equal(table, source_rows(database.url, table, sid="eu", where=where))


def assert_few_written(pipeline: Pipeline, database: Database) -> None:
    """Of rows that expressions make, and of rows without a key, no more is written than differs."""
    assert int(current_summary(pipeline, "few")["kuvasz.repair"]) == 1 + 1 + 1 + 2
    summary = current_summary(pipeline, "bare")
    assert (int(summary["kuvasz.repair"]), int(summary["added-records"])) == (2 * 2 + 3 + 2 + 2 * 2, 2 + 2 + 2)
    database.execute("CREATE VIEW seen AS SELECT id, n * 2 AS twice, text '***' AS name FROM made")
    pipeline.assert_equal("made", source_rows(database.url, "seen", sid="eu"))
    assert int(current_summary(pipeline, "made")["kuvasz.repair"]) == DIFFERING


def versions_of(pipeline: Pipeline, table: str) -> list[dict]:
    found = oracle.open_table(pipeline.folder.pyiceberg, f"shop.{table}", catalog=pipeline.folder.catalog)
    return found.scan().to_arrow().to_pylist()


def assert_versions(pipeline: Pipeline, database: Database, until: str | None = None) -> None:
    """The history's open versions are the source's rows, none overlap, and those that were missed begin at a time."""
    rows = versions_of(pipeline, "past")
    live = sorted((row["id"], row["n"], row["name"]) for row in rows if row["kvsz_end"].year == 9999)
    assert live == sorted(database.execute("SELECT id, n, name FROM past"))
    versions: dict[int, list] = {}
    for row in sorted(rows, key=lambda row: row["kvsz_start"]):
        versions.setdefault(row["id"], []).append(row)
    for mine in versions.values():
        for earlier, later in itertools.pairwise(mine):
            assert earlier["kvsz_end"] <= later["kvsz_start"]
        assert all(row["kvsz_start"] < row["kvsz_end"] for row in mine)
    if until is None:
        return
    moment = datetime.datetime.fromisoformat(until)
    assert [row["kvsz_start"] for row in versions[100001]] == [moment]
    assert (versions[5][-1]["kvsz_end"], versions[5][-1]["kvsz_deleted"]) == (moment, True)
    assert (versions[2][-2]["n"], versions[2][-2]["kvsz_end"]) == (7, moment)
    assert len(versions[3]) == 1, "it is as it was"


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def arm(points: str) -> None:
        monkeypatch.setattr(failpoints, "_armed", failpoints._parse(points))

    return arm


def test_failures_in_the_middle_are_taken_up_and_changed_columns_followed(
    database: Database, lake_folder: LakeFolder, armed: Callable[[str], None]
) -> None:
    fill(database)
    config = make_config(lake_folder, database, "items", "past")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        armed("position_forgotten:error:2,slot_dropped:error,slot_created:error,snapshot_taken:error,"
              "gap_compared:error,after_commit:error,before_commit:error:2")  # fmt: skip
        # Under its eyes: the reader finds out when it comes back.
        wait_until(lambda: missed(database, "items", "past"), "the slot can be dropped")
        wait_until(lambda: all(entry.passes <= 0 for entry in failpoints._armed), f"all points: {pipeline.errors()}")
        wait_until(lambda: not pipeline.errors(), "it is cured")
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 9 WHERE id = 30")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        assert int(current_summary(pipeline, "items")["added-records"]) <= 7
        assert_versions(pipeline, database)


def test_no_value_is_repaired_from_what_took_a_name_meanwhile(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, n int, m int)")
    database.execute("INSERT INTO items SELECT i, i, -i FROM generate_series(1, 100) i")
    config = make_config(lake_folder, database, "items")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    database.execute("UPDATE items SET n = 1000 WHERE id < 9")
    lose_slot(database)
    fetch, fetched = Comparison.fetch, list[bool]()

    def swapped(*arguments: Any) -> Any:
        if not fetched:
            fetched.append(True)
            for before, after in (("n", "x"), ("m", "n"), ("x", "m")):
                database.execute(f"ALTER TABLE items RENAME {before} TO {after}")
        return fetch(*arguments)

    monkeypatch.setattr(Comparison, "fetch", swapped)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        assert pipeline.app.states.get("shop.items", "shop_eu").copies == 0, "only what differs was written"


def missed(database: Database, *tables: str) -> bool:
    """Drop the slot within the transaction that changes rows and adds a column: it is sure to be missed."""
    with database.connect() as connection:
        for statement in missing(*tables):
            connection.execute(statement)
        connection.execute("ALTER TABLE items ADD added text")
        connection.execute("UPDATE items SET added = 'a' WHERE id = 20")
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [SLOT])
        except psycopg.errors.ObjectInUse:
            connection.rollback()
            connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_the_middle_it_goes_on(database: Database, new_process: Callable[..., Process]) -> None:
    fill(database)
    (databases,) = group({"eu": database}, {table: TABLES[table] for table in ("items", "past")})
    process = new_process([databases | {"on_slot_lost": "repair"}])
    for number, point in enumerate(("", *REPAIRING, "before_commit", "after_commit")):
        if point:
            database.execute(f"UPDATE items SET n = n + 1 WHERE id % 9 = {number}")
            database.execute(f"UPDATE past SET n = n + 1 WHERE id % 9 = {number}")
            lose_slot(database)
            process.start(failpoints=f"{point}:kill")
            process.wait_killed()
            database.execute("UPDATE items SET n = n + 1 WHERE id = 40")
        process.start("--until-caught-up")
        assert process.wait() == 0, process.report()
        process.assert_equal("items", source_rows(database.url, "items", sid="eu"))
        assert not point or not process.found("copied"), "only what differs was"
