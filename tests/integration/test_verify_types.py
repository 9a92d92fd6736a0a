"""`kuvasz verify` of every type of table: what is planted is found, nothing else is, and what can be is mended."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kuvasz.verbs import verify
from kuvasz.verify.report import Report
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.verify_bench import Bench, under_load

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]

ROWS = "SELECT i, i % 5, CASE WHEN i % 7 = 0 THEN '' ELSE 'item ' || i END FROM generate_series({}, {}) i"
KEYED = "(id bigint PRIMARY KEY, n int, name text)"
BARE = "(id bigint, n int, name text)"

#: Table -> how the map has it; all of them are of one shape at the source.
TABLES: Mapping[str, dict | None] = {
    "shaped": {"filter": "n <> 4", "set": {"id": "id", "n": "n * 10", "name": "upper(name)", "token": "name"},
               "mask": {"token": "hmac"}},
    "bare": None,
    "bare_shaped": {"filter": "n <> 4", "set": {"n": "n", "name": "upper(name)"}},
    "parts": {"partitions_regex": "parts_[0-9]+"},
    "past": {"type": "history"},
    "past_shaped": {"type": "history", "filter": "n <> 4", "set": {"id": "id", "n": "n + 1", "name": "lower(name)"}},
    "grown": {"type": "append"},
    "grown_sorted": {"type": "append", "sort_by": ["n"]},
    "grown_bare": {"type": "append"},
    "grown_inserts": {"type": "append"},
    "logged": {"type": "changelog"},
    "logged_bare": {"type": "changelog"},
}  # fmt: skip
INSERTS_ONLY = "grown_inserts"


def tables_at_source() -> list[str]:
    return [name for name in TABLES if name != "parts"] + ["parts_1", "parts_2"]


def make(database: Database) -> None:
    for name in tables_at_source():
        database.execute(f"CREATE TABLE {name} {BARE if 'bare' in name or name == INSERTS_ONLY else KEYED}")
        if "bare" in name:
            database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {name} {ROWS.format(1, 60)}")
        if "bare" in name:
            database.execute(f"INSERT INTO {name} {ROWS.format(1, 10)}")


def churn(database: Database, start: int = 100) -> None:
    """Change all tables in all the ways they allow."""
    for name in tables_at_source():
        database.execute(f"INSERT INTO {name} {ROWS.format(start, start + 30)}")
        if name == INSERTS_ONLY:
            continue
        with database.connect() as session:
            session.execute(f"UPDATE {name} SET n = n + 1 WHERE id % 3 = 0")
            session.execute(f"DELETE FROM {name} WHERE id IN ({start + 1}, 2)")
            session.execute(f"UPDATE {name} SET id = -id WHERE id = {start + 2}")
            session.execute(f"INSERT INTO {name} VALUES ({start + 1}, 3, NULL)")
        database.execute(f"UPDATE {name} SET name = NULL WHERE id = {start + 3}")


def by_target(reports: list[Report]) -> dict[str, Report]:
    return {report.table.removeprefix("public.") if report.is_member else report.target.partition(".")[2]: report
            for report in reports}  # fmt: skip


def kinds(report: Report) -> dict[str, int]:
    names = ("missing", "extra", "changed", "doubled", "faults")
    return {name: getattr(report, name) for name in names if getattr(report, name)}


COMPARED = {
    "shaped": "all rows", "bare": "all rows, by hash and count", "bare_shaped": "all rows, by hash and count",
    "parts_1": "all rows", "parts_2": "all rows",
    "past": "open versions; all versions: no overlap, no gap",
    "past_shaped": "open versions; all versions: no overlap, no gap",
    "grown": "the newest row of each key at the source",
    "grown_sorted": "each key's row at the source is among its rows",
    "grown_bare": "each row at the source is there",
    "grown_inserts": "counts: at least as many rows as the source",
    "logged": "the last event of each key; no event twice",
    "logged_bare": "each row at the source is there; counts",
}  # fmt: skip


NOTHING: dict[str, dict[str, int]] = {name: {} for name in COMPARED}


def test_planted_differences_of_every_type(database: Database, lake_folder: LakeFolder) -> None:
    make(database)
    config = lake_folder.config(group({"eu": database}, TABLES), mask_secret="a secret of sixteen")
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        churn(database)
        pipeline.wait_applied(database)
        found = by_target(bench.verify())
        assert {name: kinds(report) for name, report in found.items()} == NOTHING
        assert {name: report.compared for name, report in found.items()} == COMPARED
        assert not [report for report in found.values() if report.skipped or report.undecided or report.left]
    plant(bench)
    found = by_target(bench.verify())
    assert {name: kinds(report) for name, report in found.items()} == PLANTED
    assert verify.exit_code(list(found.values())) == 4
    told = {name: {(entry.kind, entry.key[0]) for entry in report.keys} for name, report in found.items()}
    assert told["shaped"] == {
        ("missing", "11"), ("changed", "12"), ("extra", "999999"), ("doubled", "15"), ("changed", "13"),
        ("changed", "21"),
    }  # fmt: skip
    assert told["past"] >= {("extra", "2"), ("overlap", "15"), ("gap", "18")}
    mended = by_target(bench.verify(is_fixing=True))
    assert {name: report.left for name, report in mended.items()} == LEFT
    assert "kuvasz resync --table shop.grown" in mended["grown"].why_left
    after = by_target(bench.verify())
    assert {name: report.left for name, report in after.items()} == LEFT
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        churn(database, 200)
        pipeline.wait_applied(database)
        found = by_target(bench.verify())
        assert {name: report.left for name, report in found.items() if name in MENDED} == dict.fromkeys(MENDED, 0)
        pipeline.assert_equal("bare", source_rows(database.url, "bare", sid="eu"))


#: Keys that are left after `--fix`.
LEFT = {
    "shaped": 0, "bare": 0, "bare_shaped": 0, "parts_1": 0, "parts_2": 0, "past": 3, "past_shaped": 0,
    "grown": 3, "grown_sorted": 2, "grown_bare": 2, "grown_inserts": 11, "logged": 6, "logged_bare": 1,
}  # fmt: skip
MENDED = [name for name, left in LEFT.items() if not left]

PLANTED = {
    "shaped": {"missing": 1, "changed": 3, "extra": 1, "doubled": 1},
    "bare": {"missing": 2, "extra": 2, "doubled": 1},
    "bare_shaped": {"missing": 1},
    "parts_1": {"missing": 1},
    "parts_2": {"missing": 1},
    "past": {"missing": 1, "changed": 2, "extra": 1, "doubled": 1, "faults": 2},
    "past_shaped": {"missing": 1},
    "grown": {"missing": 1, "changed": 2},
    "grown_sorted": {"missing": 1, "changed": 1},
    "grown_bare": {"missing": 2},
    "grown_inserts": {"missing": 11},
    "logged": {"missing": 2, "changed": 1, "extra": 2, "doubled": 1},
    "logged_bare": {"extra": 1},
}


def plant(bench: Bench) -> None:
    """Plant differences of every kind with Spark; key 14, which has an empty name, is left for NULL."""
    at = "sid = 'eu' AND id"
    bench.sql(f"DELETE FROM LAKE.shaped WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.shaped SET name = 'other' WHERE {at} = 12")
    bench.sql(f"UPDATE LAKE.shaped SET token = 'another' WHERE {at} = 13")
    bench.sql(f"UPDATE LAKE.shaped SET name = NULL WHERE {at} = 21")
    bench.sql(f"INSERT INTO LAKE.shaped SELECT sid, 999999, n, name, token FROM LAKE.shaped WHERE {at} = 10")
    bench.sql(f"INSERT INTO LAKE.shaped SELECT * FROM LAKE.shaped WHERE {at} = 15")

    bench.sql(f"DELETE FROM LAKE.bare WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.bare SET name = NULL WHERE {at} = 14")  # one missing, one extra
    bench.sql(f"INSERT INTO LAKE.bare SELECT sid, 999999, n, name FROM LAKE.bare WHERE {at} = 16")  # extra
    bench.sql(f"INSERT INTO LAKE.bare SELECT * FROM LAKE.bare WHERE {at} = 17")  # doubled
    bench.sql("DELETE FROM LAKE.bare_shaped WHERE sid = 'eu' AND name = 'ITEM 20'")
    bench.sql(f"DELETE FROM LAKE.parts WHERE {at} = 11")  # of both members

    open_ = "kvsz_end = timestamp'9999-01-01 00:00:00Z'"
    bench.sql(f"DELETE FROM LAKE.past WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.past SET name = 'other' WHERE {at} = 13 AND {open_}")  # changed
    bench.sql(f"UPDATE LAKE.past SET name = NULL WHERE {at} = 14 AND {open_}")  # changed
    # Not closed when its row was deleted.
    bench.sql(f"UPDATE LAKE.past SET kvsz_end = timestamp'9999-01-01 00:00:00Z', kvsz_deleted = false WHERE {at} = 2")
    bench.sql(f"INSERT INTO LAKE.past SELECT * FROM LAKE.past WHERE {at} = 15 AND {open_}")  # doubled, and overlaps
    bench.sql(f"UPDATE LAKE.past SET kvsz_start = kvsz_start + interval 1 second WHERE {at} = 18 AND {open_}")  # gap
    bench.sql(f"DELETE FROM LAKE.past_shaped WHERE {at} = 11")

    bench.sql(f"DELETE FROM LAKE.grown WHERE {at} = 11")  # missing
    bench.sql(f"DELETE FROM LAKE.grown WHERE {at} = 12 AND n = 3")  # the newer one of two
    bench.sql(f"UPDATE LAKE.grown SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_sorted WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.grown_sorted SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_bare WHERE {at} = 11")
    bench.sql(f"UPDATE LAKE.grown_bare SET name = NULL WHERE {at} = 14")
    bench.sql(f"DELETE FROM LAKE.grown_inserts WHERE {at} BETWEEN 11 AND 21")

    bench.sql(f"DELETE FROM LAKE.logged WHERE {at} = 11")  # missing
    bench.sql(f"UPDATE LAKE.logged SET name = NULL WHERE {at} = 14")  # changed
    bench.sql(f"DELETE FROM LAKE.logged WHERE {at} = 2 AND _op = 'D'")  # not ended
    bench.sql(f"UPDATE LAKE.logged SET id = 999999 WHERE {at} = -102 OR id = 999999")  # a key nobody has
    bench.sql(f"INSERT INTO LAKE.logged SELECT * FROM LAKE.logged WHERE {at} = 16")  # an event twice
    bench.sql(f"INSERT INTO LAKE.logged_bare SELECT * FROM LAKE.logged_bare WHERE {at} = 16")  # one too many


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_under_load_no_type_has_differences(database: Database, lake_folder: LakeFolder) -> None:
    make(database)
    tables = {
        name: TABLES[name] for name in ("shaped", "bare", "past", "grown", "grown_bare", "logged", "logged_bare")
    }
    config = lake_folder.config(
        group({"eu": database}, tables), mask_secret="a secret of sixteen", commit_interval="300ms"
    )
    bench = Bench(config, lake_folder)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        stop, thread = under_load(
            database,
            lambda n: [
                statement
                for name in tables
                for statement in (
                    f"UPDATE {name} SET n = n + 1 WHERE id IN (1, {n % 60})",
                    f"INSERT INTO {name} VALUES ({1000 + n}, {n % 9}, 'new')",
                    f"DELETE FROM {name} WHERE id = {1000 + n - 20}",
                    f"UPDATE {name} SET id = {-n} WHERE id = {-(n - 1) if n > 1 else 3}",
                )
            ],
        )
        try:
            found = by_target(bench.verify())
        finally:
            stop.set()
            thread.join()
        pipeline.wait_applied(database)
        # Rows without a key are counted through the stream's window: the rows themselves tell which of both is off.
        pipeline.assert_equal("bare", source_rows(database.url, "bare", sid="eu"), key=())
        assert {name: kinds(report) for name, report in found.items()} == {name: {} for name in tables}
        assert {name: report.undecided for name, report in found.items()} == dict.fromkeys(tables, 0)
