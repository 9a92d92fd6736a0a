"""`kuvasz verify` beside tables that do not follow: they are told at once, and keep nobody waiting for long."""

from __future__ import annotations

import pytest

from kuvasz.state.tables import State
from kuvasz.sync.context import alignment
from kuvasz.verbs import verify
from kuvasz.verify import verification
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import wait_let_go

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("good", "bad", "other", "more")
STUCK_S = 2.0


class Waits:
    """Told how far a comparison is: the tables that something was waited for."""

    def __init__(self) -> None:
        self.tables: set[str] = set()

    def __call__(self, source: str, target: str, phase: str, done: int, total: int) -> None:
        if phase.startswith("wait for "):
            self.tables.add(target)


def make(database: Database) -> None:
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, at date)")
        database.execute(f"INSERT INTO {name} SELECT i, '2024-01-01' FROM generate_series(1, 20) i")


def test_what_is_parked_is_told_at_once_and_the_others_are_compared(
    database: Database, lake_folder: LakeFolder
) -> None:
    make(database)
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO bad VALUES (21, 'infinity')")
        pipeline.wait_state("shop_eu", "shop.bad", State.ERROR)
        wait_let_go(database)
        waits = Waits()
        reports = verify.reports(config, session=lake_folder.session, on_progress=waits)
    found = {report.target: report for report in reports}
    assert found["shop.bad"].error == (
        "source shop_eu, table public.bad: changes wait in the state folder since it was stopped or paused:"
        " how far the lake is cannot be told"
    )
    assert "shop.bad" not in waits.tables
    others = [found[f"shop.{name}"] for name in TABLES if name != "bad"]
    assert [(report.source_rows, report.differences, report.error) for report in others] == [(20, 0, "")] * 3


def test_a_source_that_is_held_is_waited_for_once(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "_STUCK_S", STUCK_S)
    make(database)
    # Nothing can be parked, so the table in error holds the source: of none can be told how far the lake is.
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES)), park_bytes="0B")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("INSERT INTO bad VALUES (21, 'infinity')")
        pipeline.wait_state("shop_eu", "shop.bad", State.ERROR)
        database.execute("INSERT INTO good VALUES (21, NULL)")
        waits = Waits()
        reports = verify.reports(config, session=lake_folder.session, on_progress=waits)
        assert all("and got no further" in report.error for report in reports)
        assert len(waits.tables) == 1


def test_a_transaction_that_does_not_end_keeps_a_source_waiting_once(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_BLOCKED_S", STUCK_S)
    make(database)
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES)))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        with database.connect() as session:
            session.execute("INSERT INTO good VALUES (30, NULL)")
            waits = Waits()
            reports = verify.reports(config, session=lake_folder.session, on_progress=waits)
        assert all("source shop_eu: no snapshot in 2 s, because of " in report.error for report in reports)
        assert len(waits.tables) == 1
