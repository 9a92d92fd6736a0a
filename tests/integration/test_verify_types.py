"""`kuvasz verify` of every type of table: what is planted is found, nothing else is, and what can be is mended."""

from __future__ import annotations

import pytest

from kuvasz.verbs import verify
from kuvasz.verify.report import Report
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.planted import LEFT, PLANTED, TABLES, churn, make, plant
from tests.support.postgres import Database
from tests.support.verify_bench import Bench, under_load

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]


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


@pytest.mark.slow
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


MENDED = [name for name, left in LEFT.items() if not left]


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
