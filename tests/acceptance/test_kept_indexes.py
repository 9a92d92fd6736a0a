"""Two processes with `cluster.indexes`: who takes a table over has its index from the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import catalogs, oracle
from tests.support.failpoints import KEEPING
from tests.support.lake import group
from tests.support.load import TABLE, TABLES, Load, fill_tables
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import Process
from tests.support.shared_appliers import SharedAppliers
from tests.support.stores import S3

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]

#: More than what is read as quickly.
ROWS = 100_000

NAME = f"shop.{TABLE}"


@pytest.fixture
def two_databases(postgres18: EmbeddedPostgres) -> Iterator[dict[str, Database]]:
    """Without tables."""
    made = {name: create_database(postgres18) for name in ("eu", "us")}
    yield made
    for database in made.values():
        drop_database(database)


class Pair:
    """One that replicates, and one that stands by; indexes are beside the tables, as by default, or in a store.

    Args:
        sources: The sources by their sids, with empty tables.
        coordinator: The coordinator.
        new_process: Makes the processes.
        store: Where indexes are; None: beside the tables.
        lease_s: For how long a lease is taken.
    """

    def __init__(
        self,
        sources: dict[str, Database],
        coordinator: Database,
        new_process: Callable[..., Process],
        store: S3 | None = None,
        lease_s: int = 10,
    ) -> None:
        self.sources = sources
        self._store = store
        groups = group(sources, dict.fromkeys(TABLES))
        # Commits come seldom: the tests beside this one need the processors, too.
        pipeline = {"commit_interval": "500ms"}
        lake = {} if store is None else {"properties": store.properties}
        self.first = new_process(groups, lake=lake, pipeline=pipeline)
        cluster = {"coordinator": coordinator.url, "lease": f"{lease_s}s"}
        if store is not None:
            cluster["indexes"] = f"s3://{store.bucket}/{self.first.folder.name}"
        elif catalogs.KIND == "rest":  # of which it has to be said
            cluster["indexes"] = str(self.first.folder / "wh" / "_kuvasz" / "indexes")
        self.first._cluster = cluster
        self.first.write_map(groups)
        self.second = new_process(groups, cluster=cluster, lake=lake, pipeline=pipeline, lake_of=self.first)
        for database in sources.values():
            fill_tables(database, ROWS)

    def start(self, failpoints: str = "") -> None:
        self.first.start(failpoints=failpoints)
        if failpoints:  # which it may reach before all is copied
            self.first.wait_killed()
        else:
            self.first.wait_event("copied", 2 * len(TABLES))
        self.second.start()
        self.second.wait_until(
            lambda: self.second.found("standing_by") or self.second.found("lease_taken"), "it waits, or begins"
        )

    def uuid(self) -> str:
        return str(oracle.open_table(self.first.pyiceberg, NAME).metadata.table_uuid)

    def objects(self) -> dict[str, int]:
        """Return name and size of all that is kept of the table's index."""
        if self._store is None:
            folder = self.first.folder / "wh" / "_kuvasz" / "indexes" / self.uuid()
            return {file.name: file.stat().st_size for file in folder.glob("*") if file.is_file()}
        found = self._store.client.list_objects_v2(
            Bucket=self._store.bucket, Prefix=f"{self.first.folder.name}/{self.uuid()}/"
        )  # fmt: skip
        return {entry["Key"].rpartition("/")[2]: entry["Size"] for entry in found.get("Contents", [])}

    def assert_equal(self) -> None:
        for table in TABLES:
            rows = [source_rows(database.url, table, sid=sid) for sid, database in self.sources.items()]
            self.first.assert_equal(table, *rows)


@pytest.fixture
def pair(two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]) -> Pair:
    return Pair(two_sources, coordinator, new_process)


#: Where indexes are kept; what is slow is done with the other one as well.
STORES = ["beside", pytest.param("s3", marks=pytest.mark.slow)]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> S3 | None:
    return request.getfixturevalue("s3") if request.param == "s3" else None


def nodes(process: Process) -> set[tuple[int, bool]]:
    """Return the processes that the command lists, and whether they replicate."""
    found = json.loads(process.run("cluster", "nodes", "--json").stdout)["nodes"]
    return {(node["pid"], node["replicates"]) for node in found}


def test_who_takes_over_has_the_index_from_the_store(
    two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process], store: S3 | None
) -> None:
    pair = Pair(two_sources, coordinator, new_process, store)
    first, second = pair.first, pair.second
    pair.start()
    with Load(pair.sources["eu"], 1), Load(pair.sources["us"], 2):
        first.wait_event("index_kept", table=NAME)
        first.wait_event("committed", len(first.found("committed")) + 5)
        first.kill()
        second.wait_event("index_brought", table=NAME)
        assert second.found("lease_taken", was_killed=True)
        second.wait_event("committed", 5)
        assert nodes(second) == {(first.pid, False), (second.pid, True)}
    (brought,) = second.found("index_brought")
    assert brought["rows"] >= 2 * ROWS
    assert not second.found("index_left")
    second.wait_confirmed(*pair.sources.values())
    assert not second.found("copied"), "nothing is copied again"
    second.terminate()
    pair.assert_equal()


@pytest.mark.slow
def test_who_is_stopped_leaves_all_of_the_index(
    two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process], store: S3 | None
) -> None:
    # Of a longer lease there is more time to keep it.
    pair = Pair(two_sources, coordinator, new_process, store, lease_s=60)
    first, second = pair.first, pair.second
    pair.start()
    with Load(pair.sources["eu"], 1), Load(pair.sources["us"], 2):
        first.wait_event("index_kept", table=NAME)
        first.wait_event("committed", len(first.found("committed", table=NAME)) + 5, table=NAME)
        first.begin_stop()
        second.wait_event("index_brought", table=NAME)
        assert second.found("lease_taken", was_killed=False), "it has not waited for the lease to end"
        second.wait_event("committed", 5)
    assert first.wait() == 0, first.report()
    assert len(first.found("index_kept", table=NAME)) >= 2, "again at its end"
    second.wait_confirmed(*pair.sources.values())
    assert not second.found("index_read", table=NAME), "no file of it is read"
    assert not second.found("copied"), "nothing is copied again"
    second.terminate()
    pair.assert_equal()
    assert len([name for name in pair.objects() if name.endswith(".index")]) == 1


@pytest.mark.slow
def test_who_is_drained_leaves_all_of_the_indexes(
    two_databases: dict[str, Database], coordinator: Database, new_process: Callable[..., Process]
) -> None:
    appliers = SharedAppliers(two_databases, coordinator, new_process, lease_s=60)
    for database in two_databases.values():
        database.execute(f"INSERT INTO {TABLE} SELECT i, 0, 'more' FROM generate_series(10001, {ROWS}) i")
    appliers.read.start()
    appliers.start("one")
    one = appliers.all["one"]
    one.wait_event("copied", 2 * len(TABLES))
    appliers.start("two")
    shared = appliers.wait_shared("one", "two")
    two = appliers.all["two"]
    (given,) = [name for name, node in shared.items() if node == appliers.node("two")]
    (stays,) = set(shared) - {given}
    with appliers.load():
        two.wait_event("index_brought", table=f"shop.{TABLE}_{given}")
        assert one.run("cluster", "drain", appliers.node("one")).returncode == 0
        two.wait_event("index_brought", table=f"shop.{TABLE}_{stays}")
        two.wait_event("committed", len(two.found("committed")) + 5)
    appliers.wait_applied()
    for name in shared:
        assert not two.found("index_read", table=f"shop.{TABLE}_{name}"), "no file of it is read"
    for process in (one, two, appliers.read):
        process.terminate()
    appliers.assert_equal()


@pytest.mark.slow
@pytest.mark.parametrize("point", KEEPING)
def test_who_dies_while_an_index_is_kept_leaves_one_that_is_whole_or_none(pair: Pair, point: str) -> None:
    first, second = pair.first, pair.second
    pair.start(failpoints=f"{point}:kill")
    with Load(pair.sources["eu"], 1), Load(pair.sources["us"], 2):
        second.wait_event("lease_taken")
        assert any(name.endswith(".run") for name in pair.objects())
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
    assert len([name for name in pair.objects() if name.endswith(".index")]) == 1


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
    assert max(size for name, size in pair.objects().items() if name.endswith(".run")) <= 2 * ROWS * 16
