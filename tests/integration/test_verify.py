"""`kuvasz verify` on real servers, Spark and Iceberg: what was planted is found, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kuvasz.fold.difference import Difference
from kuvasz.lake.compare.comparison import Comparison
from kuvasz.verbs import verify
from kuvasz.verify.report import Report
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.verify_bench import FILL, ITEMS, Bench, filled, under_load
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]


@pytest.fixture
def other(postgres16) -> Iterator[Database]:
    """A database on another server."""
    created = create_database(postgres16)
    yield created
    drop_database(created)


DAMAGE = {
    ("missing", ("11",)), ("changed", ("12",)), ("extra", ("999999",)), ("doubled", ("14",)), ("changed", ("15",)),
}  # fmt: skip


def keys(report: Report) -> set[tuple[str, tuple[str, ...]]]:
    return {(entry.kind, entry.key) for entry in report.keys}


@pytest.mark.parametrize(
    "is_running", [pytest.param(True, id="running"), pytest.param(False, id="stopped", marks=pytest.mark.slow)]
)
def test_planted_differences_of_one_sid_are_found_and_mended(
    database: Database, other: Database, lake_folder: LakeFolder, *, is_running: bool
) -> None:
    for source in (database, other):
        source.execute(ITEMS)
        source.execute(FILL)
    config = lake_folder.config(group({"eu": database, "us": other}, {"items": None}))
    bench = Bench(config, lake_folder)
    pipeline = Pipeline(config, lake_folder)
    with pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = id WHERE id % 7 = 0")
        pipeline.wait_applied(database, other)
        if not is_running:
            pipeline.stop()
        assert [(report.differences, report.source_rows) for report in bench.verify()] == [(0, 3000), (0, 3000)]
        bench.sql("UPDATE LAKE.items SET sid = 'xx' WHERE sid = 'eu' AND id = 16")
        eu, us, strays = bench.verify(table="items")
        assert (keys(eu), us.differences) == ({("missing", ("16",))}, 0)
        assert (strays.target, strays.extra, strays.left) == ("shop.items", 1, 1)
        assert "shop.items of nobody: 1 keys differ (1 extra)" in verify.render([strays])
        bench.sql("UPDATE LAKE.items SET sid = 'eu' WHERE sid = 'xx'")
        bench.damage()
        eu, us = bench.verify(table="items")
        assert keys(eu) == DAMAGE
        assert (eu.missing, eu.extra, eu.changed, eu.doubled, eu.left) == (1, 1, 2, 1, 5)
        assert us.differences == 0
        assert verify.exit_code([eu, us]) == 4
        assert "  doubled  id=14\n" in verify.render([eu, us])
        (mended,) = bench.verify(table="shop.items", sid="eu", is_fixing=True)
        assert (mended.differences, mended.mended, mended.left) == (5, 5, 0)
        assert verify.exit_code([mended]) == 0
        assert [report.differences for report in bench.verify()] == [0, 0]
        again = pipeline if is_running else Pipeline(config, lake_folder)
        with again if again is not pipeline else contextlib.nullcontext():
            again.wait_streaming()
            database.execute("UPDATE items SET n = -1 WHERE id BETWEEN 10 AND 16")
            database.execute("DELETE FROM items WHERE id = 12")
            again.wait_applied(database)
            rows = source_rows(database.url, "items", sid="eu"), source_rows(other.url, "items", sid="us")
            again.assert_equal("items", *rows, key=("sid", "id"))


def test_what_a_stopped_kuvasz_has_still_to_apply_is_no_difference(
    database: Database, lake_folder: LakeFolder
) -> None:
    bench = filled(database, lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    database.execute("UPDATE items SET n = 1 WHERE id <= 10")
    database.execute("DELETE FROM items WHERE id BETWEEN 11 AND 15")
    database.execute("INSERT INTO items VALUES (-1, 0, 'new')")
    database.execute("UPDATE items SET id = -2 WHERE id = 20")
    bench.sql("DELETE FROM LAKE.items WHERE id = 30")
    bench.sql("UPDATE LAKE.items SET name = 'x' WHERE id = 1")  # heals with the change that is to come
    slot = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE NOT temporary"
    before = database.execute(slot)
    (report,) = bench.verify()
    assert keys(report) == {("missing", ("30",))}
    assert report.waiting == 10 + 5 + 1 + 2
    assert database.execute(slot) == before
    (report,) = bench.verify(is_fixing=True)
    assert (report.mended, report.left) == (1, 0)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


def test_rows_of_every_type_are_equal_and_every_column_counts(database: Database, lake_folder: LakeFolder) -> None:
    columns = {
        "n2": ("int2", "1"), "f4": ("float4", "'-0'"), "f8": ("float8", "'NaN'"), "d": ("numeric(30,7)", "-1.5"),
        "dt": ("numeric", "1e40"), "b": ("bool", "true"), "t": ("text", "e'a\\tb\\\\'"), "y": ("bytea", "'\\x00ff'"),
        "dd": ("date", "'0044-03-15'"), "ts": ("timestamp", "'2024-02-29 12:00:00.000001'"),
        "tz": ("timestamptz", "'2024-02-29 12:00:00+05'"), "u": ("uuid", "gen_random_uuid()"),
        "j": ("jsonb", "'{\"a\": [1, null]}'"), "a": ("int[]", "'{1,NULL}'"), "at": ("text[]", "'{}'"),
        "an": ("numeric(10,2)[]", "'{1.50,NULL}'"),
        "i": ("interval", "'1 year -3 days'"), "r": ("int4range", "'[1,5)'"),
    }  # fmt: skip
    definitions = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    database.execute(f'CREATE TABLE "All Types" (k1 int, k2 text, {definitions}, PRIMARY KEY (k1, k2))')
    values = ", ".join(value for _, value in columns.values())
    database.execute(f"INSERT INTO \"All Types\" SELECT i, 'key ' || i, {values} FROM generate_series(1, 300) i")
    database.execute('INSERT INTO "All Types" (k1, k2) SELECT i, i FROM generate_series(301, 400) i')
    config = lake_folder.config(group({None: database}, {"All Types": {"target": "every"}}))
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute(
            f"INSERT INTO \"All Types\" SELECT i, 'key ' || i, {values} FROM generate_series(1001, 1100) i"
        )
        database.execute("UPDATE \"All Types\" SET k2 = k2 || 'x' WHERE k1 % 3 = 0")
        pipeline.wait_applied(database)
        (report,) = bench.verify()
        assert (report.differences, report.source_rows, report.lake_rows) == (0, 500, 500)
    for number, name in enumerate(columns, start=1):
        key = number if number % 3 else 100 + number + 1
        bench.sql(f"UPDATE LAKE.every SET {name} = NULL WHERE k1 = {key}")
    (report,) = bench.verify(is_fixing=True)
    assert report.changed == report.mended == report.differences == len(columns)
    (report,) = bench.verify()
    assert report.differences == 0


def test_a_column_that_the_source_dropped_is_no_difference(database: Database, lake_folder: LakeFolder) -> None:
    bench = filled(database, lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("ALTER TABLE items DROP COLUMN name")
        database.execute("UPDATE items SET n = 1 WHERE id <= 10")
        pipeline.wait_applied(database)
        (report,) = bench.verify()
        assert report.differences == 0
    bench.sql("UPDATE LAKE.items SET n = 5 WHERE id = 2000")
    (report,) = bench.verify()
    assert keys(report) == {("changed", ("2000",))}


@pytest.mark.parametrize("is_damaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_said_of_columns_that_were_altered_amid_the_look(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, *, is_damaged: bool
) -> None:
    bench = filled(database, lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    if is_damaged:
        bench.sql("UPDATE LAKE.items SET n = 5 WHERE id = 30")
    compare = Comparison.difference

    def compared(comparison: Comparison) -> Difference:
        found = compare(comparison)
        database.execute("ALTER TABLE items RENAME n TO m; ALTER TABLE items RENAME m TO n")
        return found

    monkeypatch.setattr(Comparison, "difference", compared)
    (report,) = verify.reports(bench.config, session=lake_folder.session, is_fixing=True)
    assert "cannot read public.items as it was: public.items was altered or renamed meanwhile" in report.error
    assert (report.hint, report.mended) == ("verify again", 0)
    monkeypatch.undo()
    (report,) = bench.verify(is_fixing=True)
    assert (report.differences, report.left, report.error) == (int(is_damaged), 0, "")


def test_rows_of_a_partitioned_lake_table_are_mended_in_their_partitions(
    database: Database, lake_folder: LakeFolder
) -> None:
    database.execute(ITEMS)
    database.execute(FILL)
    config = lake_folder.config(group({None: database}, {"items": {"partition_by": ["bucket(4, id)"]}}))
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    bench.sql("DELETE FROM LAKE.items WHERE id BETWEEN 100 AND 200")
    bench.sql("UPDATE LAKE.items SET n = 5 WHERE id BETWEEN 300 AND 310")
    (report,) = bench.verify(is_fixing=True)
    assert (report.missing, report.changed, report.mended, report.left) == (101, 11, 112, 0)
    (report,) = bench.verify()
    assert report.differences == 0
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 6 WHERE id BETWEEN 90 AND 305")
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.slow
def test_under_load_nothing_but_the_planted_is_found_and_mended(database: Database, lake_folder: LakeFolder) -> None:
    bench = filled(database, lake_folder, commit_interval="300ms")
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        # Spark's own writes lose against commits that come three times a second.
        bench.sql("DELETE FROM LAKE.items WHERE id IN (2001, 2002)")
        bench.sql("UPDATE LAKE.items SET n = 77 WHERE id BETWEEN 2003 AND 2010")
        stop, thread = under_load(
            database,
            lambda n: [
                f"UPDATE items SET n = n + 1, name = repeat('hot', {n % 9}) WHERE id IN (1, 2, {n % 1000})",
                f"INSERT INTO items VALUES ({10_000 + n}, {n}, NULL)",
                f"DELETE FROM items WHERE id = {10_000 + n - 50}",
                f"UPDATE items SET id = {-n} WHERE id = {-(n - 1) if n > 1 else 3}",
            ],
        )
        try:
            wait_until(lambda: pipeline.snapshots("items") >= 4, "it streams")
            for _ in range(2):
                (report,) = bench.verify()
                assert (report.missing, report.changed, report.extra, report.doubled) == (2, 8, 0, 0), report
                assert report.undecided == 0
            (report,) = bench.verify(is_fixing=True)
            assert (report.differences, report.mended, report.left) == (10, 10, 0), report
            (report,) = bench.verify()
            assert (report.differences, report.undecided) == (0, 0), report
        finally:
            stop.set()
            thread.join()
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


def test_under_other_names_and_of_every_type_what_is_to_come_is_no_difference(
    database: Database, lake_folder: LakeFolder
) -> None:
    """Messages from before a table was renamed have its name of that time."""
    tables = {"bare": {}, "past": {"type": "history"}, "kept": {"deletes": "soft"}}
    for name in tables:
        key = "" if name == "bare" else "PRIMARY KEY"
        database.execute(f"CREATE TABLE {name} (id bigint {key}, n int)")
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 50) i")
    database.execute("ALTER TABLE bare REPLICA IDENTITY FULL")
    bench = Bench(lake_folder.config(group({None: database}, tables)), lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    for name in tables:
        database.execute(f"INSERT INTO {name} SELECT i, 0 FROM generate_series(101, 110) i")
        database.execute(f"UPDATE {name} SET n = 1 WHERE id = 5")
        database.execute(f"DELETE FROM {name} WHERE id = 6")
        database.execute(f"ALTER TABLE {name} RENAME TO {name}_new")
    found = {report.target: (report.differences, report.waiting) for report in bench.verify(is_fixing=True)}
    assert found == {"shop.bare": (0, 13), "shop.past": (0, 12), "shop.kept": (0, 12)}
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert {report.differences for report in bench.verify()} == {0}
        assert len(pipeline.rows("bare")) == 59
