"""Two processes with `cluster.indexes`: who takes a table over has its index from the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import oracle
from tests.support.failpoints import KEEPING
from tests.support.lake import group
from tests.support.load import TABLE, TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]

#: More than what is read as quickly.
ROWS = 100_000

NAME = f"shop.{TABLE}"


@pytest.fixture
def coordinator(postgres18: EmbeddedPostgres) -> Iterator[Database]:
    database = create_database(postgres18)
    yield database
    drop_database(database)


class Pair:
    """One that replicates, and one that stands by."""

    def __init__(
        self, sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]
    ) -> None:
        self.sources = sources
        groups = group(sources, dict.fromkeys(TABLES))
        self.first = new_process(groups)
        self.store = self.first.folder / "indexes"
        cluster = {"coordinator": coordinator.url, "lease": "10s", "indexes": str(self.store)}
        self.first._cluster = cluster
        self.first.write_map(groups)
        self.second = new_process(groups, cluster=cluster, lake_of=self.first)
        for database in sources.values():
            fill_tables(database, ROWS)

    def start(self, failpoints: str = "") -> None:
        self.first.start(failpoints=failpoints)
        self.first.wait_event("copied", 2 * len(TABLES))
        self.second.start()
        self.second.wait_until(
            lambda: self.second.found("standing_by") or self.second.found("lease_taken"), "it waits, or begins"
        )

    def uuid(self) -> str:
        return str(oracle.open_table(self.first.pyiceberg, NAME).metadata.table_uuid)

    def objects(self) -> list[Path]:
        return [file for file in (self.store / self.uuid()).glob("*") if file.is_file()]

    def assert_equal(self) -> None:
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.first.assert_equal(table, *rows)


@pytest.fixture
def pair(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Pair:
    return Pair(two_sources, coordinator, new_process)


def test_who_takes_over_has_the_index_from_the_store(pair: Pair) -> None:
    first, second = pair.first, pair.second
    pair.start()
    with Load(pair.sources["eu"], 1), Load(pair.sources["us"], 2):
        first.wait_event("index_kept", table=NAME)
        first.wait_event("committed", len(first.found("committed")) + 5)
        first.kill()
        second.wait_event("index_brought", table=NAME)
        second.wait_event("committed", 5)
    second.wait_confirmed(*pair.sources.values())
    (brought,) = second.found("index_brought")
    assert brought["rows"] >= 2 * ROWS
    assert not second.found("copied"), "nothing is copied again"
    assert not second.found("index_left")
    second.terminate()
    pair.assert_equal()


@pytest.mark.slow
@pytest.mark.parametrize("point", KEEPING)
def test_who_dies_while_an_index_is_kept_leaves_one_that_is_whole_or_none(pair: Pair, point: str) -> None:
    first, second = pair.first, pair.second
    pair.start(failpoints=f"{point}:kill")
    with Load(pair.sources["eu"], 1), Load(pair.sources["us"], 2):
        second.wait_event("lease_taken")
        assert any(file.suffix == ".run" for file in pair.objects())
        if point == "index_kept":
            second.wait_event("index_brought", table=NAME)
            for database in pair.sources.values():  # enough that is new
                database.execute(f"UPDATE {TABLE} SET n = n + 1")
        else:
            second.wait_event("index_read", table=NAME)
        second.wait_event("index_kept", table=NAME)
    second.wait_confirmed(*pair.sources.values())
    assert bool(second.found("index_brought")) == (point == "index_kept")
    second.terminate()
    first.wait_killed()
    pair.assert_equal()
    assert len([file for file in pair.objects() if file.suffix == ".index"]) == 1


@pytest.mark.slow
def test_nothing_of_an_erased_source_is_left_in_the_store_or_comes_back(pair: Pair) -> None:
    first, second = pair.first, pair.second
    pair.start()
    first.wait_event("index_kept", table=NAME)
    first.wait_confirmed(*pair.sources.values())
    first.begin_stop()
    second.wait_event("index_brought", table=NAME)
    second.wait_confirmed(*pair.sources.values())
    first.wait()
    second.terminate()
    assert pair.objects()
    done = first.run("source", "erase", "--sid", "us", "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["is_clean"], done.stdout
    assert not pair.objects()
    # What the other machine has of it is older than that, and not believed.
    eu = pair.sources["eu"]
    second.write_map(group({"eu": eu}, dict.fromkeys(TABLES)))
    second.start()
    second.wait_event("index_read", table=NAME)
    eu.execute(f"UPDATE {TABLE} SET n = n + 1")
    second.wait_event("index_kept", table=NAME)
    second.wait_confirmed(eu)
    second.terminate()
    second.assert_equal(TABLE, source_rows(eu.url, TABLE, sid="eu"))
    (run,) = [file for file in pair.objects() if file.suffix == ".run"][:1]
    assert run.stat().st_size <= 2 * ROWS * 24
