"""A process that stages what its sources send: they let go of it before the lake has it, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kuvasz import lsn
from tests.support.failpoints import STAGING
from tests.support.lake import group
from tests.support.load import TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.outages import HELD, catalog_away
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


class Staged:
    """A process with a staged log, and one that stands by."""

    def __init__(
        self, sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]
    ) -> None:
        self.coordinator = coordinator
        self.sources = sources
        groups = group(sources, dict.fromkeys(TABLES))
        self.first = new_process(groups)
        self.log = self.first.folder / "log"
        cluster = {"coordinator": coordinator.url, "lease": "5s", "log": str(self.log)}
        self.first._cluster = cluster
        self.first.write_map(groups)
        self.second = new_process(groups, cluster=cluster, lake_of=self.first)
        for database in sources.values():
            fill_tables(database)

    def wait_applied(self, process: Process) -> None:
        """Wait until all that sources have by now is in the lake, and nothing of it in the log."""
        for sid, database in self.sources.items():
            ((now,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
            query = f"SELECT 1 FROM kuvasz.log_source WHERE source = 'shop_{sid}' AND applied >= {lsn.parse(now)}"

            def is_applied(query: str = query) -> bool:
                return bool(self.coordinator.execute(query))

            process.wait_until(is_applied, f"{sid} is in the lake up to {now}")

    def wait_empty(self, process: Process) -> None:
        """Wait until the log is as it was: no object, and no row but one for each source."""
        process.wait_until(lambda: not list(self.log.iterdir()), "no object is left")
        # The index knows an object until it is gone, and then until its next look.
        expected = [len(self.sources), 0, 0]
        process.wait_until(lambda: self._counts() == expected, "nothing is left in the index")

    def _counts(self) -> list[int]:
        return [
            self.coordinator.execute(f"SELECT count(*)::int FROM kuvasz.{name}")[0][0]
            for name in ("log_source", "log_slice", "log_object")
        ]

    def assert_equal(self) -> None:
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.first.assert_equal(table, *rows)


@pytest.fixture
def staged(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Staged:
    return Staged(two_sources, coordinator, new_process)


def begun(staged: Staged) -> Process:
    """Start the first process, and wait until all is copied and streams."""
    first = staged.first.start()
    first.wait_event("reader.streaming", len(staged.sources))
    staged.wait_applied(first)
    return first


def test_what_is_staged_is_confirmed_before_the_lake_has_it_and_read_from_the_log_after_a_kill(
    staged: Staged,
) -> None:
    first = begun(staged)
    with Load(staged.sources["eu"], 1), Load(staged.sources["us"], 2):
        first.wait_event("committed", len(first.found("committed")) + 5)
        with catalog_away(first):
            first.wait_confirmed(*staged.sources.values())
            committed = len(first.found("committed"))
            first.wait_confirmed(*staged.sources.values())
            assert len(first.found("committed")) == committed, "nothing can be committed"
            first.kill()
        assert list(staged.log.iterdir())
        again = staged.first.start()
        again.wait_event("committed", 5)
    staged.wait_applied(again)
    staged.assert_equal()
    assert not again.found("copied"), "nothing is copied again"
    staged.wait_empty(again)


def test_a_catalog_that_is_away_leaves_little_wal_at_a_source(staged: Staged) -> None:
    """Two minutes at more than 1,000 changes a second."""
    first, eu = begun(staged), staged.sources["eu"]
    eu.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, n int, at timestamptz DEFAULT now())")
    groups = group(staged.sources, {**dict.fromkeys(TABLES), "ticks": None})
    first.terminate()
    staged.sources["us"].execute("CREATE TABLE ticks (id bigint PRIMARY KEY, n int, at timestamptz DEFAULT now())")
    first.write_map(groups)
    begun(staged)
    most, changes, begin = 0, 0, time.monotonic()
    with catalog_away(first):
        while (elapsed := time.monotonic() - begin) < 120:
            eu.execute(f"INSERT INTO ticks SELECT i, 0 FROM generate_series({changes}, {changes + 99}) i")
            changes += 100
            ((held,),) = eu.execute(HELD)
            most = max(most, int(held)) if elapsed > 5 else most
            time.sleep(max(0.0, changes / 1_000 - (time.monotonic() - begin)))
        committed = len(first.found("committed"))
    print(f"{changes / elapsed:.0f} changes/s, at most {most / 1e6:.1f} MB of WAL, {committed} commits")
    assert changes / elapsed > 900
    assert most < 10_000_000
    staged.wait_applied(first)
    rows = [source_rows(database.url, "ticks", sid=sid) for sid, database in staged.sources.items()]
    first.assert_equal("ticks", *rows)
    staged.wait_empty(first)


@pytest.mark.timeout(1800)
def test_kills_wherever_it_stages_lose_and_double_nothing(staged: Staged) -> None:
    first = begun(staged)
    with Load(staged.sources["eu"], 3), Load(staged.sources["us"], 4):
        first.kill()
        for number, name in enumerate(STAGING):
            process = staged.first.start(failpoints=f"{name}:kill:{5 + 7 * number}")
            process.wait_killed()
    again = staged.first.start()
    staged.wait_applied(again)
    staged.assert_equal()
    assert not again.found("copied"), "nothing is copied again"
    staged.wait_empty(again)


def test_a_standby_reads_what_was_staged(staged: Staged) -> None:
    first = begun(staged)
    staged.second.start()
    staged.second.wait_event("standing_by")
    with Load(staged.sources["eu"], 5), Load(staged.sources["us"], 6):
        first.wait_event("committed", len(first.found("committed")) + 5)
        with catalog_away(first):
            first.wait_confirmed(*staged.sources.values())
            first.wait_confirmed(*staged.sources.values())
            first.kill()
            staged.second.wait_event("lease_taken", was_killed=True)
        staged.second.wait_event("committed", 5)
    staged.wait_applied(staged.second)
    staged.assert_equal()
    assert not staged.second.found("copied"), "nothing is copied again"
    staged.wait_empty(staged.second)
