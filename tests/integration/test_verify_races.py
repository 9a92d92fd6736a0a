"""`kuvasz verify --fix` beside whatever else changes a lake table while it is compared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kuvasz.verbs import verify
from kuvasz.verify.verification import Verification
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database
from tests.support.verify_bench import Bench, filled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.usefixtures("soon_stopped")]


def before_each(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Have something happen each time before a verify takes a step."""
    take = getattr(Verification, step)

    def late(self: Verification, *arguments: Any) -> Any:
        act()
        return take(self, *arguments)

    monkeypatch.setattr(Verification, step, late)


def once_before(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Have something happen once, before a verify takes a step."""
    acts = [act]
    before_each(monkeypatch, step, lambda: acts.pop()() if acts else None)


@contextlib.contextmanager
def streamed(database: Database, lake_folder: LakeFolder) -> Iterator[tuple[Bench, Pipeline]]:
    """Have a filled table streamed, and verify beside it."""
    bench = filled(database, lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        yield bench, pipeline


@pytest.mark.parametrize("step", [pytest.param("_mend", marks=pytest.mark.slow), "_commit"])
def test_a_missing_row_that_is_deleted_meanwhile_does_not_come_back(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with streamed(database, lake_folder) as (bench, pipeline):
        bench.sql("DELETE FROM LAKE.items WHERE id IN (11, 12)")

        def delete() -> None:
            database.execute("DELETE FROM items WHERE id = 11")
            pipeline.wait_applied(database)

        once_before(monkeypatch, step, delete)
        (report,) = bench.verify(is_fixing=True)
        assert report.left == 0
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.slow
def test_rows_that_were_moved_since_they_were_compared_are_mended_where_they_are_now(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files come and are merged so often that what was compared is always elsewhere by then."""
    with streamed(database, lake_folder) as (bench, pipeline):
        bench.sql("UPDATE LAKE.items SET name = 'other' WHERE id = 12")
        bench.sql("INSERT INTO LAKE.items SELECT 999999, n, name FROM LAKE.items WHERE id = 13")
        bench.sql("INSERT INTO LAKE.items SELECT * FROM LAKE.items WHERE id = 14")
        merged = 0

        def merge() -> None:
            nonlocal merged
            merged += 1
            database.execute("INSERT INTO items VALUES (%s, 0, 'more')", [10_000 + merged])
            pipeline.wait_applied(database)
            pipeline.app.lake.maintenance.run("shop.items", full=True)

        before_each(monkeypatch, "_mend", merge)
        (report,) = bench.verify(is_fixing=True)
        assert merged == 1, "it was compared once"
        assert (report.mended, report.left) == (3, 0)
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


#: A row that is missing, and one that is wrong in a file with one that is right: files of wrong rows alone would go.
MISSING = "DELETE FROM LAKE.items WHERE id = 11"
CHANGED = "UPDATE LAKE.items SET n = CASE id WHEN 12 THEN 77 ELSE n END WHERE id IN (12, 13)"


@pytest.mark.parametrize(
    ("by", "damage"),
    [*(pytest.param("verify", one, marks=pytest.mark.slow) for one in (MISSING, CHANGED)), ("resync", MISSING)],
)
def test_what_another_has_mended_meanwhile_is_not_mended_twice(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, by: str, damage: str
) -> None:
    with streamed(database, lake_folder) as (bench, pipeline):
        bench.sql(damage)

        def mend() -> None:
            if by == "verify":
                bench.verify(is_fixing=True)
            else:
                ((source, _),) = pipeline.states()
                copies = pipeline.app.states.get("shop.items", source).copies
                pipeline.tell("resync", "shop.items", source)
                wait_until(
                    lambda: pipeline.app.states.get("shop.items", source).copies > copies, "it is copied again"
                )
                pipeline.wait_streaming()
                pipeline.wait_applied(database)

        once_before(monkeypatch, "_mend", mend)
        (report,) = bench.verify(is_fixing=True)
        assert report.left == 0
        pipeline.wait_applied(database)
        pipeline.assert_equal("items", source_rows(database.url, "items"))


@pytest.mark.parametrize("is_stopped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_missing_row_does_not_come_back_that_a_kuvasz_deletes_which_is_started_meanwhile(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    """The DELETE of a row that the lake lacks makes no snapshot, so nothing keeps the row from being committed."""
    bench = filled(database, lake_folder)
    with Pipeline(bench.config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
    bench.sql("DELETE FROM LAKE.items WHERE id IN (11, 12)")
    again = Pipeline(bench.config, lake_folder)

    def start() -> None:
        database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE NOT temporary")
        again.__enter__()
        again.wait_streaming()
        database.execute("DELETE FROM items WHERE id = 11")
        again.wait_applied(database)
        if is_stopped:
            again.stop()

    once_before(monkeypatch, "_window" if is_stopped else "_commit", start)
    try:
        (report,) = verify.reports(bench.config, session=lake_folder.session, is_fixing=True)
        assert report.error
        assert report.hint in {"verify again", "run it again"}
        (later,) = bench.verify(is_fixing=True)
        assert (later.differences, later.left) == (1, 0)
        (later,) = bench.verify()
        assert later.differences == 0
    finally:
        again.stop()


@pytest.mark.parametrize("step", [pytest.param("_aligned", marks=pytest.mark.slow), "_commit"])
def test_nothing_is_mended_by_a_map_that_has_changed_meanwhile(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Else the lake would get back what is masked by now, or lose what another filter lets in."""
    with streamed(database, lake_folder) as (bench, pipeline):
        bench.sql("DELETE FROM LAKE.items WHERE id = 11")
        tables = {"items": {"mask": {"name": "redact"}, "filter": "id <> 11"}}
        config = lake_folder.config(group({None: database}, tables))

        async def take_over() -> None:
            app = pipeline.app
            await asyncio.to_thread(app.patterns.tell, config)
            app.take_over(app.difference(config))

        def change_map() -> None:
            pipeline.call(take_over())
            wait_until(lambda: not pipeline.app.is_changing, "the new map is in use")
            pipeline.wait_streaming()
            wait_until(lambda: names() == {"***"}, "the table is copied again")

        def names() -> set[str | None]:
            found = lake_folder.session.sql(f"SELECT DISTINCT name FROM {lake_folder.catalog}.shop.items")
            return {row.name for row in found.collect()}

        once_before(monkeypatch, step, change_map)
        (report,) = verify.reports(bench.config, session=lake_folder.session, is_fixing=True)
        lake_folder.session.sql(f"REFRESH TABLE {lake_folder.catalog}.shop.items")
        assert (names(), report.mended) == ({"***"}, 0)
        assert lake_folder.session.sql(f"SELECT 1 FROM {lake_folder.catalog}.shop.items WHERE id = 11").count() == 0
        assert "are other ones than those" in report.error or "made by another map since" in report.error
